//! What a run says of a policy that does not return.

use std::path::PathBuf;
use std::time::Duration;

use contend_sim::host::Status;
use contend_sim::watchdog::Watchdog;

use crate::scenario::Plan;

/// Without a sign of a simulation for this long, a policy or program in it does not return. Signs come every few ms.
const PATIENCE: Duration = Duration::from_mins(1);
/// Exit code of a run that a policy's error ended.
const POLICY_ERROR: i32 = 5;

/// `progress` under the eyes of a watchdog: if the simulation does not go on, that is said, with the command that does it again, and the
/// process ends without the file `partial`. Nothing else can be done to code that does not return.
pub fn watched<'a>(
    plan: &Plan,
    partial: Option<PathBuf>,
    progress: &'a mut dyn FnMut(Status) -> bool,
) -> impl FnMut(Status) -> bool + 'a {
    let run = format!("{} with policy {} and seed {}", plan.file, plan.policy_name(), plan.seed);
    let dog = Watchdog::new(PATIENCE, move |last| {
        if let Some(partial) = partial {
            let _ = std::fs::remove_file(partial);
        }
        eprintln!("{}", said(&run, last, std::env::args()));
        std::process::exit(POLICY_ERROR);
    });
    move |status| dog.hears(status, || progress(status))
}

/// The message about a run; `args` are the process's.
fn said(run: &str, last: Option<Status>, args: impl Iterator<Item = String>) -> String {
    let (now, dispatches) = last.map_or((0, 0), |s| (s.now, s.dispatches));
    let mut said = format!(
        "contend: {run}: the simulation has not gone on for {} s: the policy or a program of the workload does not return, after at least {} s of \
         virtual time and {dispatches} dispatches. The same run comes there again: attach a debugger to it to see where. This process ends.",
        PATIENCE.as_secs(),
        now as f64 / 1e9,
    );
    // Called as a library there is no command.
    let words: Vec<String> = args.skip_while(|a| !a.ends_with("/contend") && a != "contend").skip(1).collect();
    if let (false, Ok(words)) = (words.is_empty(), shlex::try_join(words.iter().map(String::as_str))) {
        said += &format!("\nReplay: contend {words}");
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_where_and_how_to_come_there_again() {
        let last = Status { now: 1_500_000_000, horizon: None, alive: 2, dispatches: 17 };
        let args = ["/v/bin/python", "/v/bin/contend", "run", "my file.toml", "--seed", "3"].map(String::from);
        let text = said("x.toml with policy mine and seed 3", Some(last), args.into_iter());
        assert!(text.starts_with("contend: x.toml with policy mine and seed 3: the simulation has not"), "{text}");
        assert!(text.contains("after at least 1.5 s of virtual time and 17 dispatches"), "{text}");
        assert!(text.ends_with("\nReplay: contend run 'my file.toml' --seed 3"), "{text}");
        assert!(!said("mine", None, ["python".to_string()].into_iter()).contains("Replay"));
    }
}
