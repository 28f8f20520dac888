//! Distances of nodes as text: what `numactl --hardware` prints below `node distances:`, or rows of numbers.

use std::path::Path;

use super::wrong;
use crate::ProbeError;
use crate::sysfs::Raw;
use contend_machine::{SLIT_LOCAL, SLIT_MAX};

/// Puts the distances of `text` into `raw`.
pub fn put(file: &Path, text: &str, raw: &mut Raw) -> Result<(), ProbeError> {
    let all: Vec<(u32, &str)> = (1..).zip(text.lines()).collect();
    let after = all.iter().position(|(_, l)| l.trim().starts_with("node distances:")).map_or(0, |i| i + 1);
    let mut rows: Vec<(u32, Vec<u32>)> = Vec::new();
    for &(line, text) in &all[after..] {
        let text = text.split('#').next().unwrap_or_default().trim();
        // The head of numactl's table, and blank lines.
        if text.is_empty() || text.starts_with("node") {
            continue;
        }
        // `  0:  10  21`
        let numbers = text.split_once(':').map_or(text, |(_, rest)| rest);
        let words = numbers.split(|c: char| c.is_ascii_whitespace() || c == ',').filter(|w| !w.is_empty());
        let row = words
            .map(|w| {
                let fits = w.parse().ok().filter(|d| (SLIT_LOCAL..=SLIT_MAX).contains(d));
                let right = format!("found \"{w}\"; should be a distance, {SLIT_LOCAL} to {SLIT_MAX}");
                fits.ok_or_else(|| wrong(file, Some(line), right))
            })
            .collect::<Result<Vec<u32>, _>>()?;
        rows.push((line, row));
    }
    let nodes = raw.nodes.len().max(1);
    if rows.len() != nodes {
        let what =
            format!("found {} rows of distances; should be {nodes}, one for each node of the topology", rows.len());
        return Err(wrong(file, None, what));
    }
    for (i, (line, row)) in rows.iter().enumerate() {
        if row.len() != nodes {
            let what = format!("found {} distances; should be {nodes}, one for each node", row.len());
            return Err(wrong(file, Some(*line), what));
        }
        for (j, d) in row.iter().enumerate() {
            if (i == j) != (*d == SLIT_LOCAL) {
                let what =
                    format!("found {d} from node {i} to {j}; should be {SLIT_LOCAL} to itself and more elsewhere");
                return Err(wrong(file, Some(*line), what));
            }
            if rows[j].1.get(i).is_some_and(|back| back != d) {
                let what = format!("found {d} from node {i} to {j} and {} back; should be the same", rows[j].1[i]);
                return Err(wrong(file, Some(*line), what));
            }
        }
    }
    for (node, (_, row)) in raw.nodes.iter_mut().zip(rows) {
        node.distances = Some(row);
    }
    Ok(())
}
