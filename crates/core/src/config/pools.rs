//! Pools: directories for volumes, by usage type.

use std::collections::BTreeMap;
use std::fmt;

use super::{Config, host_path, parse_host_path};
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::names::PoolName;
use crate::units::ByteSize;
use crate::yaml::{Fields, View};

/// A directory for volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// The directory.
    pub path: String,
    /// Other nodes see the same files.
    pub shared: bool,
    /// How much may be promised of it; without a limit if absent.
    pub overcommit: Option<Overcommit>,
}

impl Pool {
    /// One that is this machine's, without a limit.
    #[must_use]
    pub fn at(path: String) -> Self {
        Self {
            path,
            shared: false,
            overcommit: None,
        }
    }
}

/// How many times its size may be promised of a pool, in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overcommit(u32);

impl Overcommit {
    const ALLOWED: &str = "a number from 0.1 to 1000 with two decimals at most, such as 1.5";

    /// Reads `1.5`: no rounding decides what is refused.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 4 || !digits(whole) || !digits(decimals) {
            return None;
        }
        let hundredths = match decimals.len() {
            1 => decimals.parse::<u32>().ok()? * 10,
            2 => decimals.parse().ok()?,
            _ => return None,
        };
        let all = whole.parse::<u32>().ok()? * 100 + hundredths;
        (10..=100_000).contains(&all).then_some(Self(all))
    }

    /// What may be promised of so much.
    #[must_use]
    pub fn of(self, size: ByteSize) -> ByteSize {
        let limit = u128::from(size.as_bytes()) * u128::from(self.0) / 100;
        ByteSize::from_bytes(u64::try_from(limit).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Overcommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, decimals) = (self.0 / 100, self.0 % 100);
        match (decimals, decimals % 10) {
            (0, _) => write!(f, "{whole}"),
            (_, 0) => write!(f, "{whole}.{}", decimals / 10),
            _ => write!(f, "{whole}.{decimals:02}"),
        }
    }
}

/// A pool as annotations of the agent's own pod name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolAnnotation {
    /// Its name.
    pub name: PoolName,
    /// What it is.
    pub pool: Pool,
}

impl PoolAnnotation {
    /// Before the name of a pool: where it is mounted.
    pub const PATH: &str = "kubevirt.io/storage.usage-type.";
    /// The same, for what else is to be said of it.
    pub const SHARED: &str = "disklet.io/storage.shared.";
    /// How many times its size may be promised.
    pub const OVERCOMMIT: &str = "disklet.io/storage.overcommit.";

    /// Those of a pod, or every reason why one of them is none.
    pub fn read<'a>(
        annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<Self>, Vec<String>> {
        let all: BTreeMap<&str, &str> = annotations.into_iter().collect();
        let mut found = Vec::new();
        let mut wrong = Vec::new();
        for (&key, &path) in &all {
            if let Some(name) = key.strip_prefix(Self::PATH) {
                match Self::of(name, path, &all) {
                    Ok(pool) => found.push(pool),
                    Err(why) => wrong.push(why),
                }
            }
            let more = [Self::SHARED, Self::OVERCOMMIT];
            let name = more.iter().find_map(|prefix| key.strip_prefix(prefix));
            if let Some(name) = name {
                let path = format!("{}{name}", Self::PATH);
                if !all.contains_key(path.as_str()) {
                    wrong.push(format!("annotation {key}: there is no annotation {path}"));
                }
            }
        }
        match wrong.is_empty() {
            true => Ok(found),
            false => Err(wrong),
        }
    }

    fn of(name: &str, path: &str, all: &BTreeMap<&str, &str>) -> Result<Self, String> {
        let key = format!("{}{name}", Self::PATH);
        let parsed = PoolName::parse(name)
            .map_err(|rule| format!("annotation {key}: the usage type is {}", rule.allowed))?;
        let path =
            parse_host_path(path).map_err(|why| format!("annotation {key}: {path:?}: {why}"))?;
        let mut pool = Pool::at(path);
        let shared = format!("{}{name}", Self::SHARED);
        pool.shared = match all.get(shared.as_str()) {
            None | Some(&"false") => false,
            Some(&"true") => true,
            Some(other) => {
                return Err(format!(
                    "annotation {shared}: {other:?} is neither \"true\" nor \"false\""
                ));
            }
        };
        let overcommit = format!("{}{name}", Self::OVERCOMMIT);
        if let Some(text) = all.get(overcommit.as_str()) {
            let limit = Overcommit::parse(text);
            let why = || {
                format!(
                    "annotation {overcommit}: {text:?}: use {}",
                    Overcommit::ALLOWED
                )
            };
            pool.overcommit = Some(limit.ok_or_else(why)?);
        }
        Ok(Self { name: parsed, pool })
    }
}

impl Config {
    /// Has these pools as well; one of a name that is there already replaces it.
    /// Or says every reason why they do not fit together.
    pub fn add_pools(&mut self, added: Vec<PoolAnnotation>) -> Result<(), Vec<String>> {
        let mut wrong = Vec::new();
        for PoolAnnotation { name, pool } in added {
            let mut others = self.pools.iter().filter(|(other, _)| **other != name);
            if let Some((other, there)) = others.find(|(_, there)| overlap(&pool.path, &there.path))
            {
                wrong.push(format!(
                    "pool {name} at {} and pool {other} at {}: give each a directory of its own, \
                     none within the other",
                    pool.path, there.path
                ));
            }
            self.pools.insert(name, pool);
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(wrong),
        }
    }
}

pub(super) const FIELDS: [&str; 3] = ["path", "shared", "overcommit"];

pub(super) fn read(
    name: &str,
    view: &View<'_>,
    diags: &mut Diagnostics,
) -> Option<(PoolName, Pool)> {
    let name = read_name(name, view, diags);
    let mut fields = view.fields(diags)?;
    let pool = read_fields(&mut fields, diags);
    fields.no_others(&FIELDS, diags);
    Some((name?, pool?))
}

pub(super) fn read_name(name: &str, view: &View<'_>, diags: &mut Diagnostics) -> Option<PoolName> {
    let name = PoolName::parse(name);
    if let Err(rule) = &name {
        diags.push(Diagnostic::error(&view.place, "not a pool name").allowed(rule.allowed));
    }
    name.ok()
}

pub(super) fn read_fields(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<Pool> {
    fields.required("path", diags)?;
    let path = host_path(fields, "path", diags);
    let shared = fields.flag("shared", diags);
    let overcommit = fields.get("overcommit");
    let overcommit = overcommit.and_then(|view| read_overcommit(&view, diags));
    Some(Pool {
        path: path?,
        shared,
        overcommit,
    })
}

fn read_overcommit(view: &View<'_>, diags: &mut Diagnostics) -> Option<Overcommit> {
    let text = view.scalar_text(diags)?;
    let limit = Overcommit::parse(text);
    if limit.is_none() {
        diags.push(
            Diagnostic::error(
                &view.place,
                "not how many times its size may be promised of a pool",
            )
            .found(format!("{text:?}"))
            .allowed(Overcommit::ALLOWED),
        );
    }
    limit
}

/// Each pool accounts for its own directory, and libvirt knows it by that. The
/// one of volumes may stand in no file, and is not the one that is blamed then.
pub(super) fn refuse_nested(
    pools: &BTreeMap<PoolName, Pool>,
    places: &BTreeMap<PoolName, Place>,
    diags: &mut Diagnostics,
) {
    let all: Vec<_> = pools.iter().collect();
    for (index, (name, pool)) in all.iter().enumerate() {
        for (other, before) in &all[..index] {
            let place = places.get(*name).or(places.get(*other));
            let Some(place) = place.filter(|_| overlap(&pool.path, &before.path)) else {
                continue;
            };
            diags.push(
                Diagnostic::error(
                    place,
                    "two pools cannot have one directory, nor one within the other",
                )
                .found(format!(
                    "pool {other} at {}, pool {name} at {}",
                    before.path, pool.path
                ))
                .help("give each a directory of its own"),
            );
        }
    }
}

/// Whether one path is the other, or leads to it.
pub(super) fn overlap(one: &str, other: &str) -> bool {
    let parts = |path: &'_ str| -> Vec<String> {
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
        parts.map(str::to_owned).collect()
    };
    let (one, other) = (parts(one), parts(other));
    one.starts_with(&other) || other.starts_with(&one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overcommit_is_a_decimal_and_rounds_nothing() {
        let of = |text, bytes| {
            let limit = Overcommit::parse(text).map(|it| it.of(ByteSize::from_bytes(bytes)));
            limit.map(ByteSize::as_bytes)
        };
        assert_eq!(of("1", 1000), Some(1000));
        assert_eq!(of("1.5", 1000), Some(1500));
        assert_eq!(of("0.25", 1000), Some(250));
        assert_eq!(of("1000", u64::MAX), Some(u64::MAX));
        for wrong in [
            "",
            "0",
            "0.09",
            "1000.01",
            "-1",
            "1e3",
            ".5",
            "1.",
            "1.234",
            "٣",
            "150%",
            "99999999999",
        ] {
            assert_eq!(Overcommit::parse(wrong), None, "{wrong}");
        }
        for shown in ["1", "1.5", "0.25", "20", "3.05"] {
            let limit = Overcommit::parse(shown).map(|it| it.to_string());
            assert_eq!(limit.as_deref(), Some(shown));
        }
    }

    #[test]
    fn annotations_are_pools() {
        let found = PoolAnnotation::read([
            ("kubevirt.io/storage.usage-type.fast", "/storage/ssd/"),
            ("kubevirt.io/storage.usage-type.slow", "/storage/rust"),
            ("disklet.io/storage.shared.slow", "true"),
            ("disklet.io/storage.overcommit.slow", "2.5"),
            ("disklet.io/config", "whatever"),
        ])
        .unwrap();
        let paths: Vec<_> = found.iter().map(|it| it.pool.path.as_str()).collect();
        assert_eq!(paths, ["/storage/ssd", "/storage/rust"]);
        assert!(!found[0].pool.shared && found[1].pool.shared);
        assert_eq!(found[1].pool.overcommit, Overcommit::parse("2.5"));

        let mut config = Config::default();
        config.add_pools(found).unwrap();
        assert_eq!(config.pools.len(), 3, "volumes stays");
    }

    #[test]
    fn wrong_annotations_are_named_all_at_once() {
        let wrong = PoolAnnotation::read([
            ("kubevirt.io/storage.usage-type.Fast", "/storage/ssd"),
            ("kubevirt.io/storage.usage-type.slow", "storage"),
            ("kubevirt.io/storage.usage-type.up", "/storage/../etc"),
            ("kubevirt.io/storage.usage-type.maybe", "/storage/maybe"),
            ("disklet.io/storage.shared.maybe", "yes"),
            ("disklet.io/storage.overcommit.none", "2"),
        ])
        .unwrap_err();
        assert_eq!(wrong.len(), 5, "{wrong:#?}");
        assert!(wrong.iter().all(|why| why.starts_with("annotation ")));
    }

    #[test]
    fn no_pool_is_within_another() {
        let pool = |name: &str, path: &str| PoolAnnotation {
            name: PoolName::parse(name).unwrap(),
            pool: Pool::at(path.to_owned()),
        };
        let mut config = Config::default();
        let below = format!("{}/fast", config.volumes_dir());
        let wrong = config.add_pools(vec![pool("fast", &below), pool("slow", "/slow")]);
        assert_eq!(wrong.unwrap_err().len(), 1);
        let mut config = Config::default();
        config.add_pools(vec![pool("volumes", "/storage")]).unwrap();
        assert_eq!(config.volumes_dir(), "/storage");
    }
}
