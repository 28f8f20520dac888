//! The tables of `docs/workloads.md`, from the list that `contend list workloads` prints.
use std::fmt::Write;

fn main() {
    let mut out = String::new();
    for w in contend_workload::list() {
        writeln!(out, "### {}\n\n{}\n\n| key | default | allowed | meaning |\n|---|---|---|---|", w.name, w.doc)
            .expect("a String");
        for k in w.keys {
            let default = k.default.map_or("must be given".into(), |d| format!("`{d}`"));
            let unit = if k.unit.is_empty() { String::new() } else { format!(" ({})", k.unit) };
            let allowed = k.allowed.replace("a whole number from", "").replace("a number from", "");
            writeln!(out, "| `{}`{unit} | {default} | {} | {} |", k.key, allowed.trim(), k.doc).expect("a String");
        }
        out.push('\n');
    }
    print!("{out}");
}
