//! "Did you mean": the names closest to one that does not exist.

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let change = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// "did you mean a or b?", or `otherwise` where nothing is close: at most a third of the letters differ, or one name
/// contains the other.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>, otherwise: impl Into<String>) -> String {
    if name.len() > 100 {
        return otherwise.into();
    }
    let mut close: Vec<(usize, &str)> = known
        .filter_map(|other| {
            let d = edits(name, other);
            let part = name.len() >= 3 && (other.contains(name) || name.contains(other));
            (part || d * 3 <= name.chars().count().max(3)).then_some((d, other))
        })
        .collect();
    close.sort();
    close.truncate(3);
    if close.is_empty() {
        return otherwise.into();
    }
    let close: Vec<&str> = close.into_iter().map(|(_, other)| other).collect();
    format!("did you mean {}?", close.join(" or "))
}
