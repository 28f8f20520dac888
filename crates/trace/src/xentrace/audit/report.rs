//! What an audit counts.

use std::collections::BTreeMap;

use contend_platform::{CpuId, Time};

/// A kind of decision (`docs/xen-decisions.md`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the table in docs/xen-decisions.md says what each is")]
pub enum Kind {
    Burn,
    Masks,
    Candidate,
    Reset,
    ResetAmount,
    Slice,
    Insert,
    Score,
    Preemptable,
    Tickle,
    QueueLoad,
    VcpuLoad,
    BalanceCheck,
    Balance,
    Moves,
    Pick,
    Weight,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 17] = [
        Self::Burn,
        Self::Masks,
        Self::Candidate,
        Self::Reset,
        Self::ResetAmount,
        Self::Slice,
        Self::Insert,
        Self::Score,
        Self::Preemptable,
        Self::Tickle,
        Self::QueueLoad,
        Self::VcpuLoad,
        Self::BalanceCheck,
        Self::Balance,
        Self::Moves,
        Self::Pick,
        Self::Weight,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Burn => "burn",
            Self::Masks => "masks",
            Self::Candidate => "candidate",
            Self::Reset => "reset",
            Self::ResetAmount => "reset amount",
            Self::Slice => "slice",
            Self::Insert => "insert",
            Self::Score => "score",
            Self::Preemptable => "preemptable",
            Self::Tickle => "tickle",
            Self::QueueLoad => "queue load",
            Self::VcpuLoad => "vcpu load",
            Self::BalanceCheck => "balance check",
            Self::Balance => "balance",
            Self::Moves => "moves",
            Self::Pick => "pick",
            Self::Weight => "weight",
        }
    }
}

/// Decisions of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many there are.
    pub total: u64,
    /// Of these, how many have known inputs.
    pub known: u64,
    /// Of these, how many ours decides the same.
    pub agree: u64,
    /// Why inputs are not known, and how often.
    pub unknown: BTreeMap<&'static str, u64>,
}

/// A decision that ours decides differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its kind.
    pub kind: Kind,
    /// Since the first record, in ns.
    pub ns: Time,
    /// The pCPU that decides.
    pub cpu: CpuId,
    /// The decision's record.
    pub record: String,
    /// Ours, the real one, inputs.
    pub what: String,
}

/// Disagreements that are kept, of each kind.
const CASES_MAX: usize = 100;

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// By kind; a kind that is not there has no decisions.
    pub kinds: BTreeMap<Kind, Tally>,
    /// Disagreements, the first 100 of each kind, in the order of time stamps.
    pub cases: Vec<Case>,
    /// Records left out, since no scheduler has such numbers: damage.
    pub damaged: u64,
}

impl Audit {
    /// All kinds together.
    pub fn sum(&self) -> Tally {
        let mut sum = Tally::default();
        for tally in self.kinds.values() {
            sum.total += tally.total;
            sum.known += tally.known;
            sum.agree += tally.agree;
            tally.unknown.iter().for_each(|(why, count)| *sum.unknown.entry(why).or_default() += count);
        }
        sum
    }

    pub(super) fn count(
        &mut self,
        kind: Kind,
        outcome: Result<Result<(), String>, &'static str>,
        case: impl FnOnce(String) -> Case,
    ) {
        let tally = self.kinds.entry(kind).or_default();
        tally.total += 1;
        match outcome {
            Err(why) => *tally.unknown.entry(why).or_default() += 1,
            Ok(outcome) => {
                tally.known += 1;
                match outcome {
                    Ok(()) => tally.agree += 1,
                    Err(what) => {
                        if tally.known - tally.agree <= CASES_MAX as u64 {
                            self.cases.push(case(what));
                        }
                    }
                }
            }
        }
    }
}
