//! Overrides from the command line: `--set machine.lines.llc=40`.

use crate::costs::{Cost, SECTIONS, keys};
use crate::error::{At, MachineError};
use crate::{Flags, HZ_MAX, HZ_MIN, Machine, close_to, parse};

pub(crate) fn set(m: &mut Machine, key: &str, value: &str) -> Result<(), MachineError> {
    let at = |key: &str| At { file: "--set".into(), line: 0, key: key.into() };
    let number = |v: &str| -> Result<u64, MachineError> {
        let v = v.trim();
        v.parse().map_err(|_| MachineError::WrongType {
            at: at(key),
            found: format!("{v:?}"),
            right: "a whole number, 0 or more".into(),
        })
    };
    if key == "hz" {
        let n = number(value)?;
        m.hz = match u32::try_from(n) {
            Ok(hz @ HZ_MIN..=HZ_MAX) => hz,
            _ => {
                let right = format!("{HZ_MIN} to {HZ_MAX}");
                return Err(MachineError::OutOfRange { at: at(key), found: n.to_string(), right });
            }
        };
        return Ok(());
    }
    if let Some(flag) = m.flags.get_mut(key) {
        *flag = value.trim().parse().map_err(|_| MachineError::WrongType {
            at: at(key),
            found: format!("{value:?}"),
            right: "true or false".into(),
        })?;
        return Ok(());
    }

    let mut parts = key.splitn(3, '.');
    let (section, field, index) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""), parts.next());
    let Some(known) = keys().find(|k| k.section == section && k.field == field) else {
        let all: Vec<String> = keys().map(|k| format!("{}.{}", k.section, k.field)).collect();
        let close = close_to(key, all.iter().map(String::as_str));
        let right = if !close.is_empty() {
            format!("did you mean {}?", close.join(" or "))
        } else if let Some(s) = SECTIONS.iter().find(|s| **s == section) {
            let fields: Vec<&str> = keys().filter(|k| k.section == *s).map(|k| k.field).collect();
            format!("keys of {s} are {}", fields.join(", "))
        } else {
            let flags = Flags::KEYS.join(", ");
            format!("only hz, {flags} and the costs of {} can be set", SECTIONS.join(", "))
        };
        return Err(MachineError::UnknownKey { at: at(key), right });
    };
    let costs = m.costs.get_mut(section, field).expect("a key of the list");
    let values = value.split(',').map(number).collect::<Result<Vec<u64>, _>>()?;
    let (start, targets) = match index {
        None => (0, costs),
        Some(i) => match i.parse::<usize>().ok().filter(|&i| i < costs.len()) {
            Some(i) => (i, &mut costs[i..=i]),
            None => {
                let right = match costs.len() {
                    0 => "no index: this machine has none of these".into(),
                    n => format!("an index from 0 to {}", n - 1),
                };
                return Err(MachineError::OutOfRange { at: at(key), found: i.into(), right });
            }
        },
    };
    if targets.is_empty() || (values.len() != 1 && values.len() != targets.len()) {
        let right = match targets.len() {
            0 => "none: this machine has none of these".into(),
            1 => "one number".into(),
            n => format!("one number for all, or {n}"),
        };
        return Err(MachineError::Length { at: at(key), found: values.len(), right });
    }
    // All or nothing: check before the first change.
    let new: Vec<Cost> = targets
        .iter()
        .enumerate()
        .map(|(i, old)| {
            let value = values[if values.len() == 1 { 0 } else { i }];
            let cost = Cost { value, lo: value, hi: value, source: format!("set by hand; was {}", old.value) };
            parse::check(&cost, known, start + i, |_| at(key)).map(|()| cost)
        })
        .collect::<Result<_, _>>()?;
    let old = targets.to_vec();
    targets.clone_from_slice(&new);
    if let Err(e) = parse::check_capacity(&m.costs.cpu.capacity, || at(key)) {
        let all = m.costs.get_mut(section, field).expect("a key of the list");
        all[start..start + old.len()].clone_from_slice(&old);
        return Err(e);
    }
    Ok(())
}
