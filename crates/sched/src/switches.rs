//! Switches as data: an enum of words, a set of keys with documentation, values from text and back. The scheduler's are in
//! [`crate::features`]; a hypervisor has its own.

/// A value that a key was given and that it does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureError {
    /// The key as given.
    pub key: String,
    /// The value as given.
    pub value: String,
    /// What would be right.
    pub expected: String,
}

impl std::fmt::Display for FeatureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` = `{}`: {}", self.key, self.value, self.expected)
    }
}
impl std::error::Error for FeatureError {}

/// One line of `contend list features`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureInfo {
    /// Key.
    pub key: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Allowed values.
    pub values: String,
    /// Value in the given feature set.
    pub value: String,
}

/// A type a switch can have.
pub trait Value: Sized {
    /// From text; `None`: not one of the allowed values.
    fn parse(text: &str) -> Option<Self>;
    /// As text that [`Value::parse`] takes.
    fn show(&self) -> String;
    /// What is allowed, in words.
    fn allowed() -> String;
}

impl Value for bool {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn allowed() -> String {
        "true or false".into()
    }
}

impl Value for u64 {
    fn parse(text: &str) -> Option<Self> {
        text.replace('_', "").parse().ok().filter(|v| *v <= 1_000_000_000_000)
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn allowed() -> String {
        "an integer from 0 to 1,000,000,000,000".into()
    }
}

/// An enum whose values have names in files.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vm:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum $name { $($(#[$vm])* $variant,)* }
        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
        }
        impl $crate::switches::Value for $name {
            fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some($name::$variant),)* _ => None }
            }
            fn show(&self) -> String {
                match self { $($name::$variant => $text.into(),)* }
            }
            fn allowed() -> String {
                format!("one of {}", [$($text),*].join(", "))
            }
        }
    };
}

/// A struct of switches with their documentation and defaults.
#[macro_export]
macro_rules! switches {
    ($(#[$meta:meta])* $Name:ident { $($(#[doc = $doc:literal])* $key:ident : $ty:ty = $default:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $Name { $($(#[doc = $doc])* pub $key: $ty,)* }

        impl Default for $Name {
            fn default() -> Self { $Name { $($key: $default,)* } }
        }

        impl $Name {
            /// Set one key from text.
            ///
            /// # Errors
            /// Unknown key (with the nearest known one) or a value the key does not take.
            pub fn set(&mut self, key: &str, value: &str) -> Result<(), $crate::switches::FeatureError> {
                let fail = |expected: String| $crate::switches::FeatureError { key: key.into(), value: value.into(), expected };
                match key {
                    $(stringify!($key) => {
                        self.$key = <$ty as $crate::switches::Value>::parse(value).ok_or_else(|| fail(format!("should be {}", <$ty as $crate::switches::Value>::allowed())))?;
                    })*
                    _ => return Err(fail($crate::switches::unknown(key, &[$(stringify!($key)),*]))),
                }
                Ok(())
            }
            /// Every key with its documentation and value.
            pub fn list(&self) -> Vec<$crate::switches::FeatureInfo> {
                vec![$($crate::switches::FeatureInfo {
                    key: stringify!($key),
                    doc: concat!($($doc),*).trim_ascii(),
                    values: <$ty as $crate::switches::Value>::allowed(),
                    value: $crate::switches::Value::show(&self.$key),
                }),*]
            }
        }
    };
}

/// What to say of an unknown key: the nearest of those known.
#[must_use]
pub fn unknown(key: &str, known: &[&str]) -> String {
    let near = known.iter().min_by_key(|k| strsim::levenshtein(k, key));
    match near {
        Some(n) if strsim::levenshtein(n, key) <= 3 => format!("no such feature; did you mean `{n}`?"),
        _ => "no such feature; `contend list features` lists them".into(),
    }
}
