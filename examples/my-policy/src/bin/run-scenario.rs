//! Runs a scenario of contend's under work stealing, and stores results that contend's tools read:
//!
//!     run-scenario SCENARIO DIRECTORY [SEEDS]
//!     contend explain DIRECTORY/1
//!     contend compare OTHERS DIRECTORY     # of as many seeds

use contend::{RunOptions, Scenario, run_with};
use my_policy::work_stealing::WorkStealing;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [scenario, directory, seeds @ ..] = args else {
        return Err("usage: run-scenario SCENARIO DIRECTORY [SEEDS]".into());
    };
    let seeds = seeds.first().map_or(Ok(1), |n| n.parse())?;
    let mut scenario = Scenario::from_path(scenario)?;
    std::fs::create_dir_all(directory)?;
    for seed in 1..=seeds {
        scenario.set_seed(seed);
        let out = run_with(&scenario.plan()?, "work-stealing", |_| WorkStealing, RunOptions::default())?;
        out.write(&Path::new(directory).join(seed.to_string()))?;
        println!("seed {seed}: {} after {:.2} ms", out.summary.outcome, out.summary.virtual_s * 1e3);
    }
    Ok(())
}
