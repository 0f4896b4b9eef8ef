//! What the Secret holds, and what follows from it. docs/formats/webhook-certificates.md
//! has the format and what a stop at any point leaves behind.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of the format.
const VERSION: u32 = 1;
/// More are there only if clocks are far apart.
const MOST: usize = 4;

/// An authority and the one certificate that it has signed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::webhook) struct Generation {
    pub(in crate::webhook) authority: String,
    pub(super) certificate: String,
    pub(super) key: String,
    /// What the certificate is for.
    pub(super) hosts: Vec<String>,
    /// Seconds since 1970, as are the others.
    pub(super) made: u64,
    pub(super) not_before: u64,
    pub(super) not_after: u64,
}

impl fmt::Debug for Generation {
    /// Without its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation")
            .field("hosts", &self.hosts)
            .field("made", &self.made)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}

impl Generation {
    fn is_valid(&self, now: u64) -> bool {
        (self.not_before..self.not_after).contains(&now)
    }

    /// A third of its life is left to replace it in.
    fn is_fresh(&self, now: u64) -> bool {
        let life = self.not_after.saturating_sub(self.made);
        self.is_valid(now) && now < self.not_after.saturating_sub(life / 3)
    }

    fn is_for(&self, hosts: &[String]) -> bool {
        hosts.iter().all(|host| self.hosts.contains(host))
    }
}

/// The generations, the newest last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Certificates {
    version: u32,
    generations: Vec<Generation>,
}

impl Default for Certificates {
    fn default() -> Self {
        Self {
            version: VERSION,
            generations: Vec::new(),
        }
    }
}

impl Certificates {
    /// Nothing of it can be used unless all of it can.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let read: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match read.version {
            VERSION => Ok(read),
            other => Err(format!("version {other}, and this program knows {VERSION}")),
        }
    }

    pub(super) fn to_text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The hosts of a generation that has to be made now; nothing if none has to.
    /// Those of the last one stay: replicas of two versions must not take turns.
    pub(super) fn wanted(&self, hosts: &[String], now: u64) -> Option<Vec<String>> {
        let Some(newest) = self.generations.last() else {
            return Some(hosts.to_vec());
        };
        if newest.is_fresh(now) && newest.is_for(hosts) {
            return None;
        }
        let mut all = hosts.to_vec();
        let others = newest.hosts.iter().filter(|host| !hosts.contains(host));
        all.extend(others.take(8).cloned());
        Some(all)
    }

    /// With one more, and without those that nobody can use any more.
    pub(super) fn with(&self, new: Generation, now: u64) -> Self {
        let mut generations: Vec<_> = self.generations.clone();
        generations.retain(|it| now < it.not_after);
        generations.push(new);
        let extra = generations.len().saturating_sub(MOST);
        generations.drain(..extra);
        Self {
            version: VERSION,
            generations,
        }
    }

    /// All authorities: whichever certificate a replica serves, it is believed.
    pub(super) fn bundle(&self) -> String {
        let all = self.generations.iter();
        all.map(|generation| generation.authority.trim_end().to_owned() + "\n")
            .collect()
    }

    /// What to serve: the newest whose authority the API servers have had time to
    /// learn, else the oldest that holds, which they know if they know any.
    pub(super) fn to_serve(
        &self,
        now: u64,
        is_settled: impl Fn(&Generation) -> bool,
    ) -> Option<&Generation> {
        let valid = || self.generations.iter().filter(|it| it.is_valid(now));
        let settled = valid().rfind(|it| is_settled(it));
        settled
            .or_else(|| valid().next())
            .or(self.generations.last())
    }

    pub(super) fn generations(&self) -> &[Generation] {
        &self.generations
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
