//! Carries what is uploaded to the disk, and puts that into its place.

use std::io::{self, Read};

use disklet_block::convert::{Before as BeforeCopy, Watch};
use disklet_block::device::{Caching, FileDevice, HeldBack, Size, Target};
use disklet_block::new_file::scratch_room;
use disklet_block::stream::{
    Contents, Limits, Options, Parts, Report, Room, Unwrap, Wrapping, to_raw_in_parts,
};
use disklet_core::names::Sha256;

use super::hash::Hash;
use super::interim::Interim;
use super::journal::{Complete, Filling, State};
use super::marks::Marks;
use super::volume::Volume;
use super::{FillError, Filled, Place, demand, filled};

/// What is filled.
struct Inside<'t> {
    target: &'t dyn Target,
    room: Room<'t>,
    most: u64,
    held: Option<&'t HeldBack<'t>>,
}

impl Volume {
    pub(super) fn carry(
        &mut self,
        filling: Filling,
        place: Place,
        stream: impl Read + Send,
        watch: &dyn Watch,
    ) -> Result<Filled, FillError> {
        let hash = match filling.taken {
            0 => Hash::default(),
            _ => Hash::going_on_from(&filling.hash)
                .ok_or_else(|| self.unmade(io::Error::other("the journal has no hash")))?,
        };
        match place {
            Place::Device(device) => self.onto(&device, filling, &hash, stream, watch),
            Place::File(path, _held) => {
                let interim = Interim::of(&path, &filling.id);
                self.carry_into(&interim, filling, &hash, stream, watch)
            }
        }
    }

    fn onto(
        &mut self,
        device: &FileDevice,
        filling: Filling,
        hash: &Hash,
        stream: impl Read + Send,
        watch: &dyn Watch,
    ) -> Result<Filled, FillError> {
        let held = match filling.taken {
            0 => HeldBack::begin(device),
            _ => {
                let beginning = self.journal.read_beginning();
                HeldBack::resume(device, beginning.map_err(|error| self.unmade(error))?)
            }
        };
        let held = held.map_err(|error| self.order.failed(error))?;
        let inside = Inside {
            target: &held,
            room: Room::Fixed,
            most: device.size().map_err(|error| self.order.failed(error))?,
            held: Some(&held),
        };
        let (report, filling) = self.run(filling, hash, stream, &inside, watch)?;
        let digest = demand_digest(&filling, hash)?;
        let written = self.journal.write_beginning(&held.beginning());
        written.map_err(|error| self.unmade(error))?;
        self.write(State::Completing(complete(filling, &report, digest)))?;
        held.complete().map_err(|error| self.order.failed(error))?;
        self.finish()?;
        Ok(filled(&report, digest))
    }

    fn carry_into(
        &mut self,
        interim: &Interim,
        filling: Filling,
        hash: &Hash,
        stream: impl Read + Send,
        watch: &dyn Watch,
    ) -> Result<Filled, FillError> {
        let file = match filling.taken {
            0 => interim.create(),
            _ => interim.reopen(filling.disk),
        };
        let file = file.map_err(|error| self.unmade(error))?;
        let same = file.try_clone().map_err(|error| self.unmade(error))?;
        let name = self.order.target.display().to_string();
        let device = FileDevice::new(same, name, Caching::Direct)
            .map_err(|error| self.order.failed(error))?;
        let inside = Inside {
            target: &device,
            room: Room::Grows(&device),
            most: u64::MAX,
            held: None,
        };
        let (report, filling) = self.run(filling, hash, stream, &inside, watch)?;
        let digest = demand_digest(&filling, hash)?;
        Interim::finish(&file).map_err(|error| self.unmade(error))?;
        self.write(State::Completing(complete(filling, &report, digest)))?;
        self.name(interim)?;
        self.finish()?;
        Ok(filled(&report, digest))
    }

    fn run(
        &mut self,
        filling: Filling,
        hash: &Hash,
        stream: impl Read + Send,
        inside: &Inside<'_>,
        watch: &dyn Watch,
    ) -> Result<(Report, Filling), FillError> {
        let scratch = self.order.scratch()?;
        let wrapping = Wrapping::from(filling.wrapping);
        let before = (filling.taken > 0).then_some((filling.disk, wrapping));
        let options = Options {
            contents: Contents::ByMagic,
            unwrap: Unwrap::As(wrapping),
            limits: Limits {
                disk: self.order.most.as_bytes().min(inside.most),
                file: None,
                parked: scratch_room(scratch.file()),
            },
            before: match inside.room {
                Room::Fixed => BeforeCopy::Anything,
                Room::Grows(_) => BeforeCopy::Zeroes,
            },
            room: inside.room,
        };
        let marks = Marks::new(&self.journal, filling, inside.held, &self.standing);
        let mut follower = hash.clone();
        let parts = Parts {
            before,
            follower: &mut follower,
            keeper: &marks,
        };
        let outcome = to_raw_in_parts(stream, &options, parts, inside.target, &scratch, watch);
        let filling = marks.last();
        self.state = Some(State::Filling(filling.clone()));
        let report = outcome.map_err(|error| self.order.failed(error))?;
        Ok((report, filling))
    }
}

fn complete(filling: Filling, report: &Report, digest: Sha256) -> Complete {
    Complete {
        id: filling.id,
        size: report.size,
        digest: digest.to_string(),
    }
}

fn demand_digest(filling: &Filling, hash: &Hash) -> Result<Sha256, FillError> {
    let wanted = filling.digest.as_deref().and_then(Sha256::parse_hex);
    demand(wanted, hash.finish())
}
