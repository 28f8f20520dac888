//! The section `global`.

use std::collections::HashMap;

use super::super::ast::Global;
use super::super::error::{Problem, RtAppError};
use super::super::json::{Member, Node, cut};
use super::{GLOBAL_KEYS, INT_MAX, Parser};

impl Parser<'_> {
    pub(super) fn global(&mut self, m: &Member<'_>) -> Result<Global, RtAppError> {
        let members = self.object(self.value(m)?, "an object of settings")?;
        let mut g = Global::default();
        let mut seen = HashMap::new();
        for m in members {
            self.at(&m.key, |p| {
                p.duplicate(m, &mut seen)?;
                p.global_key(m, &mut g)
            })?;
        }
        Ok(g)
    }

    fn global_key(&mut self, m: &Member<'_>, g: &mut Global) -> Result<(), RtAppError> {
        let host = "settings of logs and memory locking concern the host that runs rt-app and have no effect here";
        match &*m.key {
            "duration" => {
                let n = self.int(m, -1, INT_MAX, "a whole number of seconds or -1")?;
                if n == 0 {
                    let at = m.value.as_ref().map_or(m.at, |v| v.at);
                    let want = "at least 1 second, or -1 to run until all tasks have ended".into();
                    return Err(self.error(at, Problem::Value { found: "0".into(), want }));
                }
                g.duration_s = u32::try_from(n).ok();
            }
            "default_policy" => {
                g.default_policy = Some(self.policy(m)?);
                g.default_policy_pos = self.lines.pos(m.at);
            }
            "mem_buffer_size" => g.mem_buffer_bytes = u64::from(self.bytes(m, 1)?),
            "io_device" => g.io_device = self.name(m, "the path of a file")?,
            "cumulative_slack" => g.cumulative_slack = self.bool(m)?,
            "pi_enabled" => {
                if self.bool(m)? {
                    self.count("\"pi_enabled\" has no effect: nobody's priority is inherited here", m.at);
                }
            }
            "calibration" => {
                let item = self.value(m)?;
                g.calibration_pos = self.lines.pos(m.at);
                match &item.node {
                    Node::Number(_) => {
                        self.int_item(item, 1, INT_MAX, "ns per loop")?;
                        g.calibrated_on = None;
                        let what = "\"calibration\" in ns per loop is of a processor that is not known here: 1 us of `run` is 1 us of the \
                                    machine's fastest CPUs";
                        self.count(what, m.at);
                    }
                    Node::String(s) if let Some(Ok(cpu)) = s.strip_prefix("CPU").map(str::parse) => {
                        g.calibrated_on = Some(cpu);
                    }
                    Node::String(s) => {
                        let found = format!("{:?}", cut(s));
                        return Err(self.error(item.at, Problem::Value { found, want: "\"CPU0\", \"CPU1\"...".into() }));
                    }
                    _ => return Err(self.wrong_type(item, "\"CPU<n>\" or ns per loop")),
                }
            }
            "lock_pages" | "gnuplot" => {
                self.bool(m)?;
                self.count(host, m.at);
            }
            "logdir" | "log_basename" => {
                self.text(m, "a text")?;
                self.count(host, m.at);
            }
            "frag" => {
                self.int(m, 0, INT_MAX, "a whole number")?;
                self.count(host, m.at);
            }
            "log_size" => {
                let item = self.value(m)?;
                match &item.node {
                    Node::Number(_) => {
                        self.int_item(item, 0, INT_MAX, "a whole number of MB")?;
                    }
                    Node::String(s) if ["file", "disable", "auto"].contains(&&*s.to_ascii_lowercase()) => {}
                    Node::String(s) => {
                        let found = format!("{:?}", cut(s));
                        let want = "\"file\", \"disable\", \"auto\" or a number of MB".into();
                        return Err(self.error(item.at, Problem::Value { found, want }));
                    }
                    _ => return Err(self.wrong_type(item, "\"file\", \"disable\", \"auto\" or a number of MB")),
                }
                self.count(host, m.at);
            }
            "ftrace" => {
                let item = self.value(m)?;
                match &item.node {
                    Node::Bool(_) => {}
                    Node::String(s) => {
                        const CATEGORIES: [&str; 7] = ["none", "main", "task", "run", "loop", "event", "stats"];
                        for word in s.split(',').map(str::trim).filter(|w| !w.is_empty()) {
                            if !CATEGORIES.contains(&word) {
                                let found = format!("{:?}", cut(word));
                                let want = CATEGORIES.join(", ");
                                return Err(self.error(item.at, Problem::Value { found, want }));
                            }
                        }
                    }
                    _ => return Err(self.wrong_type(item, "true, false or a list such as \"task,loop\"")),
                }
                self.count(host, m.at);
            }
            _ => return Err(self.unknown(m, "global", GLOBAL_KEYS.iter().copied())),
        }
        Ok(())
    }
}
