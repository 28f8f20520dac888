//! Prints how well a recording's replay matches it: `validate RECORDING [MACHINE [POLICY]] [KEY=VALUE]...`.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut s = contend::Scenario::from_path(std::path::Path::new(&args.next().ok_or("name a recording")?))?;
    let mut n = 0;
    for a in args {
        if let Some((k, v)) = a.split_once('=') {
            s.set(k, v)?;
        } else if n == 0 {
            s.set_machine(&a);
            n = 1;
        } else {
            s.set_policy(&a);
        }
    }
    let v = contend::validate::validate(&s.plan()?, &mut |_| true)?;
    println!("{}", v.report);
    let line = |name: &str, p: &contend::validate::Pair| {
        for (which, s) in [("rec", &p.recorded), ("sim", &p.simulated)] {
            let l = &s.wakeup_latency_us;
            println!(
                "{name:16} {which} {:.4} s {:7} switches {:9.0}/s {:6} preempted {:6} moved run {:.4} s; wake {:6} p50 {:7.1} p90 {:8.1} p99 {:9.1}; run p50 {:7.1} p90 {:8.1}",
                s.seconds,
                s.switches,
                s.switches_per_s,
                s.preempted,
                s.migrations,
                s.run_s,
                l.count,
                l.p50,
                l.p90,
                l.p99,
                s.run_us.p50,
                s.run_us.p90
            );
        }
    };
    line("ALL", &v.all);
    v.tasks.iter().take(5).for_each(|(n, p)| line(n, p));
    Ok(())
}
