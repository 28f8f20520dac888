//! Credit2's decisions in a binary trace, and what Credit2 as it is here decides with the same inputs.
//!
//! Which decisions there are, when their inputs count as known and what came out is in `docs/xen-decisions.md`. State is
//! kept as the records tell it ([`state`]); at each decision the policy's own functions are asked
//! (`contend_sched::xen::credit2`), and the answer is compared with the record. What the record says is then what the
//! state holds: errors of ours do not add up.
//!
//! A pass of the scheduler is a row of records of one pCPU between which no other record of that pCPU stands, so what
//! follows on the same pCPU is looked up ahead of time: which pCPU a vCPU was told to, how long one had run. Inputs are
//! those that the state holds when the decision's own record comes in the order of time stamps.

mod clock;
mod load;
mod pass;
mod report;
mod state;
mod tickle;

use std::collections::{BTreeMap, BTreeSet};

use contend_machine::Topology;
use contend_platform::CpuId;
use contend_sched::xen::credit2::state::Conf;
use contend_sched::xen::features::XenFeatures;
use contend_sched::xen::mask::{CpuMask, PCPUS_MAX};

use super::layout::{Field, fields};
use super::{Clock, Reader, XenEvent as E};
use crate::error::TraceError;
use clock::{Clocks, Stamp};
pub use report::{Audit, Case, Kind, Tally};
use state::{Place, State};

/// What is known of the recorded host, and not in the trace.
#[derive(Clone, Debug)]
pub struct Host {
    /// Ticks of the TSC.
    pub clock: Clock,
    /// Weights of domains; 256 of those not named.
    pub weights: BTreeMap<u16, u16>,
    /// Soft affinity of domains' vCPUs; all pCPUs for those not named.
    pub soft: BTreeMap<u16, CpuMask>,
    /// The rate limit, in us; 0: none.
    pub ratelimit_us: u64,
    /// The pCPUs; `None`: as many as there are, each a core of its own.
    pub topology: Option<Topology>,
    /// The policy that is asked.
    pub features: XenFeatures,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            clock: Clock::default(),
            weights: BTreeMap::new(),
            soft: BTreeMap::new(),
            ratelimit_us: 1000,
            topology: None,
            features: XenFeatures::preset("upstream-today").expect("a preset"),
        }
    }
}

/// A record, with where the next of its pCPU is.
#[derive(Clone, Copy, Debug)]
struct Rec {
    /// Since the first record.
    ns: i64,
    cpu: usize,
    next: Option<u32>,
    event: E,
}

/// Records between two questions whether to go on.
const LOOK: usize = 1 << 14;

/// The longest trace that is believed, in ns: a day.
pub const LENGTH_MAX: u64 = 86_400_000_000_000;

/// Whether the numbers of a record can be: what is damaged is not reckoned with.
fn sound(event: &E) -> bool {
    let credit = |credit: i32| credit.unsigned_abs() <= 1 << 30;
    // Of 2^18 for each vCPU.
    let load = |load: u64, vcpus: u64| load <= vcpus << 18;
    let all = 1 << 12;
    let rq = |rq: u16| usize::from(rq) < PCPUS_MAX;
    let cpu = |cpu: CpuId| cpu.index() < PCPUS_MAX;
    match *event {
        E::Credit2CreditBurn { credit: c, .. } | E::Credit2TickleCheck { credit: c, .. } => credit(c),
        E::Credit2CreditReset { start, end, .. } => credit(start) && credit(end),
        E::Credit2TickleNew { cpu: on, credit: c, .. } => cpu(on) && credit(c),
        E::Credit2RunqCandidate { tickled, credit: c, .. } => tickled.is_none_or(cpu) && credit(c),
        E::Credit2Tickle { cpu: on } => cpu(on),
        E::Credit2UpdateVcpuLoad { avgload, .. } => load(avgload, 2),
        E::Credit2UpdateRunqLoad { rq: of, avgload, b_avgload, load: now, .. } => {
            rq(of) && load(avgload, all) && load(b_avgload, all) && u64::from(now) <= all
        }
        E::Credit2LoadBalance { lavg, oavg, .. } => load(lavg, all) && load(oavg, all),
        E::Credit2RunqMaxWeight { rq: of, weight } => rq(of) && weight > 0,
        E::Credit2Schedule { cpu: on, rq: of, .. } => cpu(on) && rq(of),
        E::Credit2RunqAssign { rq: of, .. } => rq(of),
        E::Credit2Migrate { from, to, .. } => rq(from) && rq(to),
        _ => true,
    }
}

/// Asks all that can be asked.
///
/// The records are held in memory, 64 bytes each. `go_on` is asked now and then; `None`: it said no.
///
/// # Errors
/// Those of reading; [`TraceError::Unfit`] if no record is Credit2's, the host has fewer pCPUs than the trace, or there are more
/// pCPUs or hours than can be, or if what is known of the host is of domains or pCPUs that are not there.
pub fn audit(reader: Reader, host: &Host, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Audit>, TraceError> {
    let path = reader.path().to_path_buf();
    let mut recs: Vec<Rec> = Vec::new();
    let mut last: Vec<Option<usize>> = Vec::new();
    let (mut first_tsc, mut length, mut damaged) = (None, 0, 0);
    for record in reader.in_time_order() {
        let record = record?;
        let first = *first_tsc.get_or_insert(record.tsc);
        let cpu = record.cpu.index();
        if !sound(&record.event) {
            damaged += 1;
            continue;
        }
        if last.len() <= cpu {
            last.resize(cpu + 1, None);
        }
        if let Some(before) = last[cpu].replace(recs.len()) {
            recs[before].next = Some(recs.len() as u32);
        }
        let ns = host.clock.ns(record.tsc.saturating_sub(first));
        length = length.max(ns);
        recs.push(Rec { ns: ns as i64, cpu, next: None, event: record.event });
        if recs.len().is_multiple_of(LOOK) && !go_on() {
            return Ok(None);
        }
    }
    let wrong = |found: String, right: String| TraceError::Unfit { path: path.clone(), found, right };
    if length > LENGTH_MAX {
        return Err(TraceError::too_long(path, length));
    }
    if last.len() > PCPUS_MAX {
        return Err(wrong(format!("{} pCPUs", last.len()), format!("expected {PCPUS_MAX} at most")));
    }
    let rq_of = queues(&recs, last.len());
    if rq_of.iter().all(Option::is_none) {
        return Err(wrong(
            "no record of Credit2's scheduler".into(),
            "expected a trace of a host under Credit2".into(),
        ));
    }
    let topology = match &host.topology {
        Some(topology) if topology.nr_cpus() < last.len() => {
            let right = format!("expected no more than the machine given has, {}", topology.nr_cpus());
            return Err(wrong(format!("{} pCPUs", last.len()), right));
        }
        Some(topology) => topology.clone(),
        None => contend_machine::Machine::synthetic(&format!("{}c", last.len())).expect("a number of cores").topology,
    };
    if let Some((found, right)) = misplaced(host, &recs, topology.nr_cpus()) {
        return Err(wrong(found, right));
    }
    let mut clocks = Clocks::new(vec![Vec::new(); last.len()]);
    let mut out = Audit::default();
    // Twice: the first time for the clocks.
    for _ in 0..2 {
        let known = std::mem::replace(&mut clocks, Clocks::new(Vec::new())).into_found();
        let mut auditor = Auditor {
            recs: std::mem::take(&mut recs),
            conf: Conf::new(&host.features),
            ratelimit: host.ratelimit_us * 1000,
            state: State::new(host, topology.clone(), rq_of.clone(), Clocks::new(known)),
            before: vec![None; last.len()],
            passes: (0..last.len()).map(|_| None).collect(),
            tickling: vec![None; last.len()],
            loads: vec![load::Recent::default(); last.len()],
            leaving: None,
            out: Audit::default(),
        };
        for at in 0..auditor.recs.len() {
            auditor.step(at);
            if at.is_multiple_of(LOOK) && !go_on() {
                return Ok(None);
            }
        }
        (recs, clocks, out) = (auditor.recs, auditor.state.clocks, Audit { damaged, ..auditor.out });
    }
    Ok(Some(out))
}

/// What is known of a domain that is not in the trace, or names a pCPU that is not there; and what would be right.
fn misplaced(host: &Host, recs: &[Rec], cpus: usize) -> Option<(String, String)> {
    let beyond = |(dom, soft): (&u16, &CpuMask)| {
        let cpu = soft.iter().find(|c| c.index() >= cpus)?;
        Some((format!("pCPU {} in the soft affinity of d{dom}", cpu.0), format!("the host has {cpus}")))
    };
    let named = || host.weights.keys().map(|d| ("weight", d)).chain(host.soft.keys().map(|d| ("soft affinity", d)));
    named().next()?;
    let mut doms = BTreeSet::new();
    for rec in recs {
        fields(&rec.event, |_, field| {
            if let Field::Vcpu(vcpu) = field
                && !vcpu.is_idle()
            {
                doms.insert(vcpu.dom);
            }
        });
    }
    if let Some((what, dom)) = named().find(|(_, dom)| !doms.contains(dom)) {
        let known: Vec<String> = doms.iter().map(|d| format!("d{d}")).collect();
        return Some((format!("no vCPU of d{dom}, whose {what} is given"), format!("it has {}", known.join(", "))));
    }
    host.soft.iter().find_map(beyond)
}

/// The run queue of each pCPU, as its passes tell.
fn queues(recs: &[Rec], cpus: usize) -> Vec<Option<usize>> {
    let mut of = vec![None; cpus];
    for rec in recs {
        if let E::Credit2Schedule { cpu, rq, .. } = rec.event
            && let Some(of) = of.get_mut(cpu.index())
        {
            *of = Some(usize::from(rq));
        }
    }
    of
}

/// What is under way.
struct Auditor {
    recs: Vec<Rec>,
    conf: Conf,
    /// ns.
    ratelimit: u64,
    state: State,
    /// By pCPU: its record before.
    before: Vec<Option<usize>>,
    /// By pCPU: the pass that it is in.
    passes: Vec<Option<pass::Pass>>,
    /// By pCPU: the vCPU that it looks for a pCPU for, the pCPU that it belongs to, its credit.
    tickling: Vec<Option<tickle::Tickling>>,
    loads: Vec<load::Recent>,
    /// A vCPU that is on its way from this run queue to another, and its mean load, which still counts there.
    leaving: Option<(usize, Option<i64>)>,
    out: Audit,
}

impl Auditor {
    /// The records that follow on the same pCPU.
    fn after(&self, at: usize) -> impl Iterator<Item = (usize, &E)> {
        let mut next = self.recs[at].next;
        std::iter::from_fn(move || {
            let at = next? as usize;
            next = self.recs[at].next;
            Some((at, &self.recs[at].event))
        })
    }

    /// The clock of a record's pCPU when it was made, and whether that is right to the ns: that of the pass, if there is one;
    /// reckoned otherwise.
    fn now(&self, at: usize) -> (i64, bool) {
        let Rec { ns, cpu, .. } = self.recs[at];
        if let Some(pass) = &self.passes[cpu] {
            return (pass.now, true);
        }
        // A burn that belongs to the same decision may tell.
        if let E::Credit2TickleNew { .. } = self.recs[at].event
            && let Some((_, E::Credit2CreditBurn { vcpu, delta, .. })) = self.after(at).next()
            && let Some(start) = self.state.peek(*vcpu).and_then(|v| v.start)
            && let Some(now) = self.state.clocks.after(ns, cpu, start, (*delta).into())
        {
            return (now, true);
        }
        (self.state.clocks.now(cpu, ns), false)
    }

    /// How long ago `then` was at a record, at least and at most, in ns.
    fn since(&self, at: usize, then: Stamp) -> Option<(i64, i64)> {
        let (now, exact) = self.now(at);
        let cpu = self.recs[at].cpu;
        let since = self.state.clocks.since(self.recs[at].ns, cpu, now, then)?;
        let slack = if exact && self.state.clocks.exact(then) { 0 } else { clock::SLACK };
        // A clock does not go backwards on its own pCPU.
        let least = if cpu == then.cpu { 0 } else { i64::MIN };
        Some(((since - slack).max(least), (since + slack).max(least)))
    }

    /// Counts a decision: `inputs` or why they are not known; whether ours is the same, and how both are told.
    fn count<T>(
        &mut self,
        kind: Kind,
        at: usize,
        inputs: Result<T, &'static str>,
        compare: impl FnOnce(T) -> Result<(), String>,
    ) {
        let Rec { ns, cpu, event, .. } = self.recs[at];
        let outcome = inputs.map(compare);
        self.out.count(kind, outcome, |what| Case {
            kind,
            ns: ns as u64,
            cpu: CpuId(cpu as u16),
            record: event.to_string(),
            what,
        });
    }

    fn step(&mut self, at: usize) {
        let Rec { cpu, event, .. } = self.recs[at];
        match event {
            E::Credit2Schedule { rq, idle, smt_idle, tickled, .. } => {
                self.begin_pass(at, usize::from(rq), [idle, smt_idle, tickled]);
            }
            E::Credit2CreditBurn { vcpu, credit, delta, budget } => self.burned(at, vcpu, credit, delta, budget),
            E::Credit2RunqCandidate { .. } | E::Credit2Ratelimit { .. } => self.chosen(at),
            E::Credit2CreditReset { vcpu, start, end } => self.reset(at, vcpu, start, end),
            E::Credit2RunqPos { vcpu, pos } => self.inserted(at, vcpu, pos as usize),
            E::Credit2TickleNew { vcpu, cpu, credit } => self.looks_for_cpu(at, vcpu, cpu, credit),
            E::Credit2TickleCheck { vcpu, credit, score } => self.scored(at, vcpu, credit, score),
            E::Credit2Tickle { cpu: target } => self.tickled(cpu, target),
            E::Credit2UpdateRunqLoad { .. } => self.queue_load(at),
            E::Credit2UpdateVcpuLoad { .. } => self.vcpu_load(at),
            E::Credit2LoadCheck { .. } => self.load_checked(at),
            E::Credit2LoadBalance { .. } => self.balanced(at),
            E::Credit2Migrate { vcpu, from, to } => self.migrates(at, vcpu, from.into(), to.into()),
            E::Credit2RunqAssign { vcpu, rq } => self.assigned(vcpu, rq.into()),
            E::Credit2RunqMaxWeight { rq, weight } => self.max_weight(at, rq.into(), weight),
            E::Credit2PickedCpu { .. } => {
                self.count(Kind::Pick, at, Err::<(), _>("which pCPU comes next in turn is not in the records"), |()| {
                    Ok(())
                });
            }
            E::Yield { vcpu } => self.state.vcpu(vcpu).yielded = true,
            _ => {}
        }
        if self.passes[cpu].as_ref().is_some_and(|pass| pass.last == at) {
            self.end_pass(at);
        }
        self.before[cpu] = Some(at);
    }

    fn max_weight(&mut self, at: usize, rq: usize, weight: u16) {
        let Some(queue) = self.state.queues.get(rq) else { return };
        let inputs = queue
            .members_known
            .then(|| self.state.largest_weight(rq))
            .ok_or("not all vCPUs of the run queue have been met");
        self.count(Kind::Weight, at, inputs, |ours| same(ours, weight));
        self.state.queues[rq].max_weight = Some(weight);
    }

    fn inserted(&mut self, at: usize, vcpu: super::VcpuId, pos: usize) {
        let told = self.after(at).next().and_then(|(_, e)| match e {
            E::Credit2TickleNew { vcpu: v, cpu, credit } if *v == vcpu => Some((*cpu, *credit)),
            _ => None,
        });
        let v = self.state.vcpu(vcpu);
        if let Some((cpu, credit)) = told {
            (v.credit, v.cpu) = (Some(credit), Some(cpu));
        }
        let credit = v.credit;
        let Some(rq) = told.and_then(|(cpu, _)| self.state.rq_of(cpu)).or(self.state.vcpu(vcpu).rq) else {
            return self.count(Kind::Insert, at, Err::<(), _>("the run queue is not known"), |()| Ok(()));
        };
        // It has been counted in the load, but is in the list only from now on.
        self.state.place(vcpu, Some(rq), Place::Coming);
        let unit = self.state.unit(vcpu);
        let inputs = self.state.complete(rq).and(credit.ok_or("the credit is not known"));
        let ours = inputs.map(|credit| {
            let queue = &mut self.state.queues[rq].rq;
            let place = queue.queue(unit, credit);
            queue.unqueue(unit);
            place
        });
        self.count(Kind::Insert, at, ours, |ours| same(ours, pos));
        self.state.insert(vcpu, rq, pos);
    }
}

/// Compares ours with the real one.
fn same<T: PartialEq + std::fmt::Debug>(ours: T, real: T) -> Result<(), String> {
    if ours == real { Ok(()) } else { Err(format!("ours {ours:?}, real {real:?}")) }
}
