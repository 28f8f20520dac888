//! Switches and tunables of Xen's schedulers: the 24 patches of August 2016, each with a name (mechanisms E.3), and what can
//! be set on Xen's command line (`contend list xen`; `--set xen.KEY=VALUE`).

use crate::switches::{FeatureError, FeatureInfo, Value};
use crate::{switches, words};

words! {
    /// How Credit2 groups pCPUs into runqueues (`credit2_runqueue`).
    Credit2Runqueue {
        /// One runqueue a pCPU.
        Cpu = "cpu",
        /// One a core: the default in 2016.
        Core = "core",
        /// One a socket (package): the default since Xen 4.8.
        Socket = "socket",
        /// One a NUMA node.
        Node = "node",
        /// One for all.
        All = "all",
    }
}

words! {
    /// Which scheduler a host runs.
    Scheduler {
        /// Credit1.
        Credit = "credit",
        /// Credit2.
        Credit2 = "credit2",
        /// The reference policy of the contract: first in, first out, on each pCPU.
        RoundRobin = "round-robin",
    }
}

switches! {
    /// All switches and tunables. The defaults are the base of August 2016, before any of the 24 patches.
    XenFeatures {
        /// Patch 1, Credit1: whether the running vCPU could be kicked away is tested with its own hard affinity.
        c1_tickle_cur_hard: bool = false,
        /// Patch 2, Credit1: the idle pCPU to tickle is chosen among those that the new vCPU may (or prefers to) use, not among all.
        c1_tickle_mask: bool = false,
        /// Patch 3, Credit1: a vCPU kept by the rate limit is looked at again when the rest of the limit is over, not a whole one.
        c1_ratelimit_remaining: bool = false,
        /// Patch 4, Credit2: a running vCPU that the balancer flags has its pCPU's softirq raised.
        c2_migrate_softirq: bool = false,
        /// Patch 5, Credit2: a queued vCPU remembers the pCPU tickled for it; others leave it there meanwhile.
        c2_tickled_cpu: bool = false,
        /// Patch 6, Credit2: yields have an effect.
        c2_yield: bool = false,
        /// Patch 7: no rate limit for a vCPU that yields.
        yield_no_ratelimit: bool = false,
        /// Patch 8: trace records for schedule and rate-limiting.
        trace_schedule: bool = false,
        /// Patch 9: trace records of switches carry the vCPU's number (0 without).
        trace_switch_vcpu: bool = false,
        /// Patch 10: credits in trace records of Credit2 are signed (clipped at 0 without).
        trace_signed_credit: bool = false,
        /// Patch 11: the tools know the records of patches 8 and 9.
        tools_events: bool = false,
        /// Patch 12: libxc sets Credit2's rate limit online.
        libxc_ratelimit: bool = false,
        /// Patch 13: libxc reports errors of both schedulers' calls.
        libxc_errors: bool = false,
        /// Patch 14: libxl sets Credit2's rate limit online.
        libxl_ratelimit: bool = false,
        /// Patch 15: `xl sched-credit2 -s -r`.
        xl_ratelimit: bool = false,
        /// Patch 16: both schedulers share the affinity steps. No effect alone; 17 to 20 need it.
        affinity_helpers: bool = false,
        /// Patch 17, Credit2: tickling heeds soft affinity.
        c2_tickle_soft: bool = false,
        /// Patch 18, Credit2: choosing a pCPU or runqueue heeds soft affinity.
        c2_pick_soft: bool = false,
        /// Patch 19, Credit2: load balancing heeds soft affinity. Never merged; the design is ours (docs/xen-credit2.md).
        c2_balance_soft: bool = false,
        /// Patch 20, Credit2: a vCPU that runs outside its soft affinity leaves for an idle pCPU inside.
        c2_kick_soft: bool = false,
        /// Patch 21, Credit2: an idle pCPU does not ask what only concerns a running vCPU (yield, rate limit, soft affinity).
        c2_candidate_early_out: bool = false,
        /// Patch 22, Credit2: the longest time between two decisions is 10 ms, not 2.
        c2_max_timer_10ms: bool = false,
        /// Patch 23, Credit2: tickling looks at its own pCPU first, and ends early.
        c2_tickle_micro: bool = false,
        /// Patch 24, Credit2: pCPUs whose vCPU is under the rate limit still are not tickled.
        c2_tickle_ratelimited: bool = false,
        /// After 2016: Credit1 removes a tickled pCPU from the idlers at once, skips queues with one vCPU, and steals round robin (2017).
        c1_2017: bool = false,
        /// After 2016: Credit1 balances at most once per 1 ms, and does not steal vCPUs that yielded (2023).
        c1_2023: bool = false,
        /// After 2016: Credit2's changes up to Xen 4.17, its caps among them (mechanisms E.2).
        c2_today: bool = false,
        /// Shortest time between context switches in us; 0: none, else 100 to 500,000 (ratelimit_us).
        ratelimit_us: u64 = 1000,
        /// Credit1's time slice in ms, 1 to 1,000 (tslice_ms). A tick is a third of it.
        tslice_ms: u64 = 30,
        /// Credit1 does not move vCPUs that ran within so many us (vcpu_migration_delay).
        vcpu_migration_delay_us: u64 = 0,
        /// Credit1 fills cores one after the other instead of spreading (sched_smt_power_savings); Credit2's tickling too.
        smt_power_savings: bool = false,
        /// Credit1 tickles one idle pCPU, not all that are useful (tickle_one_idle_cpu).
        tickle_one_idle_cpu: bool = true,
        /// How Credit2 groups pCPUs.
        credit2_runqueue: Credit2Runqueue = Credit2Runqueue::Core,
        /// Most pCPUs in one of Credit2's runqueues; 0: no limit (before 2020). 16 since.
        credit2_max_cpus_runqueue: u64 = 0,
        /// Credit2 moves a vCPU to another pCPU of its runqueue only for so many us of credit (sched_credit2_migrate_resist).
        credit2_migrate_resist_us: u64 = 500,
        /// Credit2's load average window is 2 to this power, in ns (credit2_load_window_shift).
        credit2_load_window_shift: u64 = 30,
        /// Credit2's loads have so many fraction bits (credit2_load_precision_shift).
        credit2_load_precision_shift: u64 = 18,
        /// Credit2 balances two underloaded runqueues from a difference of 2 to this power on (credit2_balance_under; 0 stands for 0).
        credit2_balance_under: u64 = 0,
        /// And two overloaded ones from 2 to the power of minus this on (credit2_balance_over, -3).
        credit2_balance_over_minus: u64 = 3,
        /// Cycles between two PAUSEs of one loop; 0: no pause-loop exits (ple_gap).
        ple_gap: u64 = 128,
        /// Cycles that a pause loop may last before it exits, and its vCPU yields (ple_window).
        ple_window: u64 = 4096,
        /// Credit2's period of caps in ms (credit2_cap_period_ms).
        credit2_cap_period_ms: u64 = 10,
    }
}

/// The patches by number, 1 first.
pub const PATCHES: [&str; 24] = [
    "c1_tickle_cur_hard",
    "c1_tickle_mask",
    "c1_ratelimit_remaining",
    "c2_migrate_softirq",
    "c2_tickled_cpu",
    "c2_yield",
    "yield_no_ratelimit",
    "trace_schedule",
    "trace_switch_vcpu",
    "trace_signed_credit",
    "tools_events",
    "libxc_ratelimit",
    "libxc_errors",
    "libxl_ratelimit",
    "xl_ratelimit",
    "affinity_helpers",
    "c2_tickle_soft",
    "c2_pick_soft",
    "c2_balance_soft",
    "c2_kick_soft",
    "c2_candidate_early_out",
    "c2_max_timer_10ms",
    "c2_tickle_micro",
    "c2_tickle_ratelimited",
];

/// What a patch needs: (number, numbers of those it needs).
pub const NEEDS: [(usize, &[usize]); 8] =
    [(11, &[8, 9]), (13, &[12]), (14, &[12]), (15, &[14]), (17, &[16]), (18, &[16]), (19, &[16, 18]), (20, &[16, 17])];

impl XenFeatures {
    /// Is patch `number` (1 to 24) on?
    ///
    /// # Panics
    /// There is no such patch.
    pub fn patch(&self, number: usize) -> bool {
        let key = PATCHES[number - 1];
        self.list().iter().any(|f| f.key == key && f.value == "true")
    }

    /// Turn a set of patches on, all others off: `none`, `all`, or numbers and ranges such as `1-3,7,16`.
    ///
    /// # Errors
    /// The text is not such a set. Prerequisites are looked at in [`XenFeatures::check`], when all is set.
    pub fn set_patches(&mut self, text: &str) -> Result<(), FeatureError> {
        let fail = || FeatureError {
            key: "patches".into(),
            value: text.into(),
            expected: "should be none, all, or numbers from 1 to 24, such as 1-7 or 2,16-18".into(),
        };
        let mut on = [false; PATCHES.len()];
        match text.trim() {
            "none" => {}
            "all" => on = [true; PATCHES.len()],
            list => {
                for part in list.split(',') {
                    let (from, to) = part.split_once('-').unwrap_or((part, part));
                    let number = |t: &str| t.trim().parse().ok().filter(|n| (1..=PATCHES.len()).contains(n));
                    let (from, to) = (number(from).ok_or_else(fail)?, number(to).ok_or_else(fail)?);
                    if from > to {
                        return Err(fail());
                    }
                    on[from - 1..to].fill(true);
                }
            }
        }
        for (key, on) in std::iter::zip(PATCHES, on) {
            self.set(key, &on.show()).expect("the patches' keys exist");
        }
        Ok(())
    }

    /// Do the switches go together, and are the numbers in range?
    ///
    /// # Errors
    /// A patch without one that it needs, or a value out of range: key, value, and what would be right.
    pub fn check(&self) -> Result<(), FeatureError> {
        for (patch, needs) in NEEDS {
            if !self.patch(patch) {
                continue;
            }
            if let Some(missing) = needs.iter().find(|n| !self.patch(**n)) {
                return Err(FeatureError {
                    key: PATCHES[patch - 1].into(),
                    value: "true".into(),
                    expected: format!(
                        "patch {patch} needs patch {missing}: set {} too, or `patches` to a set with both",
                        PATCHES[missing - 1]
                    ),
                });
            }
        }
        let in_range = |key: &str, value: u64, ok: bool, expected: &str| {
            let fail = || FeatureError { key: key.into(), value: value.show(), expected: expected.into() };
            if ok { Ok(()) } else { Err(fail()) }
        };
        let r = self.ratelimit_us;
        in_range(
            "ratelimit_us",
            r,
            r == 0 || (100..=500_000).contains(&r),
            "should be 0 (off), or from 100 to 500000 us",
        )?;
        let t = self.tslice_ms;
        in_range("tslice_ms", t, (1..=1000).contains(&t), "should be from 1 to 1000 ms")?;
        let w = self.credit2_load_window_shift;
        in_range("credit2_load_window_shift", w, (20..=36).contains(&w), "should be from 20 to 36")?;
        let s = self.credit2_load_precision_shift;
        in_range("credit2_load_precision_shift", s, (10..=24).contains(&s), "should be from 10 to 24")?;
        in_range(
            "credit2_balance_under",
            self.credit2_balance_under,
            self.credit2_balance_under <= 8,
            "should be from 0 to 8",
        )?;
        let o = self.credit2_balance_over_minus;
        in_range("credit2_balance_over_minus", o, o <= 10, "should be from 0 to 10")?;
        let c = self.credit2_cap_period_ms;
        in_range("credit2_cap_period_ms", c, (1..=1000).contains(&c), "should be from 1 to 1000 ms")
    }

    /// A named set: `base` (before the 24 patches), `patched` (all of them), `upstream-today` (Xen 4.17 as mechanisms E tells it:
    /// all but 19 and 23, and what came later). `None`: there is no such set.
    pub fn preset(name: &str) -> Option<Self> {
        let mut f = XenFeatures::default();
        match name {
            "base" => {}
            "patched" => f.set_patches("all").expect("all is a set"),
            "upstream-today" => {
                f.set_patches("1-18,20-22,24").expect("these are patches");
                f.c1_2017 = true;
                f.c1_2023 = true;
                f.c2_today = true;
                f.credit2_runqueue = Credit2Runqueue::Socket;
                f.credit2_max_cpus_runqueue = 16;
            }
            _ => return None,
        }
        Some(f)
    }

    /// Names that [`XenFeatures::preset`] knows.
    pub const PRESETS: [&str; 3] = ["base", "patched", "upstream-today"];

    /// All switches as [`XenFeatures::list`] gives them, the patches with their numbers.
    pub fn patches(&self) -> Vec<(usize, FeatureInfo)> {
        let all = self.list();
        let numbered = PATCHES.iter().enumerate();
        numbered
            .map(|(i, key)| (i + 1, all.iter().find(|f| f.key == *key).expect("a patch is a switch").clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_sets_of_numbers_with_prerequisites() {
        let mut f = XenFeatures::default();
        f.set_patches("1-3,7,16").unwrap();
        assert!(f.c1_tickle_mask && f.yield_no_ratelimit && f.affinity_helpers && !f.c2_yield);
        f.check().unwrap();
        f.set_patches("17").unwrap();
        assert!(f.check().unwrap_err().to_string().contains("patch 17 needs patch 16"));
        for wrong in ["0", "25", "3-1", "x", "", "1,,2"] {
            assert!(f.set_patches(wrong).is_err(), "{wrong}");
        }
        for n in 1..=24 {
            f.set_patches(&format!("1-{n}")).unwrap();
            f.check().unwrap_or_else(|e| panic!("every prefix is valid: {e}"));
        }
    }

    #[test]
    fn presets_are_valid_and_ranges_are_kept() {
        for name in XenFeatures::PRESETS {
            XenFeatures::preset(name).unwrap().check().unwrap();
        }
        assert!(XenFeatures::preset("patched").unwrap().patches().iter().all(|(_, p)| p.value == "true"));
        for (key, value) in
            [("ratelimit_us", "99"), ("ratelimit_us", "500001"), ("tslice_ms", "0"), ("tslice_ms", "1001")]
        {
            let mut f = XenFeatures::default();
            f.set(key, value).unwrap();
            assert!(f.check().is_err(), "{key}={value}");
        }
    }
}
