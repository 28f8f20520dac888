//! The probe without Python: `cargo run --release -p contend-probe --example host -- NAME > NAME.toml`

use contend_probe::{Options, probe};

fn main() {
    let options = Options { name: std::env::args().nth(1), ..Options::default() };
    let report = probe(&options, &mut |_| true).unwrap_or_else(|e| panic!("{e}"));
    for c in &report.checks {
        eprintln!("{}: {:.0} ({:.0} to {:.0}) ns, {} times", c.what, c.value, c.lo, c.hi, c.n);
    }
    print!("{}", report.toml);
}
