//! The lists of a `#cloud-config` that we add to.

use std::fmt;

use crate::text::Data;

/// What to mount; see `cc_mounts` of cloud-init.
pub(super) const MOUNTS: &str = "mounts";
/// Files to write, on the first boot of an instance.
pub(super) const WRITE_FILES: &str = "write_files";
/// Commands to run late on the first boot of an instance.
pub(super) const RUNCMD: &str = "runcmd";

/// A part of the user's configuration that we cannot add to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeProblem {
    /// The key that should hold a list.
    pub key: &'static str,
    /// What it holds.
    pub found: &'static str,
}

impl fmt::Display for ShapeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be a list, not {}", self.key, self.found)
    }
}

/// Which of `mounts`, `write_files` and `runcmd` is not a list. An empty value
/// passes for an empty list.
#[must_use]
pub fn shape_problems(config: &[(String, Data)]) -> Vec<ShapeProblem> {
    let problem_with = |key: &'static str| {
        let (_, value) = config.iter().find(|(known, _)| known == key)?;
        let found = match value {
            Data::List(_) | Data::Null => return None,
            Data::Map(_) => "a mapping",
            Data::Text(_) => "text",
            Data::Bool(_) => "a truth value",
            Data::Int(_) | Data::Float(_) => "a number",
            Data::Hidden(_) => "something else",
        };
        Some(ShapeProblem { key, found })
    };
    [MOUNTS, WRITE_FILES, RUNCMD]
        .into_iter()
        .filter_map(problem_with)
        .collect()
}

/// On which side of the user's elements ours go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Before,
    After,
}

/// Adds `ours` to the list under `key`. Whatever the user has there stays: what
/// is no list becomes an element of it.
pub(super) fn add(config: &mut Vec<(String, Data)>, key: &str, mut ours: Vec<Data>, place: Place) {
    if ours.is_empty() {
        return;
    }
    let Some((_, value)) = config.iter_mut().find(|(known, _)| known == key) else {
        config.push((key.to_owned(), Data::List(ours)));
        return;
    };
    let mut users = match std::mem::replace(value, Data::Null) {
        Data::List(items) => items,
        Data::Null => Vec::new(),
        other => vec![other],
    };
    *value = Data::List(match place {
        Place::Before => {
            ours.append(&mut users);
            ours
        }
        Place::After => {
            users.append(&mut ours);
            users
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(value: Data) -> Vec<(String, Data)> {
        vec![("runcmd".to_owned(), value)]
    }

    fn with_ours(value: Data, place: Place) -> Data {
        let mut config = config(value);
        add(&mut config, RUNCMD, vec![Data::text("ours")], place);
        config.remove(0).1
    }

    #[test]
    fn ours_go_where_they_are_told() {
        let users = Data::texts(["one", "two"]);
        assert_eq!(
            with_ours(users.clone(), Place::Before),
            Data::texts(["ours", "one", "two"])
        );
        assert_eq!(
            with_ours(users, Place::After),
            Data::texts(["one", "two", "ours"])
        );
        assert_eq!(with_ours(Data::Null, Place::After), Data::texts(["ours"]));
    }

    #[test]
    fn what_is_no_list_is_not_lost() {
        assert_eq!(
            with_ours(Data::text("reboot"), Place::Before),
            Data::texts(["ours", "reboot"])
        );
    }

    #[test]
    fn an_absent_list_appears_only_with_something_in_it() {
        let mut config = Vec::new();
        add(&mut config, MOUNTS, Vec::new(), Place::After);
        assert!(config.is_empty());
        add(&mut config, MOUNTS, vec![Data::Null], Place::After);
        assert_eq!(
            config,
            [("mounts".to_owned(), Data::List(vec![Data::Null]))]
        );
    }

    #[test]
    fn problems_name_the_key_and_what_is_there() {
        let mut bad = config(Data::text("reboot"));
        bad.push(("mounts".to_owned(), Data::map()));
        bad.push(("write_files".to_owned(), Data::Null));
        bad.push(("bootcmd".to_owned(), Data::text("not ours to judge")));
        let told: Vec<_> = shape_problems(&bad)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "mounts must be a list, not a mapping",
                "runcmd must be a list, not text"
            ]
        );
        assert_eq!(shape_problems(&config(Data::texts(["ls"]))), []);
    }
}
