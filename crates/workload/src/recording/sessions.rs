//! Who was in which session when a recording began.

use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::RecordingError;

/// The session of each task, by pid.
pub type Sessions = FxHashMap<u32, u32>;

/// A `sessions.toml`.
#[derive(Deserialize)]
struct File {
    /// Pids by the session's number.
    #[serde(default)]
    sessions: FxHashMap<String, Vec<u32>>,
}

/// The table `[sessions]` of a `sessions.toml`; none if there is no such table.
///
/// # Errors
/// Not such a file.
pub fn parse(text: &[u8], file: &str) -> Result<Sessions, RecordingError> {
    let wrong = |what: String| RecordingError::Sessions { file: file.into(), what };
    let text = std::str::from_utf8(text).map_err(|_| wrong("not UTF-8 text".into()))?;
    let read: File = toml::from_str(text).map_err(|e| wrong(e.to_string().trim().replace('\n', "; ")))?;
    let mut sessions = Sessions::default();
    for (session, pids) in read.sessions {
        let right = || wrong(format!("sessions.{session}: should be a number, such as 37 = [1200, 1201]"));
        let session: u32 = session.parse().map_err(|_| right())?;
        sessions.extend(pids.into_iter().map(|pid| (pid, session)));
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pids_have_the_session_that_names_them() {
        let sessions = parse(b"schema = 1\n[sessions]\n37 = [5, 6]\n40 = []\n", "r").expect("right");
        assert_eq!(sessions, FxHashMap::from_iter([(5, 37), (6, 37)]));
        assert!(parse(b"schema = 1\n", "r").expect("none").is_empty());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = |text: &str| parse(text.as_bytes(), "r").unwrap_err().to_string();
        assert_eq!(said("[sessions]\nx = [1]"), "r: sessions.x: should be a number, such as 37 = [1200, 1201]");
        assert!(said("[sessions]\n3 = [-1]").starts_with("r: "), "{}", said("[sessions]\n3 = [-1]"));
        assert!(said("[sessions").starts_with("r: "));
    }
}
