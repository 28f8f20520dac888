//! Sets of pCPUs as `xl` writes them.

use contend_machine::{Topology, ends_of};
use contend_platform::CpuId;
use contend_sched::xen::mask::CpuMask;

/// What may stand for a set of pCPUs.
pub(super) const RIGHT: &str = "pCPUs such as \"0-7\", \"0,2,^1\", \"node:1\" or \"all\"";

/// From text: `all`, `0-7`, `0,2`, `node:1`, `nodes:0-1`, with commas between; `^` takes away again.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str, topo: &Topology) -> Result<CpuMask, String> {
    let all = CpuMask::first_n(topo.nr_cpus());
    let mut set = if text.trim_start().starts_with('^') { all } else { CpuMask::NONE };
    for part in text.split(',') {
        let part = part.trim();
        let (taken, what) = part.strip_prefix('^').map_or((false, part), |rest| (true, rest));
        let cpus = if what == "all" {
            all
        } else if let Some(nodes) = what.strip_prefix("node:").or(what.strip_prefix("nodes:")) {
            let (from, to) = range(nodes, topo.nr_nodes(), "node")?;
            (from..=to).flat_map(|n| topo.node_cpus(n)).copied().collect()
        } else {
            let (from, to) = range(what, topo.nr_cpus(), "pCPU")?;
            (from..=to).map(|c| CpuId(c as u16)).collect()
        };
        set = if taken { set - cpus } else { set | cpus };
    }
    if set.is_empty() {
        return Err(format!("{RIGHT}: this is none"));
    }
    Ok(set)
}

/// `3` or `0-7`, each below `end`.
fn range(text: &str, end: usize, of: &str) -> Result<(usize, usize), String> {
    match ends_of(text) {
        Some((from, to)) if from <= to && to < end => Ok((from, to)),
        Some((_, to)) if to >= end => Err(format!("{RIGHT}, and the last {of} of this machine is {}", end - 1)),
        _ => Err(RIGHT.into()),
    }
}

/// As text that [`parse`] takes.
pub fn show(set: &CpuMask) -> String {
    format!("{set:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Machine;

    #[test]
    fn sets_are_read_and_shown() {
        let topo = Machine::load("xen-16pcpu-2node").expect("shipped").topology;
        for (text, shown) in [
            ("all", "0-15"),
            ("0-7", "0-7"),
            ("0,2, 4", "0,2,4"),
            ("node:1", "8-15"),
            ("nodes:0-1", "0-15"),
            ("0-7,^3", "0-2,4-7"),
            ("^0", "1-15"),
            ("all,^node:0", "8-15"),
        ] {
            let set = parse(text, &topo).expect(text);
            assert_eq!(show(&set), shown, "{text}");
            assert_eq!(parse(shown, &topo), Ok(set));
        }
        for wrong in ["", "16", "0-16", "node:2", "3-1", "x", "0,,1", "^all", "-1", "0,^0"] {
            assert!(parse(wrong, &topo).is_err(), "{wrong}");
        }
    }
}
