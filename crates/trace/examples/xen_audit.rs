//! Audits a trace: `xen_audit FILE [d1=512,...] [d1=0-1,d2=2-3]`.
use contend_platform::CpuId;
use contend_trace::xentrace::audit::{Host, audit};
use contend_trace::xentrace::{Clock, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let mut host = Host { clock: Clock::new(2_599_998_000).expect("Hz"), ..Host::default() };
    for part in args.get(2).map_or("", |s| s).split(',').filter(|s| !s.is_empty()) {
        let (d, w) = part.trim_start_matches('d').split_once('=').expect("d=w");
        host.weights.insert(d.parse()?, w.parse()?);
    }
    for part in args.get(3).map_or("", |s| s).split(',').filter(|s| !s.is_empty()) {
        let (d, w) = part.trim_start_matches('d').split_once('=').expect("d=a-b");
        let (a, b) = w.split_once('-').expect("a-b");
        let (a, b): (u16, u16) = (a.parse()?, b.parse()?);
        host.soft.insert(d.parse()?, (a..=b).map(CpuId).collect());
    }
    let out = audit(open(&args[1])?, &host)?;
    let line = |name: &str, t: &contend_trace::xentrace::audit::Tally| {
        println!(
            "{name:14} {:7} {:7} {:7}  {:6.2} % {:7.3} %",
            t.total,
            t.known,
            t.agree,
            100.0 * t.known as f64 / t.total as f64,
            100.0 * t.agree as f64 / t.known.max(1) as f64
        );
        t.unknown.iter().for_each(|(why, n)| println!("      {n:6} {why}"));
    };
    out.kinds.iter().for_each(|(k, t)| line(k.name(), t));
    line("SUM", &out.sum());
    let mut shown = std::collections::BTreeMap::new();
    for c in &out.cases {
        let n = shown.entry(c.kind).or_insert(0);
        *n += 1;
        if *n <= std::env::var("N").map_or(6, |n| n.parse().unwrap()) {
            println!("{:?} {:.9} cpu {} {}\n    {}", c.kind, c.ns as f64 / 1e9, c.cpu.0, c.record, c.what);
        }
    }
    Ok(())
}
