//! What a table `[[guest]]` says of a domain: weight, cap, affinities, cpupool, memory.

use contend_machine::Topology;
use contend_sched::xen::contract::DomParams;
use contend_sched::xen::features::{Scheduler, XenFeatures};
use contend_sched::xen::mask::CpuMask;
use contend_sched::xen::units::VcpuAffinity;
use contend_sim::guest::Memory;
use toml::Spanned;
use toml::de::DeValue;

use super::super::source::Source;
use super::super::{Given, Result};
use super::{PoolPlan, XenPlan, cpus};
use crate::error::{At, ScenarioError};
use crate::names::did_you_mean;

/// Largest share of a vCPU's time that waits for memory.
const STALL_PCT_MAX: u64 = 90;

/// The keys.
pub(in super::super) const KEYS: &[&str] =
    &["weight", "cap", "cpus", "cpus_soft", "pool", "memory_node", "memory_stall_pct", "kernel"];

/// Keys with a number as their value.
pub(in super::super) fn is_number(key: &str) -> bool {
    matches!(key, "weight" | "cap" | "memory_node" | "memory_stall_pct")
}

/// What may stand behind a key.
pub(in super::super) fn right_of(key: &str) -> &'static str {
    match key {
        "weight" => "a whole number from 1 to 65535; 256 is usual",
        "cap" => "a whole number: per cent of one pCPU, 0 for no cap",
        "cpus" | "cpus_soft" => {
            "pCPUs such as \"0-7\", \"0,2,^1\", \"node:1\" or \"all\", or a list with such a text for each vCPU"
        }
        "pool" => "the name of a cpupool, a table [[xen.pool]]",
        "memory_node" => "the number of a node",
        "memory_stall_pct" => "a whole number from 0 to 90",
        _ => "true or false",
    }
}

/// Sets of pCPUs: one for all vCPUs, or one each.
type Sets = (Vec<String>, bool);

/// The keys, as they were given.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct DomainKeys {
    weight: Option<Given<u64>>,
    cap: Option<Given<u64>>,
    cpus: Option<Given<Sets>>,
    cpus_soft: Option<Given<Sets>>,
    pool: Option<Given<String>>,
    memory_node: Option<Given<u64>>,
    memory_stall_pct: Option<Given<u64>>,
    kernel: Option<Given<bool>>,
}

/// What a guest is as a domain.
#[derive(Clone, Debug)]
pub struct GuestDomain {
    /// Weight and cap at the start.
    pub params: DomParams,
    /// Its cpupool, by number.
    pub pool: usize,
    /// Affinities by vCPU, hard ones within the pool.
    pub affinity: Vec<VcpuAffinity>,
    /// A kernel runs in it; else the workload's tasks do, one a vCPU.
    pub kernel: bool,
}

impl DomainKeys {
    /// A value that is a list or a truth value; false: the key does not take it.
    pub fn read(&mut self, source: &Source<'_>, key: &str, v: &Spanned<DeValue<'_>>, at: &At) -> Result<bool> {
        match (key, v.get_ref()) {
            ("cpus" | "cpus_soft", DeValue::Array(list)) => {
                let word = |v: &Spanned<DeValue<'_>>| match v.get_ref() {
                    DeValue::String(s) => Ok(s.to_string()),
                    DeValue::Integer(i) if i.radix() == 10 => Ok(i.as_str().to_string()),
                    _ => source.wrong(v, &at.key, right_of(key)),
                };
                let sets = list.iter().map(word).collect::<Result<Vec<String>>>()?;
                let given = Some(Given { at: at.clone(), value: (sets, true) });
                *(if key == "cpus" { &mut self.cpus } else { &mut self.cpus_soft }) = given;
                Ok(true)
            }
            ("kernel", DeValue::Boolean(b)) => {
                self.kernel = Some(Given { at: at.clone(), value: *b });
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// A word or number; false: the key does not take it.
    pub fn put(&mut self, key: &str, text: &str, at: &At) -> bool {
        let number = |min: u64, max: u64| text.replace('_', "").parse().ok().filter(|n| (min..=max).contains(n));
        let count = |n| Given { at: at.clone(), value: n };
        let sets = || Given { at: at.clone(), value: (vec![text.to_string()], false) };
        let done = match key {
            "weight" => number(1, 65_535).map(|n| self.weight = Some(count(n))),
            "cap" => number(0, 65_535).map(|n| self.cap = Some(count(n))),
            "cpus" => {
                self.cpus = Some(sets());
                Some(())
            }
            "cpus_soft" => {
                self.cpus_soft = Some(sets());
                Some(())
            }
            "pool" => {
                self.pool = Some(Given { at: at.clone(), value: text.into() });
                Some(())
            }
            "memory_node" => number(0, u64::from(u16::MAX)).map(|n| self.memory_node = Some(count(n))),
            "memory_stall_pct" => number(0, STALL_PCT_MAX).map(|n| self.memory_stall_pct = Some(count(n))),
            "kernel" => text.parse().ok().map(|b| self.kernel = Some(Given { at: at.clone(), value: b })),
            _ => None,
        };
        done.is_some()
    }

    /// Has the domain a kernel?
    pub fn kernel(&self) -> bool {
        self.kernel.as_ref().is_none_or(|k| k.value)
    }

    /// A key that was given and that only domains have.
    pub fn first(&self) -> Option<&At> {
        let numbers = [&self.weight, &self.cap].into_iter().flatten().map(|g| &g.at);
        let sets = [&self.cpus, &self.cpus_soft].into_iter().flatten().map(|g| &g.at);
        let others = self.pool.iter().map(|g| &g.at).chain(self.kernel.iter().map(|g| &g.at));
        numbers.chain(sets).chain(others).min_by_key(|at| at.line)
    }

    /// Everything looked up, for a domain of `vcpus` that its table at `table` describes.
    pub fn plan(&self, xen: &XenPlan, topo: &Topology, vcpus: usize, table: &At) -> Result<GuestDomain> {
        let wrong = |at: &At, found: String, right: String| ScenarioError::Value { at: at.clone(), found, right };
        let pool = match &self.pool {
            None if xen.pools.len() == 1 => 0,
            None => {
                let at = At { key: format!("{}.pool", table.key), ..table.clone() };
                let right = format!("write pool = \"...\", one of {}", names(&xen.pools));
                return Err(ScenarioError::MissingKey { at, right });
            }
            Some(given) => xen.pools.iter().position(|p| p.name == given.value).ok_or_else(|| {
                let known = xen.pools.iter().map(|p| p.name.as_str());
                let right = did_you_mean(&given.value, known, format!("one of {}", names(&xen.pools)));
                wrong(&given.at, format!("\"{}\"", given.value), right)
            })?,
        };
        let of_pool = xen.pools[pool].cpus;
        let all = CpuMask::first_n(topo.nr_cpus());
        let hard = sets(self.cpus.as_ref(), topo, vcpus, all)?;
        let soft = sets(self.cpus_soft.as_ref(), topo, vcpus, all)?;
        let mut affinity = Vec::with_capacity(vcpus);
        for (hard, soft) in std::iter::zip(hard, soft) {
            let at = |given: &Option<Given<Sets>>| given.as_ref().map_or(table, |g| &g.at).clone();
            affinity.push(within(hard, soft, &xen.pools[pool]).map_err(|(of_soft, right)| {
                let (at, set) = if of_soft { (at(&self.cpus_soft), soft) } else { (at(&self.cpus), hard) };
                ScenarioError::Value { at, found: format!("\"{set:?}\""), right }
            })?);
        }
        let cap = self.cap.as_ref().map_or(0, |c| c.value);
        if let Some(given) = &self.cap {
            check_cap(given.value, vcpus, xen.scheduler, &xen.features)
                .map_err(|right| wrong(&given.at, given.value.to_string(), right))?;
        }
        debug_assert!(affinity.iter().all(|a| a.hard.is_subset(&of_pool)), "hard affinity is within the pool");
        Ok(GuestDomain {
            params: DomParams { weight: self.weight.as_ref().map_or(256, |w| w.value as u16), cap: cap as u16 },
            pool,
            affinity,
            kernel: self.kernel(),
        })
    }

    /// Where the memory of a guest lies, on Xen or not.
    pub fn memory(&self, topo: &Topology, table: &At) -> Result<Option<Memory>> {
        let wrong = |at: &At, found: String, right: String| Err(ScenarioError::Value { at: at.clone(), found, right });
        let (node, stall) = match (&self.memory_node, &self.memory_stall_pct) {
            (Some(node), Some(stall)) => (node, stall),
            (Some(_), None) => {
                let at = At { key: format!("{}.memory_stall_pct", table.key), ..table.clone() };
                let right = "write memory_stall_pct = N: how much of its computing waits for memory, 0 to 90".into();
                return Err(ScenarioError::MissingKey { at, right });
            }
            // An override is for all guests, with memory on a node or not.
            (None, Some(stall)) if stall.at.file != "--set" => {
                let right = "with memory_node, the node that it waits for".to_string();
                return wrong(&stall.at, format!("{} without memory_node", stall.value), right);
            }
            (None, _) => return Ok(None),
        };
        if node.value >= topo.nr_nodes() as u64 {
            let right = format!("a node of this machine, from 0 to {}", topo.nr_nodes() - 1);
            return wrong(&node.at, node.value.to_string(), right);
        }
        if !self.kernel() {
            let right = "left out: kernel = false, and tasks without a kernel compute as fast on all nodes".into();
            return wrong(&node.at, node.value.to_string(), right);
        }
        Ok(Some(Memory { node: node.value as usize, stall_pct: stall.value as u32 }))
    }
}

/// The pools' names.
pub(super) fn names(pools: &[PoolPlan]) -> String {
    pools.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// One set a vCPU.
fn sets(given: Option<&Given<Sets>>, topo: &Topology, vcpus: usize, all: CpuMask) -> Result<Vec<CpuMask>> {
    let Some(Given { at, value: (texts, each) }) = given else { return Ok(vec![all; vcpus]) };
    if *each && texts.len() != vcpus {
        let found = format!("a list of {}", texts.len());
        let right = format!("a list of {vcpus}, one for each vCPU, or one text for all");
        return Err(ScenarioError::Value { at: at.clone(), found, right });
    }
    let one = |text: &String| {
        let wrong = |right| ScenarioError::Value { at: at.clone(), found: format!("\"{text}\""), right };
        cpus::parse(text, topo).map_err(wrong)
    };
    let sets = texts.iter().map(one).collect::<Result<Vec<CpuMask>>>()?;
    Ok(if *each { sets } else { vec![sets[0]; vcpus] })
}

/// Affinities of a vCPU of `pool`, the hard one within it. The error: is soft affinity to blame, and what would be right.
pub(super) fn within(
    hard: CpuMask,
    soft: CpuMask,
    pool: &PoolPlan,
) -> std::result::Result<VcpuAffinity, (bool, String)> {
    let hard = hard & pool.cpus;
    if hard.is_empty() {
        return Err((false, format!("a set with a pCPU of its cpupool: {} has {:?}", pool.name, pool.cpus)));
    }
    if !soft.intersects(&hard) {
        return Err((true, format!("a set that its hard affinity meets: that is {hard:?}")));
    }
    Ok(VcpuAffinity { hard, soft })
}

/// Can a domain of `vcpus` have this cap on this host?
pub(crate) fn check_cap(
    cap: u64,
    vcpus: usize,
    scheduler: Scheduler,
    features: &XenFeatures,
) -> std::result::Result<(), String> {
    match scheduler {
        _ if cap == 0 => {}
        Scheduler::Credit2 if !features.c2_today => {
            let why = "0: Credit2 has no caps before xen.c2_today (preset upstream-today)";
            return Err(why.into());
        }
        Scheduler::RoundRobin => return Err("0: round-robin knows no caps".into()),
        _ => {}
    }
    let max = 100 * vcpus as u64;
    if cap > max { Err(format!("at most {max}, 100 for each of its vCPUs")) } else { Ok(()) }
}

impl GuestDomain {
    /// Puts the keys into a table.
    pub(in super::super) fn put_toml(
        &self,
        xen: &XenPlan,
        put: &mut dyn FnMut(&str, toml::Value) -> Option<toml::Value>,
    ) {
        put("weight", i64::from(self.params.weight).into());
        put("cap", i64::from(self.params.cap).into());
        let set = |of: &dyn Fn(&VcpuAffinity) -> CpuMask| -> toml::Value {
            let sets: Vec<String> = self.affinity.iter().map(|a| cpus::show(&of(a))).collect();
            match sets.first() {
                Some(first) if sets.iter().all(|s| s == first) => first.as_str().into(),
                _ => toml::Value::Array(sets.into_iter().map(toml::Value::from).collect()),
            }
        };
        put("cpus", set(&|a| a.hard));
        put("cpus_soft", set(&|a| a.soft));
        put("pool", xen.pools[self.pool].name.as_str().into());
        if !self.kernel {
            put("kernel", false.into());
        }
    }
}
