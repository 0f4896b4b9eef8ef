//! Names of the command line. They become parts of addresses, so they are checked before
//! anything is asked.

use disklet_core::names::{NameRule, Namespace, ObjectName};

/// Reads the name of an object.
pub(crate) fn object(text: &str) -> Result<ObjectName, String> {
    ObjectName::parse(text).map_err(|rule| broken(&rule))
}

/// Reads the name of a namespace.
pub(crate) fn namespace(text: &str) -> Result<Namespace, String> {
    Namespace::parse(text).map_err(|rule| broken(&rule))
}

fn broken(rule: &NameRule) -> String {
    format!("{} has {}", rule.what, rule.allowed)
}
