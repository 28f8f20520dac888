//! Values of the types and ranges that keys want.

use std::collections::HashMap;

use super::super::ast::Policy;
use super::super::error::{Problem, RtAppError, nearest};
use super::super::json::{Item, Member, Node, cut};
use super::{INT_MAX, Parser};

impl Parser<'_> {
    pub(super) fn wrong_type(&self, item: &Item<'_>, want: &'static str) -> RtAppError {
        self.error(item.at, Problem::Type { found: item.node.show(), want })
    }

    pub(super) fn value<'m, 'a>(&self, m: &'m Member<'a>) -> Result<&'m Item<'a>, RtAppError> {
        m.value.as_ref().ok_or_else(|| {
            self.error(m.at, Problem::Missing { want: "a value; only \"suspend\" and \"yield\" may stand without one" })
        })
    }

    pub(super) fn int(&self, m: &Member<'_>, min: i64, max: i64, want: &'static str) -> Result<i64, RtAppError> {
        self.int_item(self.value(m)?, min, max, want)
    }

    pub(super) fn int_item(&self, item: &Item<'_>, min: i64, max: i64, want: &'static str) -> Result<i64, RtAppError> {
        let Node::Number(text) = item.node else { return Err(self.wrong_type(item, want)) };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.wrong_type(item, want));
        }
        match text.parse::<i64>() {
            Ok(n) if (min..=max).contains(&n) => Ok(n),
            _ => {
                let want = format!("{want}, {min} to {max}");
                Err(self.error(item.at, Problem::Value { found: cut(text), want }))
            }
        }
    }

    pub(super) fn micros(&self, m: &Member<'_>) -> Result<u32, RtAppError> {
        self.int(m, 0, INT_MAX, "a whole number of microseconds").map(|n| n as u32)
    }

    pub(super) fn bytes(&self, m: &Member<'_>, min: i64) -> Result<u32, RtAppError> {
        self.int(m, min, INT_MAX, "a whole number of bytes").map(|n| n as u32)
    }

    pub(super) fn bool(&self, m: &Member<'_>) -> Result<bool, RtAppError> {
        let item = self.value(m)?;
        match item.node {
            Node::Bool(b) => Ok(b),
            _ => Err(self.wrong_type(item, "true or false")),
        }
    }

    pub(super) fn text(&self, m: &Member<'_>, want: &'static str) -> Result<String, RtAppError> {
        self.text_item(self.value(m)?, want)
    }

    pub(super) fn text_item(&self, item: &Item<'_>, want: &'static str) -> Result<String, RtAppError> {
        match &item.node {
            Node::String(s) => Ok(s.to_string()),
            _ => Err(self.wrong_type(item, want)),
        }
    }

    /// A name that must not be empty.
    pub(super) fn name(&self, m: &Member<'_>, want: &'static str) -> Result<String, RtAppError> {
        let item = self.value(m)?;
        self.name_item(item, want)
    }

    pub(super) fn name_item(&self, item: &Item<'_>, want: &'static str) -> Result<String, RtAppError> {
        let name = self.text_item(item, want)?;
        if name.is_empty() {
            return Err(self.error(item.at, Problem::Value { found: "\"\"".into(), want: want.into() }));
        }
        Ok(name)
    }

    pub(super) fn object<'m, 'a>(
        &self,
        item: &'m Item<'a>,
        want: &'static str,
    ) -> Result<&'m [Member<'a>], RtAppError> {
        match &item.node {
            Node::Object(members) => Ok(members),
            _ => Err(self.wrong_type(item, want)),
        }
    }

    pub(super) fn duplicate(&self, m: &Member<'_>, seen: &mut HashMap<String, usize>) -> Result<(), RtAppError> {
        match seen.insert(m.key.to_string(), m.at) {
            None => Ok(()),
            Some(first) => Err(self.error(m.at, Problem::DuplicateKey { first: self.lines.pos(first).line })),
        }
    }

    pub(super) fn unknown<'v>(
        &self,
        m: &Member<'_>,
        place: &'static str,
        valid: impl Iterator<Item = &'v str> + Clone,
    ) -> RtAppError {
        self.error(m.at, Problem::UnknownKey { place, nearest: nearest(&m.key, valid) })
    }

    pub(super) fn policy(&self, m: &Member<'_>) -> Result<Policy, RtAppError> {
        let item = self.value(m)?;
        let text = self.text_item(item, "a policy such as \"SCHED_OTHER\"")?;
        Policy::ALL.iter().find(|(name, _)| *name == text).map(|(_, p)| *p).ok_or_else(|| {
            let want = Policy::ALL.map(|(name, _)| name).join(", ");
            self.error(item.at, Problem::Value { found: format!("{:?}", cut(&text)), want })
        })
    }

    pub(super) fn list(&self, m: &Member<'_>, max: i64, want: &'static str) -> Result<Vec<u32>, RtAppError> {
        let item = self.value(m)?;
        let Node::Array(items) = &item.node else { return Err(self.wrong_type(item, want)) };
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            list.push(self.int_item(item, 0, max, want)? as u32);
        }
        list.sort_unstable();
        list.dedup();
        Ok(list)
    }
}
