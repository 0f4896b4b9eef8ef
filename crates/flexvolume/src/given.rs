//! The options as somebody gave them, and the problems found so far.

use crate::keys::{self, Name};
use crate::options::Kind;
use crate::problem::{OptionError, Problem, ValueError};

/// The entries that are options, each at most once. Whoever reads a value
/// goes on after a bad one, so that all problems are found in one go.
#[derive(Debug, Default)]
pub(crate) struct Given<'a> {
    entries: Vec<Entry<'a>>,
    strangers: Vec<&'a str>,
    problems: Vec<OptionError>,
}

struct Entry<'a> {
    name: Name,
    key: &'a str,
    value: &'a str,
}

impl std::fmt::Debug for Entry<'_> {
    /// Without the value, which may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entry").field(&self.key).finish()
    }
}

impl<'a> Given<'a> {
    pub(crate) fn collect(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut given = Self::default();
        for (key, value) in entries {
            match Name::of_key(key) {
                Some(name) => given.add(Entry { name, key, value }),
                None if keys::is_kubelets(key) => {}
                None => given.strangers.push(key),
            }
        }
        given
    }

    fn add(&mut self, entry: Entry<'a>) {
        match self.entry(entry.name) {
            Some(first) => {
                let first = first.key.to_owned();
                self.complain(entry.key, Problem::Repeated { first });
            }
            None => self.entries.push(entry),
        }
    }

    fn entry(&self, name: Name) -> Option<&Entry<'a>> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    fn complain(&mut self, key: &str, problem: Problem) {
        let key = key.to_owned();
        self.problems.push(OptionError { key, problem });
    }

    /// Refuses every key that a volume of this type does not have; if the
    /// type is not known, every key that none has.
    pub(crate) fn refuse_strangers(&mut self, kind: Option<Kind>) {
        for key in std::mem::take(&mut self.strangers) {
            let problem = match keys::remedy_for(key) {
                Some(remedy) => Problem::NotAnOption { kind, remedy },
                None => Problem::UnknownKey { kind },
            };
            self.complain(key, problem);
        }
        let Some(kind) = kind else { return };
        let of_others = |entry: &Entry<'a>| {
            let owner = entry.name.owner().filter(|owner| *owner != kind)?;
            Some((entry.key, Problem::OfOtherType { kind, owner }))
        };
        let misplaced: Vec<_> = self.entries.iter().filter_map(of_others).collect();
        for (key, problem) in misplaced {
            self.complain(key, problem);
        }
    }

    /// The value of an option, or `absent` if it is not given. Nothing if it
    /// is given and bad; the problem is then recorded.
    pub(crate) fn optional<T>(
        &mut self,
        name: Name,
        absent: T,
        read: impl FnOnce(&'a str) -> Result<T, Problem>,
    ) -> Option<T> {
        let Some(entry) = self.entry(name) else {
            return Some(absent);
        };
        let key = entry.key;
        match read(entry.value) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.complain(key, problem);
                None
            }
        }
    }

    /// The value of an option that a volume of type `kind` must have. Nothing
    /// if it is not given or bad; the problem is then recorded.
    pub(crate) fn required<T>(
        &mut self,
        name: Name,
        kind: Option<Kind>,
        read: impl FnOnce(&'a str) -> Result<T, Problem>,
    ) -> Option<T> {
        let is_given = self.entry(name).is_some();
        if !is_given {
            self.complain(name.as_str(), Problem::Missing { kind });
        }
        self.optional(name, None, |text| read(text).map(Some))?
    }

    pub(crate) fn into_problems(self) -> Vec<OptionError> {
        self.problems
    }
}

/// Makes a reader of values out of a parser: the problem keeps the text. Not
/// for secrets.
pub(crate) fn value<T, E: Into<ValueError>>(
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> impl FnOnce(&str) -> Result<T, Problem> {
    |text| {
        parse(text).map_err(|why| Problem::BadValue {
            found: text.to_owned(),
            why: why.into(),
        })
    }
}
