//! Costs of the hardware: lines, siblings, caches.

use super::{Derived, Deriving, How};
use crate::layout::Sizes;
use crate::plan::What;
use crate::stats::Spread;

impl Deriving<'_> {
    pub(super) fn lines(&mut self) {
        self.measured(("lines", "hit"), self.of(What::Hit), "dependent loads of one line");
        self.measured(("lines", "atomic"), self.of(What::Atomic), "fetch_add on one line, again and again");
        let memory = self.of(What::Memory);
        let mib = self.given.facts.memory_bytes >> 20;
        let refill = format!(
            "{} KiB that the other CPU had written, loaded with several loads in flight",
            self.given.facts.refill_kib
        );

        let topo = &self.given.machine.topology;
        let (remote, first_remote) = (topo.nr_remote(), topo.first_remote());
        let near = [
            ("core", "refill_core_per_kib"),
            ("cluster", "refill_cluster_per_kib"),
            ("llc", "refill_llc_per_kib"),
            ("node", "refill_node_per_kib"),
        ];
        let near: Vec<_> = near.into_iter().filter(|(name, _)| topo.has_clusters() || *name != "cluster").collect();
        for (class, (line, fill)) in near.iter().enumerate().map(|(i, k)| (i + 1, *k)) {
            if class == topo.node_wide() && !self.given.samples.contains_key(&What::Transfer(class)) {
                let how = format!("dependent loads from {mib} MiB of memory (there is no second cache in a node)");
                self.measured(("lines", line), memory, &how);
            } else {
                self.transfer(("lines", line), class);
            }
            self.measured(("cache", fill), self.of(What::Refill(class)), &refill);
        }
        if (0..remote).any(|i| self.given.samples.contains_key(&What::Transfer(first_remote + i))) {
            for i in 0..remote {
                if !self.transfer(("lines", "remote"), first_remote + i) {
                    self.estimate(("lines", "remote"), self.default(("lines", "remote"), i));
                }
            }
        }
        let nearest_far = (0..remote).find_map(|i| self.of(What::Refill(first_remote + i)));
        self.measured(("cache", "refill_remote_per_kib"), nearest_far, &refill);
        self.in_order(&near.iter().map(|(line, _)| ("lines", *line)).collect::<Vec<_>>());
        let fills = near.iter().map(|(_, fill)| *fill).chain(["refill_remote_per_kib"]);
        self.in_order(&fills.map(|f| ("cache", f)).collect::<Vec<_>>());
    }

    /// Between CPUs at a distance. A polled word is a second opinion, which the range covers. Returns whether it was
    /// measured.
    fn transfer(&mut self, key: (&'static str, &'static str), class: usize) -> bool {
        let Some(load) = self.of(What::Transfer(class)) else { return false };
        let mut s = load;
        let mut how = "dependent loads of lines that the other CPU had just written".to_string();
        if let Some(ping) = self.of(What::Ping(class)) {
            // Half a round trip is two transfers: the store takes the line from the poller, who then loads it.
            let ping = ping.times(0.5);
            s = Spread { lo: load.lo.min(ping.lo), hi: load.hi.max(ping.hi), ..load };
            how += &format!(" ({:.0} to {:.0}); a polled word says {:.0} to {:.0}", load.lo, load.hi, ping.lo, ping.hi);
        }
        self.measured(key, Some(s), &how);
        true
    }

    /// What this machine does not have (a sibling, a second cache) has no influence, but farther must not be cheaper:
    /// defaults are bounded by their measured neighbours.
    fn in_order(&mut self, keys: &[(&'static str, &'static str)]) {
        let found = |out: &Derived, k: (&str, &str)| {
            out.costs.iter().find(|f| (f.section, f.field) == k).map(|f| f.cost.clone())
        };
        for (i, key) in keys.iter().enumerate() {
            if found(&self.out, *key).is_some() {
                continue;
            }
            let was = self.default(*key, 0);
            let nearer = keys[..i].iter().rev().find_map(|k| found(&self.out, *k));
            let farther = keys[i + 1..].iter().find_map(|k| found(&self.out, *k));
            let mut c = was.clone();
            if let Some(n) = &nearer {
                (c.value, c.lo, c.hi) = (c.value.max(n.value), c.lo.max(n.lo), c.hi.max(n.hi));
            }
            if let Some(f) = &farther {
                (c.value, c.lo, c.hi) = (c.value.min(f.value), c.lo.min(f.lo), c.hi.min(f.hi));
            }
            if (c.value, c.lo, c.hi) != (was.value, was.lo, was.hi) {
                c.source = format!(
                    "estimate: not measured on this machine; as in defaults.toml ({}), bounded by what is nearer \
                     and farther",
                    was.value
                );
                self.estimate(*key, c);
            }
        }
    }

    pub(super) fn smt(&mut self) {
        let threads = self.given.machine.topology.threads_per_core_max();
        let key = ("cpu", "smt_speed_pct");
        let found: Vec<Option<Spread>> = (2..=threads).map(|k| self.of(What::SmtPct(k))).collect();
        if threads > 1 && found.iter().all(Option::is_none) {
            return;
        }
        self.put(key, How::Declared, Spread::exactly(100.0), "by definition".into());
        for (i, s) in found.into_iter().enumerate() {
            match s {
                Some(_) => self.measured(key, s, &format!("integer work on a thread while {} of its core work", i + 2)),
                None => self.estimate(key, self.default(key, i + 1)),
            }
        }
    }

    /// Two CPUs that are said to be cores but slow each other down are not.
    pub(super) fn hidden_siblings(&mut self) {
        if let Some(s) = self.of(What::NearPct).filter(|s| s.value < 85.0) {
            self.out.notes.push(format!(
                "a CPU keeps {:.0} % of its speed while another, of another core, is busy: perhaps a hypervisor shows \
                 two threads of one core as cores",
                s.value
            ));
        }
    }

    pub(super) fn caches(&mut self) {
        let exact = |s: Sizes| Spread { value: s.value as f64, lo: s.lo as f64, hi: s.hi as f64, n: usize::MAX };
        if let Some(s) = self.given.layout.private_kib {
            self.declared(("cache", "l2_kib"), exact(s), "the largest cache below the last level");
        }
        if let Some(s) = self.given.layout.llc_kib {
            self.declared(("cache", "llc_kib"), exact(s), "the last-level cache");
        }
    }
}
