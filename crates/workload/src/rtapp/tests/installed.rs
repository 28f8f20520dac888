//! The examples that Debian's rt-app package installs. They are not part of this project.

use std::path::{Path, PathBuf};

use super::parse;

const ROOT: &str = "/usr/share/doc/rt-app";

/// Those that do not load, and what is said about them.
const REFUSED: [(&str, &str); 0] = [];

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
        eprintln!("SKIPPED: {ROOT} has no example (install the package rt-app): nothing was checked");
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
