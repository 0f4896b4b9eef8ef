//! A volume that is filled by uploads: what is cut off goes on later.
//!
//! ```text
//!   nothing --begins--> filling --all came--> completing --in its place--> done
//!      ^                 |   ^                (each durable before it counts)
//!      +--- refused -----+   +-- marks: what came before them is durable
//! ```

use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disklet_block::convert::Watch;
use disklet_block::device::{HeldBack, Size};
use disklet_block::image::Format;
use disklet_block::stream::Wrapping;
use disklet_core::names::Sha256;

use super::interim::{self, Interim};
use super::journal::{Complete, Filling, Journal, State, Wrapped};
use super::{Before, FillError, FillErrorKind, Filled, Order, Place};

/// How an upload stands, for whoever asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Where it is.
    pub stage: Stage,
    /// From which byte on it can go on.
    pub taken: u64,
    /// How much of the disk is before that.
    pub disk: u64,
    /// How long all of it is, if that is known.
    pub total: Option<u64>,
    /// What whoever sends it calls the file.
    pub tag: Option<String>,
    /// Why it begins at the beginning, if it does.
    pub reason: &'static str,
    /// Of what the volume is filled with, if it is.
    pub digest: Option<Sha256>,
}

/// Where an upload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nothing has come.
    Waiting,
    /// Something has come.
    Filling,
    /// The volume is filled.
    Done,
}

/// What is about to come.
#[derive(Debug, Clone, Default)]
pub struct Coming {
    /// Behind so many bytes, which came before.
    pub from: u64,
    /// How long the whole is, if that is known.
    pub total: Option<u64>,
    /// How large the disk is, if that is known.
    pub disk: Option<u64>,
    /// The digest that the whole shall have.
    pub digest: Option<Sha256>,
    /// What whoever sends it calls the file.
    pub tag: Option<String>,
}

/// A volume, and the journal of its upload.
#[derive(Debug)]
pub struct Volume {
    pub(super) order: Order,
    pub(super) journal: Journal,
    pub(super) state: Option<State>,
    pub(super) standing: Arc<Mutex<Standing>>,
}

/// As much as tells what comes.
const START: u64 = 4096;

impl Volume {
    /// Of an order, with the state that an earlier run has left: what was complete is put
    /// into its place.
    pub fn open(order: Order, state_directory: &Path) -> Result<Self, FillError> {
        let journal = Journal::open(state_directory, &order.target)?;
        let state = journal.read()?;
        let standing = Arc::new(Mutex::new(standing(None)));
        let mut volume = Self {
            order,
            journal,
            state,
            standing,
        };
        match volume.state.clone() {
            None => volume.order.check()?,
            Some(State::Filling(filling)) => volume.recover(&filling)?,
            Some(State::Completing(complete)) => volume.complete(&complete)?,
            Some(State::Done(_)) => volume.demand_disk()?,
        }
        volume.publish();
        Ok(volume)
    }

    /// How the upload stands; it can be looked at while the volume is filled.
    #[must_use]
    pub fn standing(&self) -> Arc<Mutex<Standing>> {
        Arc::clone(&self.standing)
    }

    /// What the volume holds, if it is filled.
    #[must_use]
    pub fn filled(&self) -> Option<(u64, Sha256)> {
        match &self.state {
            Some(State::Done(complete)) => Some((complete.size, complete.digest())),
            _ => None,
        }
    }

    /// Fills the volume with what comes. However this ends, the volume holds the whole disk,
    /// or none; if the stream was lost, what came before can be gone on with.
    pub fn fill(
        &mut self,
        coming: &Coming,
        stream: impl Read + Send,
        watch: &dyn Watch,
    ) -> Result<Filled, FillError> {
        let outcome = match coming.from {
            0 => self.begin(coming, stream, watch),
            _ => self.go_on(coming, stream, watch),
        };
        let why_not = match &self.state {
            Some(State::Filling(filling)) => Some(reason(filling)),
            _ => None,
        };
        if let Err(error) = &outcome
            && !(error.kind().leaves_it_to_go_on() && why_not == Some(""))
        {
            self.give_up()?;
        }
        self.publish();
        if self.state.is_none()
            && let Some(why_not) = why_not
        {
            self.shared().reason = why_not;
        }
        outcome
    }

    fn begin(
        &mut self,
        coming: &Coming,
        mut stream: impl Read + Send,
        watch: &dyn Watch,
    ) -> Result<Filled, FillError> {
        let unread = |error: io::Error| {
            let what = format!("{}: cannot be filled", self.order.target.display());
            FillError::new(FillErrorKind::Stream, what).because(error)
        };
        let mut start = Vec::new();
        let mut first = stream.by_ref().take(START);
        first.read_to_end(&mut start).map_err(unread)?;
        let place = self.place()?;
        let wrapping = self.demand_fitting(&start, &place, coming)?;
        // From here on, what came before is given up.
        self.give_up()?;
        let filling = Filling {
            id: interim::unlikely_id(),
            wrapping: wrapping.into(),
            is_raw: None,
            total: coming.total,
            digest: coming.digest.map(|digest| digest.to_string()),
            tag: coming.tag.clone(),
            taken: 0,
            disk: 0,
            hash: Vec::new(),
        };
        self.write(State::Filling(filling.clone()))?;
        let stream = Cursor::new(start).chain(stream);
        self.carry(filling, place, stream, watch)
    }

    fn go_on(
        &mut self,
        coming: &Coming,
        stream: impl Read + Send,
        watch: &dyn Watch,
    ) -> Result<Filled, FillError> {
        let Some(State::Filling(mut filling)) = self.state.clone() else {
            let what = "nothing has come that could be gone on with";
            return Err(FillError::new(FillErrorKind::Stream, what));
        };
        demand_same(&filling, coming)?;
        filling.total = filling.total.or(coming.total);
        filling.digest = filling.digest.or(coming.digest.map(|it| it.to_string()));
        let place = self.place()?;
        self.carry(filling, place, stream, watch)
    }

    /// Refuses what cannot fit, before anything changes.
    fn demand_fitting(
        &self,
        start: &[u8],
        place: &Place,
        coming: &Coming,
    ) -> Result<Wrapping, FillError> {
        let room = match place {
            Place::Device(device) => device.size().map_err(|error| self.order.failed(error))?,
            Place::File(..) => u64::MAX,
        };
        let wrapping = Wrapping::by_magic(start);
        let disk = match wrapping {
            Wrapping::Plain => {
                let format = Format::by_magic(start);
                match format.map_err(|error| self.order.failed(error))? {
                    Format::Raw => coming.total,
                    Format::Qcow2 => size_of_qcow2(start),
                }
            }
            Wrapping::Gzip | Wrapping::Xz | Wrapping::Zstd => coming.disk,
        };
        self.demand_room(disk.unwrap_or(0), room.min(self.order.most.as_bytes()))?;
        Ok(wrapping)
    }

    /// Refuses what cannot fit, before any of it is asked for.
    pub fn demand_room_for(&self, coming: &Coming) -> Result<(), FillError> {
        // A qcow2 file can be longer than its disk, but not much.
        const TABLES: u64 = 64 << 20;
        let most = self.order.most.as_bytes();
        self.demand_room(coming.disk.unwrap_or(0), most)?;
        let longest = most.saturating_mul(2).saturating_add(TABLES);
        self.demand_room(coming.total.unwrap_or(0), longest)
    }

    fn demand_room(&self, disk: u64, most: u64) -> Result<(), FillError> {
        if disk <= most {
            return Ok(());
        }
        let target = self.order.target.display();
        let what = format!("{target}: a disk of {disk} bytes is larger than {most} bytes");
        Err(FillError::new(FillErrorKind::TooLarge, what)
            .help("use a larger volume, or allow larger disks with --max-size"))
    }

    /// The target. What is in it of ours is no reason to refuse it.
    fn place(&self) -> Result<Place, FillError> {
        let (before, ours) = match &self.state {
            Some(State::Filling(filling)) if filling.taken > 0 => {
                (Before::Nothing, Some(filling.id.as_str()))
            }
            Some(State::Filling(filling)) => (self.order.before, Some(filling.id.as_str())),
            _ => (self.order.before, None),
        };
        let before = match self.order.target.is_dir() || self.order.target.is_file() {
            // What is to be replaced stays until the other is complete.
            true => self.order.before,
            false => before,
        };
        Place::find_around(&self.order.target, before, ours)
    }

    /// Nothing has come, as far as anybody will know.
    fn give_up(&mut self) -> Result<(), FillError> {
        let cleared = match self.state.take() {
            Some(State::Filling(filling)) => match self.disk_path() {
                Some(path) => Interim::of(&path, &filling.id).remove(),
                None => Ok(()),
            },
            _ => Ok(()),
        };
        cleared
            .and_then(|()| self.journal.clear())
            .map_err(|error| self.unmade(error))
    }

    /// What was complete is put into its place.
    fn complete(&mut self, complete: &Complete) -> Result<(), FillError> {
        match self.disk_path() {
            Some(path) => self.name(&Interim::of(&path, &complete.id))?,
            None => {
                let failed = |error| self.order.failed(error);
                let place = Place::find(&self.order.target, Before::Anything)?;
                let Place::Device(device) = place else {
                    return Err(self.unmade(io::Error::other("is no device any more")));
                };
                let beginning = self.journal.read_beginning();
                let beginning = beginning.map_err(|error| self.unmade(error))?;
                let held = HeldBack::resume(&device, beginning).map_err(failed)?;
                held.complete().map_err(failed)?;
            }
        }
        self.finish()
    }

    /// Whether what came before a crash is still there.
    fn recover(&mut self, filling: &Filling) -> Result<(), FillError> {
        let is_there = match self.disk_path() {
            Some(path) => Interim::of(&path, &filling.id).reopen(filling.disk).is_ok(),
            None => filling.taken == 0 || self.journal.read_beginning().is_ok(),
        };
        let is_of_use = is_there && filling.taken > 0;
        self.place()?;
        if !is_of_use {
            self.give_up()?;
        }
        Ok(())
    }

    /// A volume that is filled has a disk.
    fn demand_disk(&self) -> Result<(), FillError> {
        let is_there = self.disk_path().is_none_or(|path| path.is_file());
        match is_there {
            true => Ok(()),
            false => {
                let target = self.order.target.display();
                let what = format!("{target}: was filled, and the disk has gone since");
                Err(FillError::new(FillErrorKind::Target, what)
                    .help("remove the state directory to have it filled anew"))
            }
        }
    }

    pub(super) fn name(&self, interim: &Interim) -> Result<(), FillError> {
        interim.name(self.order.before).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                let target = self.order.target.display();
                let what = format!("{target}: somebody else has filled it");
                return FillError::new(FillErrorKind::Occupied, what);
            }
            self.unmade(error)
        })
    }

    /// The disk is in its place.
    pub(super) fn finish(&mut self) -> Result<(), FillError> {
        if let Some(State::Completing(complete)) = self.state.clone() {
            self.write(State::Done(complete))?;
            self.journal.drop_beginning();
        }
        Ok(())
    }

    pub(super) fn write(&mut self, state: State) -> Result<(), FillError> {
        let written = self.journal.write(&state);
        written.map_err(|error| self.unmade(error))?;
        self.state = Some(state);
        self.publish();
        Ok(())
    }

    /// The file that is the disk, if it is one.
    pub(super) fn disk_path(&self) -> Option<PathBuf> {
        Place::path(&self.order.target)
    }

    pub(super) fn unmade(&self, error: io::Error) -> FillError {
        self.order.unmade(error)
    }

    fn publish(&self) {
        *self.shared() = standing(self.state.as_ref());
    }

    fn shared(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As it is told.
pub(super) fn standing(state: Option<&State>) -> Standing {
    let told = |stage, reason| Standing {
        stage,
        taken: 0,
        disk: 0,
        total: None,
        tag: None,
        reason,
        digest: None,
    };
    match state {
        None => told(
            Stage::Waiting,
            "nothing has come that could be gone on with",
        ),
        Some(State::Completing(_)) => told(Stage::Filling, "all of it has come"),
        Some(State::Done(complete)) => Standing {
            disk: complete.size,
            digest: Some(complete.digest()),
            ..told(Stage::Done, "the volume is filled")
        },
        Some(State::Filling(filling)) => Standing {
            taken: filling.taken,
            disk: filling.disk,
            total: filling.total,
            tag: filling.tag.clone(),
            ..told(Stage::Filling, reason(filling))
        },
    }
}

/// Why an upload begins at the beginning.
fn reason(filling: &Filling) -> &'static str {
    match (filling.taken, filling.is_raw, filling.wrapping) {
        (1.., ..) => "",
        (_, Some(false), _) => "a qcow2 image cannot be gone on with yet",
        (_, _, Wrapped::Plain) => "hardly anything has come that is durable",
        (_, _, Wrapped::Gzip) => "no member of the gzip stream has ended",
        (_, _, Wrapped::Xz) => "no stream of the xz file has ended",
        (_, _, Wrapped::Zstd) => "no frame of the zstd stream has ended",
    }
}

/// Refuses what is known to be of another file.
fn demand_same(filling: &Filling, coming: &Coming) -> Result<(), FillError> {
    let digest = coming.digest.map(|it| it.to_string());
    let differ = [
        ("length", differs(&filling.total, &coming.total)),
        ("digest", differs(&filling.digest, &digest)),
        ("tag", differs(&filling.tag, &coming.tag)),
    ];
    match differ.into_iter().find(|(_, differs)| *differs) {
        None => Ok(()),
        Some((what, _)) => {
            let what = format!("what came before was of a file with another {what}");
            Err(FillError::new(FillErrorKind::Stream, what).help("begin anew, from byte 0"))
        }
    }
}

fn differs<T: PartialEq>(before: &Option<T>, now: &Option<T>) -> bool {
    matches!((before, now), (Some(before), Some(now)) if before != now)
}

fn size_of_qcow2(start: &[u8]) -> Option<u64> {
    let bytes = start.get(24..32)?;
    bytes.try_into().ok().map(u64::from_be_bytes)
}
