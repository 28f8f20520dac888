//! A recording's directory, as `contend record` makes it, as a scenario of its own.

use std::path::Path;

use contend_machine::reason;
use contend_workload::WorkloadSpec;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Given, Result, Scenario, file_workload, recorded_cpus};
use crate::error::{At, ScenarioError};

/// What makes a directory a recording: what was recorded, and how.
pub(super) const FILE: &str = "recording.toml";
/// The recorded machine, if the directory has it.
const MACHINE: &str = "machine.toml";
/// Who was in which session, if the directory says so.
const SESSIONS: &str = "sessions.toml";
/// The format of [`FILE`] that is read.
const SCHEMA: &str = "1";

/// The recording's events on the machine it was made on, under the policy of its kernel.
pub(super) fn scenario(dir: &Path) -> Result<Scenario> {
    let file = dir.join(FILE);
    let name = file.display().to_string();
    let text =
        std::fs::read_to_string(&file).map_err(|e| ScenarioError::Read { file: name.clone(), why: reason(&e) })?;
    let line = |offset: usize| 1 + text.as_bytes().iter().take(offset).filter(|&&b| b == b'\n').count();
    let root = DeTable::parse(&text).map_err(|e| ScenarioError::Syntax {
        file: name.clone(),
        line: line(e.span().map_or(text.len(), |s| s.start)),
        why: e.message().trim().replace('\n', "; "),
    })?;
    let root = root.get_ref();
    let at = |line: usize, key: &str| At { file: name.clone(), line, key: key.into() };
    let place = |v: &Spanned<DeValue<'_>>, key: &str| at(line(v.span().start), key);
    let schema = root.get("schema").map(|v| (v, v.get_ref().as_integer().map(|i| i.as_str())));
    if !matches!(schema, Some((_, Some(SCHEMA)))) {
        let right = format!("{SCHEMA}: the format that this version reads");
        return Err(match schema {
            None => ScenarioError::MissingKey { at: at(1, "schema"), right },
            Some((v, _)) => {
                let found = super::source::found(v.get_ref());
                ScenarioError::Value { at: place(v, "schema"), found, right }
            }
        });
    }
    let word = |key: &str, right: &str| match root.get(key) {
        None => Ok(None),
        Some(v) => match v.get_ref().as_str().filter(|s| !s.is_empty()) {
            Some(s) => Ok(Some(Given { at: place(v, key), value: s.to_string() })),
            None => {
                let found = super::source::found(v.get_ref());
                Err(ScenarioError::Value { at: place(v, key), found, right: right.into() })
            }
        },
    };
    let right = "the name of the file with the events, in this directory";
    let events =
        word("file", right)?.ok_or_else(|| ScenarioError::MissingKey { at: at(1, "file"), right: right.into() })?;
    if Path::new(&events.value).components().count() != 1 || events.value == ".." {
        let found = format!("\"{}\"", events.value);
        return Err(ScenarioError::Value { at: events.at, found, right: right.into() });
    }
    let policy = word("policy", "the name of a preset; `contend list presets` lists them")?;
    let mut scenario = Scenario::empty(&dir.display().to_string(), dir);
    let kernel = root.get("kernel").and_then(|v| v.get_ref().as_table());
    if let Some(v) = kernel.and_then(|t| t.get("autogroup")) {
        let value = super::source::found(v.get_ref());
        if !matches!(value.as_str(), "true" | "false") {
            let right = "true or false".into();
            return Err(ScenarioError::Value { at: place(v, "kernel.autogroup"), found: value, right });
        }
        scenario.set.insert("autogroup".into(), Given { at: place(v, "kernel.autogroup"), value });
    }
    if let Some(v) = kernel.and_then(|t| t.get("preempt")) {
        // Of the other models `none` is the nearest that there is.
        match v.get_ref().as_str() {
            Some("lazy") => {
                let value = "lazy".to_string();
                scenario.set.insert("preempt".into(), Given { at: place(v, "kernel.preempt"), value });
            }
            Some(_) => {}
            None => {
                let found = super::source::found(v.get_ref());
                let right = "none, voluntary, full, rt or lazy".into();
                return Err(ScenarioError::Value { at: place(v, "kernel.preempt"), found, right });
            }
        }
    }
    let machine = if dir.join(MACHINE).is_file() {
        MACHINE.to_string()
    } else {
        format!("1n1l{}c1t", recorded_cpus(&dir.join(&events.value))?)
    };
    scenario.machine = Some(Given { at: at(0, "machine"), value: machine });
    scenario.policy = policy;
    let mut workload = file_workload("recording", &events.value);
    if dir.join(MACHINE).is_file() {
        workload.set("recorded_on", MACHINE).expect("a recording has such a key");
    }
    if dir.join(SESSIONS).is_file() {
        workload.set("sessions", SESSIONS).expect("a recording has such a key");
    }
    scenario.workload = Some(workload);
    Ok(scenario)
}

/// A workload with each recording that it names by its directory named by its files: the events, and the recorded machine and
/// the sessions unless the workload names others.
pub(super) fn resolved(mut workload: WorkloadSpec, base: &Path) -> Result<WorkloadSpec> {
    match &mut workload {
        WorkloadSpec::Recording(given) if base.join(&given.file).join(FILE).is_file() => {
            let dir = std::mem::take(&mut given.file);
            let Some(WorkloadSpec::Recording(own)) = scenario(&base.join(&dir))?.workload else {
                unreachable!("a recording's directory is a recording");
            };
            let within = |file: String| Path::new(&dir).join(file).to_string_lossy().into_owned();
            given.file = within(own.file);
            for (given, own) in [(&mut given.recorded_on, own.recorded_on), (&mut given.sessions, own.sessions)] {
                if given.is_empty() && !own.is_empty() {
                    *given = within(own);
                }
            }
        }
        WorkloadSpec::Mix(mix) => {
            for part in &mut mix.parts {
                part.workload = resolved(part.workload.clone(), base)?;
            }
        }
        _ => {}
    }
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_sched::features::Preempt;

    fn dir(name: &str, text: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("contend-rec-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(FILE), text).unwrap();
        dir
    }

    #[test]
    fn a_scenario_may_name_the_directory() {
        let dir = dir("named", "schema = 1\nfile = \"trace.dat\"\n");
        std::fs::write(dir.join(MACHINE), contend_machine::Machine::synthetic("2c").unwrap().to_toml()).unwrap();
        let (base, own) = (dir.parent().unwrap(), dir.file_name().unwrap().to_str().unwrap());
        let text = |more: &str| format!("machine = \"8c\"\n[workload]\nkind = \"recording\"\nfile = \"{own}\"\n{more}");
        for (more, machine) in [("", format!("{own}/{MACHINE}")), ("recorded_on = \"4c\"", "4c".into())] {
            let plan = Scenario::parse(&text(more), "s.toml", base).unwrap().plan().unwrap();
            let Some(WorkloadSpec::Recording(r)) = plan.workload else { panic!("a recording") };
            assert_eq!((r.file, r.recorded_on, r.sessions), (format!("{own}/trace.dat"), machine, String::new()));
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_directory_names_events_machine_and_policy() {
        let dir = dir("good", "schema = 1\nfile = \"trace.dat\"\npolicy = \"linux-6.6\"\n");
        let machine = contend_machine::Machine::synthetic("2c").unwrap().to_toml();
        std::fs::write(dir.join(MACHINE), machine).unwrap();
        let plan = Scenario::from_path(&dir).unwrap().plan().unwrap();
        assert_eq!(plan.preset.name, "linux-6.6");
        assert_eq!(plan.machine.topology.nr_cpus(), 2);
        assert_eq!(plan.workload.unwrap().kind(), "recording");
        let mut elsewhere = Scenario::from_path(&dir).unwrap();
        elsewhere.set_machine("8c");
        elsewhere.set_policy("linux-6.18");
        let plan = elsewhere.plan().unwrap();
        assert_eq!((plan.preset.name, plan.machine.topology.nr_cpus()), ("linux-6.18", 8));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_kernels_switches_and_the_sessions_are_taken_over() {
        let text = "schema = 1\nfile = \"trace.dat\"\n[kernel]\nautogroup = true\npreempt = \"lazy\"\n";
        let dir = dir("sessions", text);
        std::fs::write(dir.join(MACHINE), contend_machine::Machine::synthetic("2c").unwrap().to_toml()).unwrap();
        std::fs::write(dir.join(SESSIONS), "[sessions]\n37 = [1]\n").unwrap();
        let mut scenario = Scenario::from_path(&dir).unwrap();
        let plan = scenario.plan().unwrap();
        assert!(plan.features.autogroup);
        assert_eq!(plan.features.preempt, Preempt::Lazy);
        assert_eq!(plan.workload.unwrap().to_toml()["sessions"].as_str(), Some(SESSIONS));
        scenario.set("autogroup", "false").unwrap();
        assert!(!scenario.plan().unwrap().features.autogroup);
        for other in ["none", "voluntary", "full", "rt"] {
            std::fs::write(dir.join(FILE), text.replace("lazy", other)).unwrap();
            assert_eq!(Scenario::from_path(&dir).unwrap().plan().unwrap().features.preempt, Preempt::None);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (i, (text, said)) in [
            ("", "recording.toml:1: schema: missing; 1"),
            ("schema = 2\nfile = \"t\"", "recording.toml:1: schema: found 2; should be 1"),
            ("schema = 1", "recording.toml:1: file: missing; the name of the file"),
            ("schema = 1\nfile = 3", "recording.toml:2: file: found 3; should be the name"),
            ("schema = 1\nfile = \"../x\"", "recording.toml:2: file: found \"../x\"; should be the name"),
            ("schema = 1\nfile = \"t\"\npolicy = 5", "recording.toml:3: policy: found 5; should be the name"),
            (
                "schema = 1\nfile = \"t\"\n[kernel]\nautogroup = 1",
                "recording.toml:4: kernel.autogroup: found 1; should be true",
            ),
            (
                "schema = 1\nfile = \"t\"\n[kernel]\npreempt = 1",
                "recording.toml:4: kernel.preempt: found 1; should be none, voluntary, full, rt or lazy",
            ),
            ("schema = ", "recording.toml:1: not valid TOML"),
        ]
        .into_iter()
        .enumerate()
        {
            let dir = dir(&format!("bad-{i}"), text);
            let e = Scenario::from_path(&dir).unwrap_err().to_string();
            std::fs::remove_dir_all(dir).unwrap();
            assert!(e.contains(said), "{text:?}: {e}");
        }
    }
}
