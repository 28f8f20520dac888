//! From findings to the text of a machine file: what was found, and `defaults` for the rest.

use std::fmt::Write;

use contend_machine::{Arity, Cost, Flags, Kind, Machine, Numbering, Place, SECTIONS, Shape, keys};

use crate::derive::Found;
use crate::layout::Layout;

/// What stands above the costs.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// How the file came about, a comment.
    pub made: &'a str,
    pub name: &'a str,
    pub description: &'a str,
    pub hz: u32,
    pub flags: Flags,
    pub layout: &'a Layout,
}

/// A file with the costs that were found; `defaults` names the sections that lack some.
pub fn machine(head: &Head<'_>, costs: &[Found]) -> String {
    let of = |section: &str, field: &str| -> Vec<&Cost> {
        let all = costs.iter().chain(&head.layout.capacity);
        all.filter(|f| f.section == section && f.field == field).map(|f| &f.cost).collect()
    };
    let lacks = |section: &&&str| {
        keys().filter(|k| k.section == **section).any(|k| {
            let needed = match k.arity {
                Arity::PerRemote => head.layout.slit.len() > 1,
                Arity::IfClusters => head.layout.places.iter().any(|p| p.cluster.is_some()),
                Arity::One | Arity::PerThread => true,
                Arity::PerKind => !head.layout.kinds.is_empty(),
            };
            needed && of(k.section, k.field).is_empty()
        })
    };
    let defaults: Vec<String> = SECTIONS.iter().filter(lacks).map(|s| quoted(s)).collect();

    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    line(head.made);
    for note in &head.layout.notes {
        line(&format!("# Note: {}.", note.replace(|c: char| c.is_control(), " ")));
    }
    line(&format!("name = {}", quoted(head.name)));
    line(&format!("description = {}", quoted(head.description)));
    line(&format!("hz = {}", head.hz));
    for flag in head.flags.named() {
        line(&format!("{flag} = true"));
    }
    line(&format!("defaults = [{}]", defaults.join(", ")));
    topology(&mut out, head.layout);
    for section in SECTIONS {
        let found: Vec<_> = keys().filter(|k| k.section == *section && !of(k.section, k.field).is_empty()).collect();
        if !found.is_empty() {
            write!(out, "\n[{section}]\n").expect("a String takes everything");
        }
        for key in found {
            let entries = of(key.section, key.field);
            let text = if key.arity.is_array() {
                format!("[\n{}]", entries.iter().map(|c| format!("    {},\n", cost(c))).collect::<String>())
            } else {
                cost(entries[0])
            };
            writeln!(out, "{} = {text}", key.field).expect("a String takes everything");
        }
    }
    out
}

fn topology(out: &mut String, layout: &Layout) {
    out.push_str("\n[topology]\n");
    let shape = regular(layout);
    if let Some(s) = shape {
        out.push_str(&keys_of(s));
    }
    if layout.slit.len() > 1 {
        let row = |r: &Vec<u32>| format!("    [{}],\n", r.iter().map(u32::to_string).collect::<Vec<_>>().join(", "));
        out.push_str(&format!("slit = [\n{}]\n", layout.slit.iter().map(row).collect::<String>()));
    }
    if !layout.kinds.is_empty() {
        let kind = |k: &Kind| format!("    {{ name = {}, cpus = {} }},\n", quoted(&k.name), quoted(&k.cpus));
        out.push_str(&format!("kinds = [\n{}]\n", layout.kinds.iter().map(kind).collect::<String>()));
    }
    if shape.is_none() {
        for (id, Place { core, cluster, llc, node }) in layout.places.iter().enumerate() {
            let cluster = cluster.map_or_else(String::new, |c| format!("cluster = {c}\n"));
            out.push_str(&format!("[[topology.cpu]]\nid = {id}\ncore = {core}\n{cluster}llc = {llc}\nnode = {node}\n"));
        }
    }
}

/// A shape as a machine file has it.
fn keys_of(shape: Shape) -> String {
    let Shape { nodes, llcs_per_node, cores_per_llc, cores_per_cluster, threads_per_core, numbering } = shape;
    let cluster = cores_per_cluster.map_or_else(String::new, |n| format!("cores_per_cluster = {n}\n"));
    format!(
        "nodes = {nodes}\nllcs_per_node = {llcs_per_node}\ncores_per_llc = {cores_per_llc}\n{cluster}\
         threads_per_core = {threads_per_core}\nnumbering = \"{}\"\n",
        numbering.name()
    )
}

/// The shape of a machine whose parts are all alike and numbered in one of the usual ways.
fn regular(layout: &Layout) -> Option<Shape> {
    let count = |of: &dyn Fn(&Place) -> usize| layout.places.iter().map(of).max().map_or(0, |m| m + 1);
    let (nodes, llcs, cores) = (count(&|p| p.node), count(&|p| p.llc), count(&|p| p.core));
    let clusters = layout.places.iter().filter_map(|p| p.cluster).max().map(|m| m + 1);
    let (cpus, divides) = (layout.places.len(), |a: usize, b: usize| b > 0 && a.is_multiple_of(b));
    let divided = clusters.is_none_or(|clusters| divides(clusters, llcs) && divides(cores, clusters));
    if !(divides(llcs, nodes) && divides(cores, llcs) && divides(cpus, cores) && divided) {
        return None;
    }
    [Numbering::CoresFirst, Numbering::ThreadsFirst].into_iter().find_map(|numbering| {
        let shape = Shape {
            nodes,
            llcs_per_node: llcs / nodes,
            cores_per_llc: cores / llcs,
            cores_per_cluster: clusters.map(|clusters| cores / clusters),
            threads_per_core: cpus / cores,
            numbering,
        };
        // The numbering is the machine crate's to know: ask it.
        let text = format!("name = \"shape\"\ndefaults = {SECTIONS:?}\n[topology]\n{}", keys_of(shape));
        let made = Machine::parse(&text, "shape").ok()?.topology;
        let same = layout.places.iter().enumerate().all(|(cpu, p)| {
            let cpu = contend_platform::CpuId(cpu as u16);
            (made.core_of(cpu), made.cluster_of(cpu), made.llc_of(cpu), made.node_of(cpu))
                == (p.core, p.cluster, p.llc, p.node)
        });
        same.then_some(shape)
    })
}

fn cost(c: &Cost) -> String {
    format!("{{ value = {}, lo = {}, hi = {}, source = {} }}", c.value, c.lo, c.hi, quoted(&c.source))
}

/// A TOML string.
fn quoted(s: &str) -> String {
    toml::Value::from(s).to_string()
}
