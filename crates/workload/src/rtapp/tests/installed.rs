//! The examples that Debian's rt-app package installs. They are not part of this project.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::parse;

const ROOT: &str = "/usr/share/doc/rt-app";

/// Those that do not load, and what is said about them: parts to be merged into a file, and the
/// format of rt-app 0.x, which rt-app 1.0 does not run either.
const REFUSED: [(&str, &str); 7] = [
    ("examples/merge/global.json", "1:1: missing \"tasks\": an object with at least one task"),
    ("examples/merge/resources.json", "1:1: missing \"tasks\": an object with at least one task"),
    (
        "examples/merge/thread0.json",
        "4:10: tasks.thread0.exec: a key of rt-app 0.x; since 1.0 a task is a list of events: \"run\", \"timer\", \"lock\"...",
    ),
    (
        "examples/merge/thread1.json",
        "4:10: tasks.thread1.exec: a key of rt-app 0.x; since 1.0 a task is a list of events: \"run\", \"timer\", \"lock\"...",
    ),
    (
        "examples/merge/thread2.json",
        "4:10: tasks.thread2.exec: a key of rt-app 0.x; since 1.0 a task is a list of events: \"run\", \"timer\", \"lock\"...",
    ),
    (
        "examples/merge/thread3.json",
        "4:10: tasks.thread3.exec: a key of rt-app 0.x; since 1.0 a task is a list of events: \"run\", \"timer\", \"lock\"...",
    ),
    (
        "taskset.json",
        "4:10: tasks.ThreadA.exec: a key of rt-app 0.x; since 1.0 a task is a list of events: \"run\", \"timer\", \"lock\"...",
    ),
];

fn json_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            json_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "json") {
            found.push(path);
        }
    }
}

#[test]
fn debian_examples_load_or_say_why_not() {
    let mut files = Vec::new();
    json_files(Path::new(ROOT), &mut files);
    files.sort();
    if files.is_empty() {
        // Past the test harness, which hides what a passing test prints.
        let _ = writeln!(std::io::stderr(), "SKIPPED: no example in {ROOT} (package rt-app): nothing was checked");
        return;
    }
    let mut wrong = Vec::new();
    for path in files {
        let name = path.strip_prefix(ROOT).unwrap().display().to_string();
        let text = std::fs::read_to_string(&path).unwrap();
        let found = parse(&text, &name).and_then(|app| app.workload(4)).err().map(|e| e.to_string());
        let want = REFUSED.iter().find(|(n, _)| *n == name).map(|(n, why)| format!("{n}:{why}"));
        if found != want {
            wrong.push(format!("{name}: {}", found.unwrap_or("loads".into())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
