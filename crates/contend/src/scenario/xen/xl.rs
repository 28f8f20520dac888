//! `xl` commands of a timeline: `sched-credit`, `sched-credit2`, `vcpu-pin`.
//!
//! [`parse`] knows the words, [`super::state`] what they mean for a host. Options are those of `xl` 4.17 (xl(1)).

use contend_sched::switches::Value;
use contend_sched::xen::features::Scheduler;

/// Longest rate limit, in us.
const RATELIMIT_MAX: u64 = 500_000;
/// Shortest, but for 0: none.
const RATELIMIT_MIN: u64 = 100;
/// Longest time slice, in ms.
const TSLICE_MAX: u64 = 1000;

/// A command that changes something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    /// `sched-credit -d DOM [-w N] [-c N]`, and of `sched-credit2`.
    Domain { of: Scheduler, domain: String, weight: Option<u16>, cap: Option<u64> },
    /// `sched-credit -s [-t MS] [-r US] [-p POOL]`, and of `sched-credit2`.
    Pool { of: Scheduler, pool: Option<String>, tslice_ms: Option<u64>, ratelimit_us: Option<u64> },
    /// `vcpu-pin DOM VCPU HARD [SOFT]`; no vCPU: all; no set: it stays as it is.
    Pin { domain: String, vcpu: Option<u64>, hard: Option<String>, soft: Option<String> },
}

/// A command's words; a leading `xl` may be left out.
///
/// # Errors
/// What `xl` would take instead.
pub(super) fn parse(text: &str) -> Result<Command, String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    if words.first() == Some(&"xl") {
        words.remove(0);
    }
    match words.split_first() {
        Some((&"sched-credit", rest)) => sched(Scheduler::Credit, rest),
        Some((&"sched-credit2", rest)) => sched(Scheduler::Credit2, rest),
        Some((&"vcpu-pin", rest)) => pin(rest),
        _ => Err("should be sched-credit, sched-credit2 or vcpu-pin, with their options as xl has them".into()),
    }
}

/// How `xl` writes the scheduler's command.
pub(super) fn usage(of: Scheduler) -> String {
    let tslice = if of == Scheduler::Credit { "[-t MS] " } else { "" };
    format!("sched-{0} -d DOMAIN [-w WEIGHT] [-c CAP], or sched-{0} -s {tslice}[-r US] [-p CPUPOOL]", of.show())
}

/// An option of `sched-credit` and `sched-credit2`: letter, word, and what it takes.
const OPTIONS: [(char, &str, bool); 8] = [
    ('d', "domain", true),
    ('w', "weight", true),
    ('c', "cap", true),
    ('s', "schedparam", false),
    ('t', "tslice_ms", true),
    ('r', "ratelimit_us", true),
    ('p', "cpupool", true),
    ('m', "migration_delay_us", true),
];

fn sched(of: Scheduler, words: &[&str]) -> Result<Command, String> {
    let mut given: Vec<(char, String)> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (option, attached) = if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
            (OPTIONS.iter().find(|o| o.1 == name), value)
        } else {
            let letter = word.strip_prefix('-').and_then(|w| w.chars().next());
            let rest = word.get(2..).filter(|r| !r.is_empty());
            (OPTIONS.iter().find(|o| Some(o.0) == letter), rest)
        };
        let Some((letter, _, takes)) = option else {
            return Err(format!("{word} is no option of it; should be {}", usage(of)));
        };
        let value = match (takes, attached) {
            (true, Some(value)) => value.to_string(),
            (true, None) => words.next().ok_or_else(|| format!("-{letter} takes a value"))?.to_string(),
            (false, None) => String::new(),
            (false, Some(_)) => return Err(format!("-{letter} takes no value")),
        };
        if given.iter().any(|(l, _)| l == letter) {
            return Err(format!("-{letter} stands there twice"));
        }
        given.push((*letter, value));
    }
    let get = |letter: char| given.iter().find(|(l, _)| *l == letter).map(|(_, v)| v.as_str());
    let number = |letter: char, ok: &dyn Fn(u64) -> bool, right: &str| {
        let Some(text) = get(letter) else { return Ok(None) };
        let n = text.parse().ok().filter(|n| ok(*n));
        n.map(Some).ok_or_else(|| format!("-{letter} {text}: should be {right}"))
    };
    if get('m').is_some() {
        return Err("-m cannot change while the host runs here; set xen.vcpu_migration_delay_us".into());
    }
    if of == Scheduler::Credit2 && get('t').is_some() {
        return Err(format!("-t is Credit1's: Credit2 has no time slice; should be {}", usage(of)));
    }
    let weight = number('w', &|n| (1..=65_535).contains(&n), "a weight from 1 to 65535")?;
    let cap = number('c', &|n| n <= 65_535, "a cap in per cent of one pCPU, 0 for none")?;
    let tslice_ms = number('t', &|n| (1..=TSLICE_MAX).contains(&n), "a time slice from 1 to 1000 ms")?;
    let fine = |n| n == 0 || (RATELIMIT_MIN..=RATELIMIT_MAX).contains(&n);
    let ratelimit_us = number('r', &fine, "0 (no limit), or a rate limit from 100 to 500000 us")?;
    let (domain, pool) = (get('d').map(String::from), get('p').map(String::from));
    if get('s').is_some() {
        if domain.is_some() || weight.is_some() || cap.is_some() {
            return Err("-s is for a cpupool: no -d, -w or -c with it".into());
        }
        if tslice_ms.is_none() && ratelimit_us.is_none() {
            let what = if of == Scheduler::Credit { "-t MS or -r US" } else { "-r US" };
            return Err(format!("-s without {what} lists, and changes nothing"));
        }
        return Ok(Command::Pool { of, pool, tslice_ms, ratelimit_us });
    }
    if tslice_ms.is_some() || ratelimit_us.is_some() {
        return Err("-t and -r are parameters of a cpupool: -s must stand with them".into());
    }
    match (domain, pool) {
        (Some(_), Some(_)) => Err("-p does not go with -d: a domain is in one cpupool".into()),
        (Some(_), None) if weight.is_none() && cap.is_none() => {
            Err("-d without -w or -c lists, and changes nothing".into())
        }
        (Some(domain), None) => Ok(Command::Domain { of, domain, weight: weight.map(|w| w as u16), cap }),
        (None, _) if weight.is_some() || cap.is_some() => Err("-w and -c need a domain: -d DOMAIN".into()),
        (None, _) => Err(format!("lists, and changes nothing; should be {}", usage(of))),
    }
}

fn pin(words: &[&str]) -> Result<Command, String> {
    let right = "should be vcpu-pin DOMAIN VCPU HARD [SOFT]: VCPU a number or all, HARD and SOFT pCPUs, or - to leave \
                 one alone";
    let words: Vec<&str> = words.iter().filter(|w| !matches!(**w, "-f" | "--force")).copied().collect();
    let (domain, vcpu, hard, soft) = match words[..] {
        [domain, vcpu, hard] => (domain, vcpu, hard, "-"),
        [domain, vcpu, hard, soft] => (domain, vcpu, hard, soft),
        _ => return Err(right.into()),
    };
    let vcpu = match vcpu {
        "all" => None,
        n => Some(n.parse().map_err(|_| right.to_string())?),
    };
    let set = |text: &str| (text != "-").then(|| text.to_string());
    Ok(Command::Pin { domain: domain.into(), vcpu, hard: set(hard), soft: set(soft) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_as_xl_has_them() {
        let domain = |of, weight, cap| Command::Domain { of, domain: "vm1".into(), weight, cap };
        let pool = |of, pool: Option<&str>, tslice_ms, ratelimit_us| Command::Pool {
            of,
            pool: pool.map(String::from),
            tslice_ms,
            ratelimit_us,
        };
        let (c1, c2) = (Scheduler::Credit, Scheduler::Credit2);
        for (text, command) in [
            ("sched-credit -d vm1 -w 512", domain(c1, Some(512), None)),
            ("xl sched-credit2 -d vm1 -w 512 -c 50", domain(c2, Some(512), Some(50))),
            ("sched-credit --domain=vm1 --cap 0", domain(c1, None, Some(0))),
            ("sched-credit -dvm1 -w1", domain(c1, Some(1), None)),
            ("sched-credit -s -t 10 -r 500", pool(c1, None, Some(10), Some(500))),
            ("sched-credit2 -p Pool-0 -s -r 0", pool(c2, Some("Pool-0"), None, Some(0))),
            (
                "vcpu-pin vm1 all - node:0",
                Command::Pin { domain: "vm1".into(), vcpu: None, hard: None, soft: Some("node:0".into()) },
            ),
            (
                "vcpu-pin 1 3 0-3",
                Command::Pin { domain: "1".into(), vcpu: Some(3), hard: Some("0-3".into()), soft: None },
            ),
        ] {
            assert_eq!(parse(text), Ok(command), "{text}");
        }
        for (text, why) in [
            ("", "should be sched-credit"),
            ("list", "should be sched-credit"),
            ("sched-credit", "lists, and changes nothing"),
            ("sched-credit -d", "-d takes a value"),
            ("sched-credit -d vm1", "-d without -w or -c lists"),
            ("sched-credit -w 512", "-w and -c need a domain"),
            ("sched-credit -d vm1 -w 0", "-w 0: should be a weight from 1 to 65535"),
            ("sched-credit -d vm1 -w 65536", "-w 65536: should be"),
            ("sched-credit -d vm1 -w 1 -w 2", "-w stands there twice"),
            ("sched-credit -d vm1 -c -1", "-c -1: should be a cap"),
            ("sched-credit -s", "-s without -t MS or -r US lists"),
            ("sched-credit2 -s", "-s without -r US lists"),
            ("sched-credit -t 10", "-t and -r are parameters of a cpupool: -s"),
            ("sched-credit -s -t 0", "-t 0: should be a time slice from 1 to 1000 ms"),
            ("sched-credit -s -r 99", "-r 99: should be 0 (no limit), or a rate limit from 100 to 500000 us"),
            ("sched-credit -s -r 500001", "-r 500001"),
            ("sched-credit -s -d vm1 -r 100", "-s is for a cpupool"),
            ("sched-credit -p Pool-0 -d vm1 -w 1", "-p does not go with -d"),
            ("sched-credit2 -s -t 10", "-t is Credit1's"),
            ("sched-credit -s -m 5", "-m cannot change"),
            ("sched-credit -x 1", "-x is no option of it"),
            ("sched-credit vm1", "vm1 is no option of it"),
            ("vcpu-pin vm1 0", "should be vcpu-pin DOMAIN VCPU HARD [SOFT]"),
            ("vcpu-pin vm1 x 0", "should be vcpu-pin"),
        ] {
            let e = parse(text).expect_err(text);
            assert!(e.starts_with(why), "{text}: {e}");
        }
    }
}
