//! Parameters of a host as its timeline changes them.

use contend_machine::Topology;
use contend_platform::Time;
use contend_sched::switches::Value;
use contend_sched::xen::contract::{DomParams, Tunables};
use contend_sched::xen::features::{PATCHES, Scheduler};
use contend_sched::xen::units::VcpuAffinity;
use contend_sim::xen::What;
use serde_json::{Value as Json, json};

use super::domain::{check_cap, names, within};
use super::xl::{Command, usage};
use super::{XenPlan, cpus};
use crate::names::did_you_mean;
use crate::scenario::guest::GuestPlan;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
/// Patches without which nothing sets Credit2's rate limit online.
const ONLINE_RATELIMIT: [usize; 3] = [12, 14, 15];

/// A domain.
pub(super) struct Dom {
    pub number: u16,
    pub name: String,
    pub pool: usize,
    pub params: DomParams,
    pub affinity: Vec<VcpuAffinity>,
}

/// A host's parameters at some time.
pub(super) struct State<'a> {
    xen: &'a XenPlan,
    topo: &'a Topology,
    pub domains: Vec<Dom>,
    pub tunables: Vec<Tunables>,
}

impl<'a> State<'a> {
    /// As the run begins.
    pub fn new(xen: &'a XenPlan, topo: &'a Topology, guests: &[GuestPlan]) -> Self {
        let domain = |d: &super::Domain| {
            let of = guests[d.guest].domain.as_ref().expect("guests of a Xen host are domains");
            let (params, affinity) = (of.params, of.affinity.clone());
            Dom { number: d.dom, name: d.name.clone(), pool: of.pool, params, affinity }
        };
        let domains = xen.domains.iter().map(domain).collect();
        State { xen, topo, domains, tunables: xen.pools.iter().map(|p| p.tunables).collect() }
    }

    /// A domain by number or name.
    fn domain(&self, named: &str) -> Result<usize, String> {
        let number = named.parse::<u16>().ok();
        let find = |d: &Dom| d.name == named || Some(d.number) == number;
        self.domains.iter().position(find).ok_or_else(|| {
            let all: Vec<String> = self.domains.iter().map(|d| format!("{} ({})", d.name, d.number)).collect();
            let known = self.domains.iter().map(|d| d.name.as_str());
            let right = did_you_mean(named, known, format!("there are {}", all.join(", ")));
            format!("there is no domain {named}; {right}")
        })
    }

    fn pool(&self, named: Option<&str>) -> Result<usize, String> {
        let Some(named) = named else { return Ok(0) };
        let number = named.parse::<usize>().ok().filter(|n| *n < self.xen.pools.len());
        (self.xen.pools.iter().position(|p| p.name == named).or(number))
            .ok_or_else(|| format!("there is no cpupool {named}; there are {}", names(&self.xen.pools)))
    }

    fn right_scheduler(&self, of: Scheduler) -> Result<(), String> {
        match self.xen.scheduler {
            ours if ours == of => Ok(()),
            Scheduler::RoundRobin => Err("the scheduler of this host is round-robin, which has no parameters".into()),
            ours => Err(format!("the scheduler of this host is {}; should be {}", ours.show(), usage(ours))),
        }
    }

    /// Make a change; what it is for the simulation.
    ///
    /// # Errors
    /// Why `xl` or Xen would refuse.
    pub fn apply(&mut self, command: &Command) -> Result<Vec<What>, String> {
        match command {
            Command::Domain { of, domain, weight, cap } => {
                self.right_scheduler(*of)?;
                let index = self.domain(domain)?;
                let vcpus = self.domains[index].affinity.len();
                if let Some(cap) = cap {
                    check_cap(*cap, vcpus, self.xen.scheduler, &self.xen.features)
                        .map_err(|right| format!("-c {cap}: should be {right}"))?;
                }
                let params = &mut self.domains[index].params;
                params.weight = weight.unwrap_or(params.weight);
                params.cap = cap.map_or(params.cap, |c| c as u16);
                Ok(vec![What::Domain(index, *params)])
            }
            Command::Pool { of, pool, tslice_ms, ratelimit_us } => {
                self.right_scheduler(*of)?;
                let missing = ONLINE_RATELIMIT.iter().find(|n| !self.xen.features.patch(**n));
                if *of == Scheduler::Credit2
                    && let Some(missing) = missing
                {
                    return Err(format!(
                        "the tools of this preset cannot set it online: patch {missing} `{}`",
                        PATCHES[missing - 1]
                    ));
                }
                let index = self.pool(pool.as_deref())?;
                let mut t = self.tunables[index];
                t.tslice = tslice_ms.map_or(t.tslice, |ms| ms * MS);
                t.ratelimit = ratelimit_us.map_or(t.ratelimit, |us| us * US);
                if *of == Scheduler::Credit && t.ratelimit > t.tslice {
                    let (r, t) = (t.ratelimit / US, t.tslice / MS);
                    return Err(format!("a rate limit of {r} us is longer than the time slice of {t} ms"));
                }
                self.tunables[index] = t;
                Ok(vec![What::Pool(index, t)])
            }
            Command::Pin { domain, vcpu, hard, soft } => {
                let index = self.domain(domain)?;
                let dom = &mut self.domains[index];
                let n = dom.affinity.len();
                let set = |text: &Option<String>| {
                    let parse = |t: &String| cpus::parse(t, self.topo).map_err(|e| format!("{t}: should be {e}"));
                    text.as_ref().map(parse).transpose()
                };
                let (hard, soft) = (set(hard)?, set(soft)?);
                if hard.is_none() && soft.is_none() {
                    return Err("changes nothing: a set of pCPUs for HARD or SOFT, or both".into());
                }
                let vcpus = match vcpu {
                    None => 0..n,
                    Some(v) if *v < n as u64 => *v as usize..*v as usize + 1,
                    Some(v) => return Err(format!("there is no vCPU {v}; {} has vCPUs 0 to {}", dom.name, n - 1)),
                };
                let mut changes = Vec::new();
                for v in vcpus {
                    let now = dom.affinity[v];
                    let (hard, soft) = (hard.unwrap_or(now.hard), soft.unwrap_or(now.soft));
                    let affinity = within(hard, soft, &self.xen.pools[dom.pool]).map_err(|(of_soft, right)| {
                        format!("{:?} should be {right}", if of_soft { soft } else { hard })
                    })?;
                    dom.affinity[v] = affinity;
                    changes.push(What::Affinity(index, v as u16, affinity));
                }
                Ok(changes)
            }
        }
    }
}

impl XenPlan {
    /// What `xl sched-credit`, `xl sched-credit2` and `xl vcpu-list` would list at time `at`.
    pub fn listing(&self, topo: &Topology, guests: &[GuestPlan], at: Time) -> Json {
        let mut state = State::new(self, topo, guests);
        for change in self.timeline.iter().filter(|c| c.at <= at) {
            state.apply(&change.command).expect("the plan has checked it");
        }
        let mut domains: Vec<&Dom> = state.domains.iter().collect();
        domains.sort_by_key(|d| d.number);
        let domain = |d: &&Dom| {
            let vcpus = d.affinity.iter().enumerate();
            let vcpus = vcpus.map(
                |(v, a)| json!({ "vcpu": v, "hard": self.words(topo, &a.hard), "soft": self.words(topo, &a.soft) }),
            );
            json!({
                "id": d.number, "name": d.name, "weight": d.params.weight, "cap": d.params.cap,
                "pool": self.pools[d.pool].name, "vcpus": vcpus.collect::<Vec<Json>>(),
            })
        };
        let pool = |(p, t): (&super::PoolPlan, &Tunables)| {
            json!({
                "name": p.name, "cpus": cpus::show(&p.cpus), "tslice_ms": t.tslice / MS,
                "ratelimit_us": t.ratelimit / US, "migration_delay_us": self.features.vcpu_migration_delay_us,
            })
        };
        json!({
            "scheduler": self.scheduler.show(),
            "preset": self.preset,
            "caps": self.scheduler == Scheduler::Credit || self.features.c2_today,
            "pools": std::iter::zip(&self.pools, &state.tunables).map(pool).collect::<Vec<Json>>(),
            "domains": domains.iter().map(domain).collect::<Vec<Json>>(),
        })
    }

    /// A set of pCPUs as `xl vcpu-list` shows it.
    fn words(&self, topo: &Topology, set: &contend_sched::xen::mask::CpuMask) -> String {
        if set.len() == topo.nr_cpus() { "all".into() } else { cpus::show(set) }
    }
}
