//! Pools: what there is, what VMs take of it, and what they were promised.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use disklet::shown::{short_size, table};
use disklet::vms::{PoolsLsArgs, PoolsOutput};
use disklet_core::config::{Config, Pool};
use disklet_core::plan::{Plan, PoolAccount};
use disklet_core::units::ByteSize;
use serde::Serialize;
use uuid::Uuid;

use crate::failure::{Failure, Result, on};
use crate::record::{Made, Record, Records};
use crate::verbs::Node;
use crate::vms::configuration;

/// A pool as programs see it. Sizes are in bytes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'c> {
    name: &'c str,
    path: &'c str,
    shared: bool,
    /// Absent while the directory is not there.
    size: Option<u64>,
    free: Option<u64>,
    used: u64,
    promised: u64,
    limit: Option<u64>,
    overcommit: Option<String>,
    vms: Vec<String>,
}

pub(crate) fn ls(args: &PoolsLsArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let records = Records::of(&config).list()?;
    let mut shown = Vec::new();
    for (name, pool) in &config.pools {
        shown.push(look_at(name.as_str(), pool, &records)?);
    }
    match args.output {
        PoolsOutput::Table => Ok(shown_table(&shown)),
        PoolsOutput::Json => serde_json::to_string_pretty(&shown)
            .map(|text| text + "\n")
            .map_err(|error| Failure::new("the list cannot be written").because(error)),
    }
}

fn look_at<'c>(name: &'c str, pool: &'c Pool, records: &[Record]) -> Result<Shown<'c>> {
    let room = Room::of(&pool.path)?;
    let shares: BTreeMap<_, _> = records
        .iter()
        .map(|record| (record.full_name(), Share::of(record, &pool.path)))
        .filter(|(_, share)| *share != Share::default())
        .collect();
    let promised = shares.values().map(|share| share.promised).sum();
    let limit = room.map(|room| account(room, promised, pool).limit());
    Ok(Shown {
        name,
        path: &pool.path,
        shared: pool.shared,
        size: room.map(|room| room.size),
        free: room.map(|room| room.free),
        used: shares.values().map(|share| share.used).sum(),
        promised,
        limit: limit.flatten().map(ByteSize::as_bytes),
        overcommit: pool.overcommit.map(|times| times.to_string()),
        vms: shares.into_keys().collect(),
    })
}

fn shown_table(shown: &[Shown<'_>]) -> String {
    let head = [
        "NAME", "SIZE", "FREE", "USED", "PROMISED", "LIMIT", "VMS", "SHARED", "PATH",
    ];
    let or_dash = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), short_size);
    let rows = shown.iter().map(|pool| {
        vec![
            pool.name.to_owned(),
            or_dash(pool.size),
            or_dash(pool.free),
            short_size(pool.used),
            short_size(pool.promised),
            or_dash(pool.limit),
            pool.vms.len().to_string(),
            if pool.shared { "yes" } else { "no" }.to_owned(),
            pool.path.to_owned(),
        ]
    });
    let head = head.map(str::to_owned).to_vec();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    table(&lines, &[1, 2, 3, 4, 5, 6])
}

impl Node<'_> {
    /// What is promised is written down under the lock that the caller holds; `own` is
    /// what the VM has already, beside what the plan adds.
    pub(crate) fn refuse_beyond_pools(
        &self,
        plan: &Plan,
        own: &BTreeMap<String, u64>,
    ) -> Result<()> {
        let mut shares = plan.pools.iter();
        shares.try_for_each(|share| {
            let wanted = Promise {
                pool: &share.name,
                path: &share.path,
                more: share.promised_bytes,
            };
            self.refuse_beyond_pool(plan.uuid, &wanted, own)
        })
    }

    /// The same of one pool.
    pub(crate) fn refuse_beyond_pool(
        &self,
        uuid: Uuid,
        wanted: &Promise<'_>,
        own: &BTreeMap<String, u64>,
    ) -> Result<()> {
        let Some(pool) = limited(self.config, wanted.pool) else {
            return Ok(());
        };
        let Some(room) = Room::of(nearest(wanted.path))? else {
            return Ok(());
        };
        let records = self.records.list()?;
        let others = records.iter().filter(|it| it.uuid != uuid);
        let promised: u64 = others.map(|it| Share::of(it, wanted.path).promised).sum();
        let own = own.get(wanted.path).copied().unwrap_or_default();
        let account = account(room, promised.saturating_add(own), pool);
        match account.promise(wanted.more) {
            Ok(_) => Ok(()),
            Err(limit) => Err(beyond(wanted.pool, &account, wanted.more, limit)),
        }
    }
}

/// What a pool is asked to promise, beside what it has.
pub(crate) struct Promise<'p> {
    pub(crate) pool: &'p str,
    pub(crate) path: &'p str,
    pub(crate) more: ByteSize,
}

fn limited<'c>(config: &'c Config, name: &str) -> Option<&'c Pool> {
    let mut pools = config.pools.iter();
    let (_, pool) = pools.find(|(it, _)| it.as_str() == name)?;
    pool.overcommit.is_some().then_some(pool)
}

fn beyond(name: &str, account: &PoolAccount, wanted: ByteSize, limit: ByteSize) -> Failure {
    let size = |bytes: ByteSize| short_size(bytes.as_bytes());
    Failure::new(format!(
        "pool {name} cannot promise {} more: {} of {} are promised",
        size(wanted),
        size(account.promised),
        size(limit),
    ))
    .help(format!(
        "remove a VM (disklet pools ls -o json says which have volumes there), ask for smaller \
         volumes, or have the administrator raise the pool's overcommit, which is {} times {}",
        account
            .overcommit
            .map_or_else(String::new, |it| it.to_string()),
        size(account.size),
    ))
}

fn account(room: Room, promised: u64, pool: &Pool) -> PoolAccount {
    PoolAccount {
        size: ByteSize::from_bytes(room.size),
        promised: ByteSize::from_bytes(promised),
        overcommit: pool.overcommit,
    }
}

/// A filesystem.
#[derive(Debug, Clone, Copy)]
struct Room {
    size: u64,
    free: u64,
}

impl Room {
    fn of(directory: impl AsRef<Path>) -> Result<Option<Self>> {
        let directory = directory.as_ref();
        match rustix::fs::statvfs(directory) {
            Ok(it) => Ok(Some(Self {
                size: it.f_blocks.saturating_mul(it.f_frsize),
                free: it.f_bavail.saturating_mul(it.f_frsize),
            })),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(on(directory, "looked at", error.into())),
        }
    }
}

/// A directory that is not made yet will be where its parent is.
fn nearest(directory: &str) -> &Path {
    let directory = Path::new(directory);
    let mut there = directory.ancestors().filter(|it| it.exists());
    there.next().unwrap_or(directory)
}

/// What a VM has of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Share {
    used: u64,
    promised: u64,
}

impl Share {
    /// Of what could not be known when it was promised, such as a clone of a disk at a
    /// server, there is at least what it takes.
    fn of(record: &Record, directory: &str) -> Self {
        let files = record.made.iter().filter_map(|made| match made {
            Made::Volume { path } if path.parent() == Some(Path::new(directory)) => Some(path),
            _ => None,
        });
        let blocks = files.filter_map(|path| fs::metadata(path).ok());
        let used = blocks.map(|meta| meta.blocks().saturating_mul(512)).sum();
        let promised = record.promised.get(directory).copied();
        Self {
            used,
            promised: promised.unwrap_or_default().max(used),
        }
    }
}
