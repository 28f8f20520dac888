//! Types that a key can have: from TOML, from the text of `--set`, and back.

use std::ops::RangeInclusive;

use contend_sim::program::Sched;
use toml::de::DeValue;

/// What stands there and what should.
pub struct Bad {
    pub found: String,
    pub right: String,
}

/// A type of key. `Range` is what the value may be.
pub trait Value: Sized + Clone {
    type Range;
    fn from_toml(v: &DeValue<'_>, range: &Self::Range) -> Result<Self, Bad>;
    /// The text of `--set key=text`.
    fn from_text(text: &str, range: &Self::Range) -> Result<Self, Bad>;
    fn to_toml(&self) -> toml::Value;
    fn allowed(range: &Self::Range) -> String;
}

fn bad<T: Value>(found: String, range: &T::Range) -> Bad {
    Bad { found, right: T::allowed(range) }
}

/// A value as messages show it.
pub fn shown(v: &DeValue<'_>) -> String {
    match v {
        DeValue::Integer(i) => i.to_string(),
        DeValue::Float(x) => x.to_string(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(d) => d.to_string(),
        DeValue::String(s) if s.chars().count() <= 40 => format!("\"{s}\""),
        DeValue::String(_) => "a long string".into(),
        DeValue::Array(_) => "an array".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

fn quoted(text: &str) -> String {
    if text.chars().count() <= 40 { format!("\"{text}\"") } else { "a long text".into() }
}

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

impl Value for u64 {
    type Range = RangeInclusive<u64>;
    fn from_toml(v: &DeValue<'_>, range: &Self::Range) -> Result<Self, Bad> {
        let n = v.as_integer().and_then(|i| u64::from_str_radix(i.as_str(), i.radix()).ok());
        n.filter(|n| range.contains(n)).ok_or_else(|| bad::<Self>(shown(v), range))
    }
    fn from_text(text: &str, range: &Self::Range) -> Result<Self, Bad> {
        let n = text.trim().replace('_', "").parse().ok();
        n.filter(|n| range.contains(n)).ok_or_else(|| bad::<Self>(quoted(text), range))
    }
    fn to_toml(&self) -> toml::Value {
        // All ranges end far below i64::MAX.
        toml::Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }
    fn allowed(range: &Self::Range) -> String {
        format!("a whole number from {} to {}", grouped(*range.start()), grouped(*range.end()))
    }
}

impl Value for f64 {
    type Range = RangeInclusive<f64>;
    fn from_toml(v: &DeValue<'_>, range: &Self::Range) -> Result<Self, Bad> {
        let text = match v {
            DeValue::Float(x) => x.as_str(),
            DeValue::Integer(i) if i.radix() == 10 => i.as_str(),
            _ => "",
        };
        let x = text.parse().ok();
        x.filter(|x| range.contains(x)).ok_or_else(|| bad::<Self>(shown(v), range))
    }
    fn from_text(text: &str, range: &Self::Range) -> Result<Self, Bad> {
        let x = text.trim().parse().ok();
        x.filter(|x| range.contains(x)).ok_or_else(|| bad::<Self>(quoted(text), range))
    }
    fn to_toml(&self) -> toml::Value {
        toml::Value::Float(*self)
    }
    fn allowed(range: &Self::Range) -> String {
        format!("a number from {} to {}", range.start(), range.end())
    }
}

impl Value for bool {
    type Range = ();
    fn from_toml(v: &DeValue<'_>, range: &()) -> Result<Self, Bad> {
        v.as_bool().ok_or_else(|| bad::<Self>(shown(v), range))
    }
    fn from_text(text: &str, range: &()) -> Result<Self, Bad> {
        text.trim().parse().map_err(|_| bad::<Self>(quoted(text), range))
    }
    fn to_toml(&self) -> toml::Value {
        toml::Value::Boolean(*self)
    }
    fn allowed((): &()) -> String {
        "true or false".into()
    }
}

/// The longest string that a key takes, in bytes.
const STRING_MAX: usize = 4096;

impl Value for String {
    type Range = ();
    fn from_toml(v: &DeValue<'_>, range: &()) -> Result<Self, Bad> {
        match v.as_str() {
            Some(s) if s.len() <= STRING_MAX => Ok(s.to_string()),
            _ => Err(bad::<Self>(shown(v), range)),
        }
    }
    fn from_text(text: &str, range: &()) -> Result<Self, Bad> {
        if text.len() <= STRING_MAX { Ok(text.into()) } else { Err(bad::<Self>(quoted(text), range)) }
    }
    fn to_toml(&self) -> toml::Value {
        toml::Value::String(self.clone())
    }
    fn allowed((): &()) -> String {
        format!("a text of at most {} bytes", grouped(STRING_MAX as u64))
    }
}

/// Nice values, one for all tasks or several that tasks take in turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NiceList(pub Vec<i8>);

impl NiceList {
    /// What it means for the `i`-th task: nothing of its own for 0, which every task has.
    pub fn sched(&self, i: u64) -> Option<Sched> {
        Some(self.0[(i % self.0.len() as u64) as usize]).filter(|n| *n != 0).map(Sched::normal)
    }
    /// Does it say anything?
    pub fn is_given(&self) -> bool {
        self.0.iter().any(|n| *n != 0)
    }
    fn from(numbers: Option<Vec<i64>>) -> Option<Self> {
        let list: Option<Vec<i8>> =
            numbers?.into_iter().map(|n| i8::try_from(n).ok().filter(|n| (-20..=19).contains(n))).collect();
        list.filter(|l| (1..=40).contains(&l.len())).map(NiceList)
    }
}

impl Value for NiceList {
    type Range = ();
    fn from_toml(v: &DeValue<'_>, range: &()) -> Result<Self, Bad> {
        let number = |v: &DeValue<'_>| v.as_integer().and_then(|i| i64::from_str_radix(i.as_str(), i.radix()).ok());
        let numbers = match v {
            DeValue::Array(list) => list.iter().map(|v| number(v.get_ref())).collect(),
            one => number(one).map(|n| vec![n]),
        };
        Self::from(numbers).ok_or_else(|| bad::<Self>(shown(v), range))
    }
    fn from_text(text: &str, range: &()) -> Result<Self, Bad> {
        let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
        let numbers = inner.split(',').map(|n| n.trim().parse().ok()).collect();
        Self::from(numbers).ok_or_else(|| bad::<Self>(quoted(text), range))
    }
    fn to_toml(&self) -> toml::Value {
        toml::Value::Array(self.0.iter().map(|&n| toml::Value::Integer(n.into())).collect())
    }
    fn allowed((): &()) -> String {
        "nice values from -20 to 19: one, or a list of up to 40".into()
    }
}

/// An enum whose values are words.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vm:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$vm])* $variant,)* }

        impl $name {
            fn word(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
            fn named(text: &str) -> Option<Self> {
                match text { $($text => Some($name::$variant),)* _ => None }
            }
        }

        impl $crate::spec::value::Value for $name {
            type Range = ();
            fn from_toml(v: &toml::de::DeValue<'_>, range: &()) -> Result<Self, $crate::spec::value::Bad> {
                v.as_str().and_then(Self::named).ok_or_else(|| $crate::spec::value::Bad {
                    found: $crate::spec::value::shown(v),
                    right: Self::allowed(range),
                })
            }
            fn from_text(text: &str, range: &()) -> Result<Self, $crate::spec::value::Bad> {
                Self::named(text.trim()).ok_or_else(|| $crate::spec::value::Bad {
                    found: format!("\"{text}\""),
                    right: Self::allowed(range),
                })
            }
            fn to_toml(&self) -> toml::Value {
                toml::Value::String(self.word().into())
            }
            fn allowed(_: &()) -> String {
                let all: &[&str] = &[$($text),*];
                all.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(" or ")
            }
        }
    };
}
pub(crate) use words;
