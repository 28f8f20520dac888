//! The keys of a workload, declared once: the struct, its defaults, ranges, documentation and conversions follow.

use toml::de::DeValue;

use super::value::Bad;

/// One key in `contend list workloads`.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyInfo {
    /// The key.
    pub key: &'static str,
    /// What it means, and where its default comes from.
    pub doc: String,
    /// The unit, or what is counted; empty for words.
    pub unit: &'static str,
    /// What may be given.
    pub allowed: String,
    /// The value if nothing is given; `None`: the key must be given.
    pub default: Option<toml::Value>,
}

/// What `spec!` generates.
pub trait Keys: Default + Clone {
    const NAME: &'static str;
    fn doc() -> String;
    fn keys() -> Vec<KeyInfo>;
    /// `None`: no such key.
    fn set_toml(&mut self, key: &str, v: &DeValue<'_>) -> Option<Result<(), Bad>>;
    /// `None`: no such key.
    fn set_text(&mut self, key: &str, text: &str) -> Option<Result<(), Bad>>;
    fn write(&self, out: &mut toml::Table);
}

/// Doc comments as one paragraph.
pub fn paragraph(lines: &[&str]) -> String {
    lines.iter().map(|l| l.trim()).collect::<Vec<_>>().join(" ").trim().to_string()
}

/// A file has no default.
pub fn default_of(key: &str, v: toml::Value) -> Option<toml::Value> {
    (key != "file").then_some(v)
}

/// ```text
/// spec! {
///     /// What it does.
///     pub struct Name = "name" {
///         /// What the key means; where the default comes from.
///         key: u64 [1..=10] = 5, "unit";
///     }
/// }
/// ```
macro_rules! spec {
    ($(#[doc = $doc:literal])* pub struct $Name:ident = $name:literal {
        $($(#[doc = $kdoc:literal])* $key:ident : $ty:ty [$range:expr] = $default:expr, $unit:literal;)*
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, PartialEq, Debug)]
        pub struct $Name { $($(#[doc = $kdoc])* pub $key: $ty,)* }

        impl Default for $Name {
            fn default() -> Self {
                $Name { $($key: $default,)* }
            }
        }

        impl $crate::spec::keys::Keys for $Name {
            const NAME: &'static str = $name;
            fn doc() -> String {
                $crate::spec::keys::paragraph(&[$($doc),*])
            }
            fn keys() -> Vec<$crate::spec::keys::KeyInfo> {
                use $crate::spec::value::Value;
                let d = $Name::default();
                vec![$($crate::spec::keys::KeyInfo {
                    key: stringify!($key),
                    doc: $crate::spec::keys::paragraph(&[$($kdoc),*]),
                    unit: $unit,
                    allowed: <$ty as Value>::allowed(&$range),
                    default: $crate::spec::keys::default_of(stringify!($key), Value::to_toml(&d.$key)),
                }),*]
            }
            fn set_toml(
                &mut self,
                key: &str,
                v: &toml::de::DeValue<'_>,
            ) -> Option<Result<(), $crate::spec::value::Bad>> {
                use $crate::spec::value::Value;
                match key {
                    $(stringify!($key) => Some(<$ty as Value>::from_toml(v, &$range).map(|v| self.$key = v)),)*
                    _ => None,
                }
            }
            fn set_text(&mut self, key: &str, text: &str) -> Option<Result<(), $crate::spec::value::Bad>> {
                use $crate::spec::value::Value;
                match key {
                    $(stringify!($key) => Some(<$ty as Value>::from_text(text, &$range).map(|v| self.$key = v)),)*
                    _ => None,
                }
            }
            fn write(&self, out: &mut toml::Table) {
                use $crate::spec::value::Value;
                $(out.insert(stringify!($key).into(), Value::to_toml(&self.$key));)*
            }
        }
    };
}
pub(crate) use spec;
