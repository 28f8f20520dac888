//! Mistakes, where they can be made, and tables of what catches them.

use crate::{Explored, Failure};
use contend_platform::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex};

/// An operation of the platform.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Op {
    /// Atomic load.
    Load,
    /// Atomic store.
    Store,
    /// Exchange, fetch-and-something.
    ReadModifyWrite,
    /// Compare-and-exchange.
    CompareExchange,
    /// Fence.
    Fence,
    /// `wait_until`.
    Wait,
    /// `halt`.
    Halt,
    /// `kick`.
    Kick,
}

/// A place in the source where a platform operation is called.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Site {
    /// File, from the workspace's root.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The operation.
    pub op: Op,
    /// Its ordering, as text (`Ordering` itself is not ordered).
    pub order: String,
}

impl Site {
    /// The text of the source line.
    pub fn source(&self) -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_string() + &self.file;
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        text.lines().nth(self.line as usize - 1).unwrap_or_default().trim().to_string()
    }
    /// Is that the place?
    pub(super) fn is(&self, at: &Location<'_>) -> bool {
        self.line == at.line() && self.column == at.column() && self.file == at.file()
    }
}

/// One mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// The operation has this ordering instead.
    Order(Ordering),
    /// The store, addition, fence or kick is left out; the wait returns at once, whatever it finds.
    Skip,
    /// The compare-and-exchange stores without comparing, the halt sleeps without comparing.
    Blind,
    /// The CPU does not look at what the load or read-modify-write returns, and goes on with what it last saw in that word.
    Stale,
    /// The operation takes effect only after the CPU has passed the given place; in any case before the CPU touches the same
    /// word again, and when it ends.
    Late(Box<Site>),
}

/// One mistake at one site.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    /// Where.
    pub site: Site,
    /// What.
    pub mistake: Mistake,
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mistake {
            Mistake::Order(order) => write!(f, "{:?} instead of {}", order, self.site.order),
            Mistake::Skip => write!(f, "left out"),
            Mistake::Blind => write!(f, "does not compare"),
            Mistake::Stale => write!(f, "what it finds is not looked at"),
            Mistake::Late(site) => write!(f, "after: {}", site.source()),
        }
    }
}

impl Mutant {
    /// All mistakes at `site` that need no second place and are seldom harmless.
    pub fn at(site: &Site) -> Vec<Mutant> {
        use Ordering::{AcqRel, Acquire, Relaxed, Release};
        let order = site.order.as_str();
        let weaker: &[Ordering] = match (site.op, order) {
            (Op::Fence, "SeqCst") => &[AcqRel],
            (Op::Fence | Op::Halt | Op::Kick, _) | (_, "Relaxed") => &[],
            (Op::ReadModifyWrite | Op::CompareExchange, "AcqRel") => &[Acquire, Release],
            _ => &[Relaxed],
        };
        let mut mistakes: Vec<Mistake> = weaker.iter().map(|&o| Mistake::Order(o)).collect();
        if matches!(site.op, Op::Store | Op::ReadModifyWrite | Op::Fence | Op::Wait | Op::Kick) {
            mistakes.push(Mistake::Skip);
        }
        if matches!(site.op, Op::CompareExchange | Op::Halt) {
            mistakes.push(Mistake::Blind);
        }
        mistakes.into_iter().map(|mistake| Mutant { site: site.clone(), mistake }).collect()
    }
}

/// The sites that a run has passed.
#[derive(Clone, Default, Debug)]
pub struct Log(Arc<Mutex<BTreeSet<Site>>>);

impl Log {
    /// The sites in files whose name ends so, in source order.
    pub fn sites(&self, file: &str) -> Vec<Site> {
        self.0.lock().expect("no panic inside").iter().filter(|s| s.file.ends_with(file)).cloned().collect()
    }
    /// The site that `place` names.
    pub fn site(&self, place: Place) -> Site {
        let mut found: Vec<Site> =
            self.sites(place.file).into_iter().filter(|s| s.source().contains(place.text)).collect();
        assert!(place.nth.is_some() || found.len() == 1, "{place:?} names {found:?}");
        found.swap_remove(place.nth.unwrap_or(0))
    }
    pub(super) fn passed(&self, at: &Location<'_>, op: Op, order: Option<Ordering>) {
        let order = order.map_or(String::new(), |o| format!("{o:?}"));
        let (file, line, column) = (at.file().to_string(), at.line(), at.column());
        self.0.lock().expect("no panic inside").insert(Site { file, line, column, op, order });
    }
}

/// One check: its name, and how it runs with a mutant.
pub type Check = (&'static str, fn(Option<Arc<Mutant>>) -> Result<Explored, Failure>);

/// Which check catches the mutant first, and as what.
fn verdict(mutant: &Mutant, checks: &[Check]) -> String {
    let shared = Arc::new(mutant.clone());
    let caught = checks.iter().find_map(|(name, check)| Some((name, check(Some(Arc::clone(&shared))).err()?)));
    caught.map_or("NOT CAUGHT".into(), |(name, failure)| format!("{:?} ({name})", failure.kind))
}

/// The table of all mutants of the sites logged in `file`: source line, mistake, which check catches it first, as what.
pub fn table(file: &str, log: &Log, checks: &[Check]) -> String {
    let sites = log.sites(file);
    assert!(!sites.is_empty(), "no run passes a place in {file}");
    let row = |mutant: Mutant| format!("{} | {mutant} | {}\n", mutant.site.source(), verdict(&mutant, checks));
    sites.iter().flat_map(Mutant::at).map(row).collect()
}

/// A place named by part of its source line.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The end of the file's name.
    pub file: &'static str,
    /// Part of the line.
    pub text: &'static str,
    /// Which of several, from 0; `None`: there is one.
    pub nth: Option<usize>,
}

/// A mistake of logic by name.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// What people call it.
    pub name: &'static str,
    /// Where.
    pub at: Place,
    /// What happens there.
    pub what: What,
}

/// A [`Mistake`] whose other place, if it has one, is named as well.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// Left out.
    Skip,
    /// Does not compare.
    Blind,
    /// Does not look at what it finds.
    Stale,
    /// Takes effect after that place.
    After(Place),
}

/// The table of these mistakes of logic: name, source line, mistake, which check catches it first, as what.
pub fn logic_table(log: &Log, named: &[Named], checks: &[Check]) -> String {
    let row = |n: &Named| {
        let mistake = match n.what {
            What::Skip => Mistake::Skip,
            What::Blind => Mistake::Blind,
            What::Stale => Mistake::Stale,
            What::After(place) => Mistake::Late(Box::new(log.site(place))),
        };
        let mutant = Mutant { site: log.site(n.at), mistake };
        format!("{} | {} | {mutant} | {}\n", n.name, mutant.site.source(), verdict(&mutant, checks))
    };
    named.iter().map(row).collect()
}
