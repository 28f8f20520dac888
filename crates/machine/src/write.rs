//! From [`Machine`] to text: complete, so that it depends on no defaults.

use std::fmt::Write;

use contend_platform::CpuId;

use crate::Machine;
use crate::costs::{Arity, Cost, SECTIONS};

pub(crate) fn machine(m: &Machine) -> String {
    let mut out = String::new();
    write_to(m, &mut out).expect("a String takes everything");
    out
}

fn write_to(m: &Machine, out: &mut String) -> std::fmt::Result {
    writeln!(out, "name = {}", quoted(&m.name))?;
    writeln!(out, "description = {}", quoted(&m.description))?;
    writeln!(out, "hz = {}", m.hz)?;
    for key in m.flags.named() {
        writeln!(out, "{key} = true")?;
    }

    let t = &m.topology;
    writeln!(out, "\n[topology]")?;
    if let Some(s) = t.shape() {
        writeln!(out, "nodes = {}", s.nodes)?;
        writeln!(out, "llcs_per_node = {}", s.llcs_per_node)?;
        writeln!(out, "cores_per_llc = {}", s.cores_per_llc)?;
        if let Some(n) = s.cores_per_cluster {
            writeln!(out, "cores_per_cluster = {n}")?;
        }
        writeln!(out, "threads_per_core = {}", s.threads_per_core)?;
        writeln!(out, "numbering = \"{}\"", s.numbering.name())?;
    }
    writeln!(out, "slit = [")?;
    for a in 0..t.nr_nodes() {
        let row: Vec<String> = (0..t.nr_nodes()).map(|b| t.node_distance(a, b).to_string()).collect();
        writeln!(out, "    [{}],", row.join(", "))?;
    }
    writeln!(out, "]")?;
    if !t.kinds().is_empty() {
        writeln!(out, "kinds = [")?;
        for kind in t.kinds() {
            writeln!(out, "    {{ name = {}, cpus = {} }},", quoted(&kind.name), quoted(&kind.cpus))?;
        }
        writeln!(out, "]")?;
    }
    if t.shape().is_none() {
        for cpu in (0..t.nr_cpus()).map(|c| CpuId(c as u16)) {
            writeln!(out, "[[topology.cpu]]")?;
            writeln!(out, "id = {cpu}")?;
            writeln!(out, "core = {}", t.core_of(cpu))?;
            if let Some(cluster) = t.cluster_of(cpu) {
                writeln!(out, "cluster = {cluster}")?;
            }
            writeln!(out, "llc = {}\nnode = {}", t.llc_of(cpu), t.node_of(cpu))?;
        }
    }

    for section in SECTIONS {
        writeln!(out, "\n[{section}]")?;
        for (key, costs) in m.costs.iter().filter(|(k, _)| k.section == *section) {
            if key.arity == Arity::PerKind && costs.is_empty() {
                continue;
            }
            if !key.arity.is_array() {
                for c in costs {
                    writeln!(out, "{} = {}", key.field, cost(c))?;
                }
                continue;
            }
            writeln!(out, "{} = [", key.field)?;
            for c in costs {
                writeln!(out, "    {},", cost(c))?;
            }
            writeln!(out, "]")?;
        }
    }
    Ok(())
}

fn cost(c: &Cost) -> String {
    format!("{{ value = {}, lo = {}, hi = {}, source = {} }}", c.value, c.lo, c.hi, quoted(&c.source))
}

/// A TOML basic string.
fn quoted(s: &str) -> String {
    let mut q = String::with_capacity(s.len() + 2);
    q.push('"');
    for c in s.chars() {
        match c {
            '"' => q.push_str("\\\""),
            '\\' => q.push_str("\\\\"),
            '\n' => q.push_str("\\n"),
            '\t' => q.push_str("\\t"),
            c if c.is_control() => write!(q, "\\u{:04X}", u32::from(c)).expect("a String takes everything"),
            c => q.push(c),
        }
    }
    q.push('"');
    q
}
