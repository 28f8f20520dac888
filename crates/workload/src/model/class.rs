//! Classes in model files: `nice` for ordinary tasks, `sched` for all others.

use contend_sim::program::Sched;

/// The value of `sched`, where `nice` does not say it all.
pub fn text(sched: Sched) -> Option<String> {
    (!sched.is_only_nice()).then(|| sched.to_string())
}

/// What `nice` and `sched` say together; else the key that is wrong, what was found, and what would be right.
pub fn read(nice: i8, sched: Option<&str>) -> Result<Sched, (&'static str, String, String)> {
    let Some(text) = sched else {
        return if (-20..=19).contains(&nice) {
            Ok(Sched::normal(nice))
        } else {
            Err(("nice", nice.to_string(), "-20 to 19".into()))
        };
    };
    match Sched::parse(text) {
        Some(sched) if nice == 0 || nice == sched.nice() => Ok(sched),
        Some(_) => Err(("sched", format!("\"{text}\" beside nice = {nice}"), "one of the two".into())),
        None => Err(("sched", format!("\"{text}\""), Sched::ALLOWED.into())),
    }
}
