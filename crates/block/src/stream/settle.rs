//! Tables that are read out of the parking space: those that came before they
//! were known to be tables, and, at the end, those whose data is parked.

use super::action::{Action, Carry, Joiner};
use super::piece::{Piece, Pieces};
use super::placer::{Placer, truncated};
use super::tables::Table;
use crate::error::{Result, corrupt};

impl Placer {
    /// Where a table is parked that has to be [given back](Placer::recall)
    /// before anything else can happen.
    pub fn wanted(&self) -> Result<Option<u64>> {
        let cluster = if self.settling {
            self.tables.to_settle().map(|table| table.cluster.into())
        } else {
            self.tables.passed()
        };
        let Some(cluster) = cluster else {
            return Ok(None);
        };
        if !self.parked.contains(cluster) {
            return Err(corrupt("an L2 table lies where other metadata is"));
        }
        Ok(Some(cluster << self.header.cluster.bits()))
    }

    /// Gives back the cluster of the table that was wanted.
    pub fn recall(&mut self, table: &[u8], carry: &mut Carry<'_>) -> Result<()> {
        let mut joiner = Joiner::new(&[], 0, carry);
        if self.settling {
            if let Some(next) = self.tables.to_settle() {
                self.settle(table, next, &mut joiner)?;
            }
            self.tables.settled();
        } else if let Some(cluster) = self.tables.passed() {
            let numbers = self.tables.take_passed(cluster);
            self.read_tables(table, numbers, self.position, &mut joiner)?;
        }
        joiner.finish()
    }

    fn settle(&self, bytes: &[u8], table: Table, joiner: &mut Joiner<'_, '_>) -> Result<()> {
        let boundary = table.parked_before() << self.header.cluster.bits();
        for piece in Pieces::of(bytes, &self.header, table.index) {
            match piece?.split(boundary).0 {
                Some(Piece::Zero { guest, length }) if !table.was_read() => {
                    joiner.zero(guest, length)?;
                }
                Some(Piece::Plain {
                    guest,
                    host,
                    length,
                }) => {
                    self.require_parked(host, length)?;
                    joiner.carry(Action::Fetch {
                        guest,
                        host,
                        length,
                    })?;
                }
                Some(Piece::Packed {
                    guest,
                    host,
                    packed,
                    length,
                }) => {
                    let packed = self.parked_run(host, packed)?;
                    joiner.carry(Action::FetchPacked {
                        guest,
                        length,
                        host,
                        packed,
                    })?;
                }
                Some(Piece::Zero { .. }) | None => {}
            }
        }
        Ok(())
    }

    /// A cluster that was placed as it came is not parked. Only an image in
    /// which parts of the disk share clusters can ask for it again.
    fn require_parked(&self, host: u64, length: u64) -> Result<()> {
        if host + length > self.position {
            return Err(truncated(self.position, "a cluster of the disk"));
        }
        let bits = self.header.cluster.bits();
        let mut clusters = host >> bits..=(host + length - 1) >> bits;
        if clusters.all(|cluster| self.parked.contains(cluster)) {
            return Ok(());
        }
        Err(passed_by(host))
    }

    /// How many of a packed cluster's bytes are parked. Its last sector may
    /// end with the file.
    fn parked_run(&self, host: u64, packed: u64) -> Result<u64> {
        if host >= self.position || host + packed >= self.position + 512 {
            return Err(truncated(self.position, "a compressed cluster"));
        }
        let end = (host + packed).min(self.position);
        let bits = self.header.cluster.bits();
        let absent = (host >> bits..=(end - 1) >> bits).find(|at| !self.parked.contains(*at));
        match absent.map(|absent| absent << bits) {
            None => Ok(end - host),
            Some(absent) if absent > host => Ok(absent - host),
            Some(_) => Err(passed_by(host)),
        }
    }
}

fn passed_by(host: u64) -> crate::error::Error {
    crate::error::unsupported(format!(
        "the cluster at {host} in the file is used twice, and the second use is known too late for a stream"
    ))
}
