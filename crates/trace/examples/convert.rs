//! Reads a recording, prints what is in it, and writes it as a Perfetto trace if a second file is given:
//! `cargo run --release -p contend-trace --example convert -- recording.txt [out.pftrace]`

use std::error::Error;
use std::fs::File;
use std::process::ExitCode;
use std::time::Instant;

use contend_trace::{SchedSink, open, perfetto};

fn run(input: &str, output: Option<String>) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut reader = open(input)?;
    match output {
        Some(output) => {
            let mut out = perfetto::Writer::new(File::create(output)?)?;
            for event in &mut reader {
                out.event(&event?)?;
            }
            out.finish()?;
        }
        None => {
            for event in &mut reader {
                event?;
            }
        }
    }
    println!("{}\n  took {:?}", reader.report(), start.elapsed());
    Ok(())
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(input) = args.next() else {
        eprintln!("usage: convert RECORDING.txt [OUT.pftrace]");
        return ExitCode::from(2);
    };
    match run(&input, args.next()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
