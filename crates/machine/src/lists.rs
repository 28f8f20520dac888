//! Lists of CPUs as the kernel writes them: `0-2,5`.

use std::collections::BTreeSet;

/// The largest number that such a list may have.
pub const NUMBER_MAX: usize = 1 << 16;

/// CPUs, or nodes, from such a list, which may be empty. `None`: it is no such list, or has numbers
/// beyond [`NUMBER_MAX`].
pub fn cpu_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut set = BTreeSet::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if from > to || to > NUMBER_MAX {
            return None;
        }
        set.extend(from..=to);
    }
    Some(set)
}

/// Write CPUs, ascending, as a list: `0-2,8`.
///
/// # Errors
/// The formatter's.
pub fn write_list(f: &mut std::fmt::Formatter<'_>, cpus: impl Iterator<Item = usize>) -> std::fmt::Result {
    let mut cpus = cpus.peekable();
    let mut comma = "";
    while let Some(first) = cpus.next() {
        let mut last = first;
        while cpus.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        write!(f, "{comma}{first}")?;
        if last > first {
            write!(f, "-{last}")?;
        }
        comma = ",";
    }
    Ok(())
}

/// The two ends of a part of such a list, `3` or `0-7`, in whatever order; `None` if it is none.
pub fn ends_of(text: &str) -> Option<(usize, usize)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |t: &str| t.bytes().all(|b| b.is_ascii_digit()).then(|| t.parse().ok()).flatten();
    Some((number(from)?, number(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        let set = |l: &[usize]| Some(l.iter().copied().collect::<BTreeSet<usize>>());
        assert_eq!(cpu_list("0-2,5\n"), set(&[0, 1, 2, 5]));
        assert_eq!(cpu_list(""), set(&[]));
        assert_eq!(cpu_list("7"), set(&[7]));
        let shown = |l: &[usize]| std::fmt::from_fn(|f| write_list(f, l.iter().copied())).to_string();
        assert_eq!((shown(&[0, 1, 2, 5]), shown(&[]), shown(&[7])), ("0-2,5".into(), String::new(), "7".into()));
        for wrong in ["x", "3-1", "1-", "-1", "0-99999999", "1;2"] {
            assert_eq!(cpu_list(wrong), None, "{wrong}");
        }
    }
}
