//! Events as `xenalyze --dump-all` of Xen 4.17 prints them, without time and pCPU.
//!
//! Two differences: durations have three digits after the point (`xenalyze` prints 290021 ns as `290.21us`), and an
//! event that it prints nothing for is printed by its number.

use std::fmt;

use super::{VcpuId, XenEvent as E};

impl fmt::Display for VcpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}v{}", self.dom, self.vcpu)
    }
}

/// ns as us.
struct Us(u32);

impl fmt::Display for Us {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}us", self.0 / 1000, self.0 % 1000)
    }
}

/// `, next slice ...`, or nothing.
struct Slice(Option<u32>);

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |ns| write!(f, ", next slice {}", Us(ns)))
    }
}

/// A load in percent and as it is counted.
struct Load(u64, u8);

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = 2f64.powi(i32::from(self.1));
        write!(f, "{:.3}% ({})", self.0 as f64 * 100.0 / one, self.0)
    }
}

/// `yes` or `no`.
fn pick(flag: bool, yes: &'static str, no: &'static str) -> &'static str {
    if flag { yes } else { no }
}

impl fmt::Display for E {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match *self {
            E::Runstate { vcpu, old, new } => write!(f, "{name} {vcpu} {}->{}", old.name(), new.name()),
            E::RunstateContinue { vcpu } => write!(f, "{name} {vcpu} running->running"),

            E::DomainAdd { dom } | E::DomainRemove { dom } | E::Adjust { dom } => write!(f, "{name} d{dom}"),
            E::Sleep { vcpu } | E::Wake { vcpu } | E::Yield { vcpu } | E::Block { vcpu } => write!(f, "{name} {vcpu}"),
            E::Shutdown { vcpu, reason } | E::ShutdownCode { vcpu, reason } => {
                write!(f, "{name} {vcpu}, reason = {reason}")
            }
            E::Switch { prev, next } => write!(f, "sched_switch prev {prev} next {next}"),
            E::SwitchInfPrev { vcpu, ran_ns } => write!(f, "sched_switch prev {vcpu}, run for {}", Us(ran_ns)),
            E::SwitchInfNext { vcpu, waited_ns, slice_ns } => {
                write!(f, "sched_switch next {vcpu}, was runnable for {}{}", Us(waited_ns), Slice(slice_ns))
            }
            E::SwitchInfCont { vcpu, ran_ns, slice_ns } => {
                write!(f, "sched_switch continue {vcpu}, run for {}{}", Us(ran_ns), Slice(slice_ns))
            }

            E::Credit1Tasklet | E::Credit2Tasklet | E::Credit2UpdateLoad | E::RtdsTasklet => f.write_str(name),
            E::Credit1AcctStart { vcpu, active } | E::Credit1AcctStop { vcpu, active } => {
                write!(f, "{name} {vcpu}, active_vcpus {active}")
            }
            E::Credit1Stolen { peer, vcpu } => write!(f, "{name} {vcpu} from cpu {}", peer.0),
            E::Credit1PickedCpu { vcpu, cpu } => write!(f, "{name} {} for {vcpu}", cpu.0),
            E::Credit1Tickle { cpu } => write!(f, "{name}, cpu {}", cpu.0),
            E::Credit1Boost { vcpu } => write!(f, "csched: {vcpu} boosted"),
            E::Credit1Unboost { vcpu } => write!(f, "csched: {vcpu} unboosted"),
            E::Credit1Schedule { cpu, tasklet, idle } => {
                let (tasklet, idle) = (pick(tasklet, ", tasklet scheduled", ""), pick(idle, "idle", "busy"));
                write!(f, "{name} cpu {}{tasklet}, {idle}", cpu.0)
            }
            E::Credit1Ratelimit { vcpu, ran_ns } | E::Credit2Ratelimit { vcpu, ran_ns } => {
                write!(f, "{name}, {vcpu} run only {}", Us(ran_ns))
            }
            E::Credit1StealCheck { peer, checked } => {
                write!(f, "{name} {} {}", pick(checked, "checking", "skipping"), peer.0)
            }

            E::Credit2RunqPos { vcpu, pos } => write!(f, "{name} {vcpu}, position {pos}"),
            E::Credit2CreditBurn { vcpu, credit, budget, delta } => {
                write!(f, "{name} {vcpu}, credit = {credit}")?;
                if let Some(budget) = budget {
                    write!(f, ", budget = {budget}")?;
                }
                write!(f, ", delta = {delta}")
            }
            E::Credit2TickleCheck { vcpu, credit, score } => {
                write!(f, "{name} {vcpu}, credit = {credit}, score = {score}")
            }
            E::Credit2Tickle { cpu } | E::RtdsTickle { cpu } => write!(f, "{name} cpu {}", cpu.0),
            E::Credit2CreditReset { vcpu, start, end } => {
                write!(f, "{name} {vcpu}, credit_start = {start}, credit_end = {end}")
            }
            E::Credit2RunqAssign { vcpu, rq } => write!(f, "{name} {vcpu} on rq# {rq}"),
            E::Credit2UpdateVcpuLoad { vcpu, avgload, shift } => {
                write!(f, "{name} {vcpu}, vcpu_load = {}", Load(avgload, shift))
            }
            E::Credit2UpdateRunqLoad { rq, avgload, b_avgload, load, shift } => {
                let (avg, b_avg) = (Load(avgload, shift), Load(b_avgload, shift));
                write!(f, "{name} rq# {rq}, load = {load}, avgload = {avg}, b_avgload = {b_avg}")
            }
            E::Credit2TickleNew { vcpu, cpu, credit } => {
                write!(f, "{name} {vcpu}, processor = {}, credit = {credit}", cpu.0)
            }
            E::Credit2RunqMaxWeight { rq, weight } => write!(f, "{name} rq# {rq}, max_weight = {weight}"),
            E::Credit2Migrate { vcpu, from, to } => write!(f, "{name} {vcpu} rq# {from} --> rq# {to}"),
            E::Credit2LoadCheck { lrq, orq, delta } => write!(f, "{name} lrq# {lrq}, orq# {orq}, delta = {delta}"),
            E::Credit2LoadBalance { lrq, orq, lavg, oavg } => {
                write!(f, "{name} lrq# {lrq}, avg_load = {lavg} -- orq# {orq}, avg_load = {oavg}")
            }
            E::Credit2PickedCpu { vcpu, rq, cpu, b_avgload: _ } => {
                write!(f, "{name} {vcpu}, rq# {}, cpu {}", rq.unwrap_or(u16::MAX), cpu.0)
            }
            E::Credit2RunqCandidate { vcpu, tickled, credit } => {
                write!(f, "{name} {vcpu}, credit = {credit}, ")?;
                match tickled {
                    Some(cpu) => write!(f, "cpu {} was tickled", cpu.0),
                    None => f.write_str("no cpu was tickled"),
                }
            }
            E::Credit2Schedule { cpu, rq, tasklet, idle, smt_idle, tickled } => {
                // Of the core it speaks only where the pCPU idles.
                let idle = match (idle, smt_idle) {
                    (false, _) => "busy",
                    (true, false) => "idle, SMT busy",
                    (true, true) => "idle, SMT idle",
                };
                let tasklet = pick(tasklet, ", tasklet scheduled", "");
                write!(
                    f,
                    "{name} cpu {}, rq# {rq}{tasklet}, {idle}, {}",
                    cpu.0,
                    pick(tickled, "tickled", "not tickled")
                )
            }
            E::Credit2CandidateCheck { vcpu } => write!(f, "{name} {vcpu}"),

            E::RtdsRunqPick { vcpu, deadline, budget } | E::RtdsBudgetReplenish { vcpu, deadline, budget } => {
                write!(f, "{name} {vcpu}, deadline = {deadline}, budget = {budget}")
            }
            E::RtdsBudgetBurn { vcpu, budget, delta } => write!(f, "{name} {vcpu}, budget = {budget}, delta = {delta}"),
            E::RtdsSchedule { cpu, tasklet, idle, tickled } => {
                let (tasklet, idle) = (pick(tasklet, ", tasklet scheduled", ""), pick(idle, "idle", "busy"));
                write!(f, "{name} cpu {}{tasklet}, {idle}, {}", cpu.0, pick(tickled, "tickled", "not tickled"))
            }

            E::Other { id, words } => {
                write!(f, "{id:#07x}")?;
                words.as_slice().iter().try_for_each(|word| write!(f, " {word:#x}"))
            }
        }
    }
}
