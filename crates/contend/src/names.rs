//! "Did you mean": the names closest to one that does not exist.

/// "did you mean a or b?", or `otherwise` where nothing is close: at most a third of the letters differ, or one name
/// contains the other.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>, otherwise: impl Into<String>) -> String {
    let close = contend_machine::close_to(name, known);
    if close.is_empty() {
        return otherwise.into();
    }
    format!("did you mean {}?", close.join(" or "))
}
