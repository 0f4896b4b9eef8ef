//! An image with everything below it, as one disk.
//!
//! ```text
//!   Image::Qcow2 --unallocated--> Image::Qcow2 --unallocated--> Image::Raw
//! ```
//!
//! Opening takes the format, which the caller knows, and a gate for the files
//! that images name. A format is never read off the bytes here.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::device::{Extent, Extents, FileDevice, ReadAt, Shareable, Size, Source};
use crate::error::{Result, limit, unsupported};
use crate::gate::{Gate, Role, from_outside};
pub use crate::magic::MAGIC_REACH;
use crate::qcow2::{ClusterSize, CompressedCluster, DataFile, GuestOffset, Mapping, Qcow2};

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Nothing around the bytes.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}

impl Format {
    /// As QEMU's tools write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }

    /// By its name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "raw" => Some(Self::Raw),
            "qcow2" => Some(Self::Qcow2),
            _ => None,
        }
    }
}

/// An open image.
#[derive(Debug)]
pub enum Image {
    /// A file or device as it is.
    Raw(RawImage),
    /// A qcow2 image.
    Qcow2(Box<Qcow2>),
}

/// A file or device as it is.
pub struct RawImage {
    device: Arc<dyn Source>,
}

impl std::fmt::Debug for RawImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawImage").finish_non_exhaustive()
    }
}

/// More images than this below each other are a mistake, or an attack.
pub const MAX_CHAIN: usize = 64;

impl Image {
    /// Opens an image and, through the gate, what it names.
    pub fn open(file: FileDevice, format: Format, gate: &dyn Gate) -> Result<Self> {
        Opening {
            gate,
            seen: Vec::new(),
        }
        .open(file, format)
    }

    /// A raw image on any device.
    #[must_use]
    pub fn raw(device: Arc<dyn Source>) -> Self {
        Self::Raw(RawImage { device })
    }

    /// Opens an image on any device. It comes from outside and may name no file.
    pub fn alone(device: Arc<dyn Source>, name: &str, format: Format) -> Result<Self> {
        if format == Format::Raw {
            return Ok(Self::raw(device));
        }
        let header = Qcow2::read_header(&*device, name)?;
        let data = match &header.data_file {
            DataFile::Own => None,
            DataFile::External { name, .. } => Some(name.as_deref().unwrap_or_default()),
        };
        let data = data.map(|named| from_outside(named, Role::Data));
        let backing = header.backing_file.as_deref();
        let backing = backing.map(|named| from_outside(named, Role::Backing));
        if let Some(refusal) = data.or(backing) {
            return Err(refusal.of(name));
        }
        let image = Qcow2::assemble(header, name, device, None, None)?;
        Ok(Self::Qcow2(Box::new(image)))
    }

    /// The image below, if there is one.
    #[must_use]
    pub fn backing(&self) -> Option<&Image> {
        match self {
            Self::Raw(_) => None,
            Self::Qcow2(image) => image.backing().map(|backing| &**backing),
        }
    }

    /// The most memory that the tables of the chain take.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.chain().map(Qcow2::table_bytes).sum()
    }

    /// The size of the largest clusters of the chain, if any image has some.
    pub(crate) fn largest_cluster(&self) -> Option<ClusterSize> {
        self.chain()
            .map(|image| image.header().cluster)
            .max_by_key(|cluster| cluster.bits())
    }

    /// All images of the chain that have tables.
    fn chain(&self) -> impl Iterator<Item = &Qcow2> {
        std::iter::successors(Some(self), |image| image.backing()).filter_map(|image| match image {
            Self::Raw(_) => None,
            Self::Qcow2(image) => Some(&**image),
        })
    }

    /// Fails if a file of the chain has become shorter since it was opened. A
    /// raw one that has fails where it is read.
    pub(crate) fn demand_whole(&self) -> Result<()> {
        match self {
            Self::Raw(_) => Ok(()),
            Self::Qcow2(image) => image.demand_whole(),
        }
    }

    /// Where the disk's bytes from `offset` on are, in this image or below,
    /// and for how many bytes (at most `most`) that is so.
    pub fn locate(&self, offset: u64, most: u64) -> Result<Located<'_>> {
        self.locate_at(offset, most, 0)
    }

    fn locate_at(&self, offset: u64, most: u64, depth: usize) -> Result<Located<'_>> {
        match self {
            Self::Raw(raw) => {
                let extent = raw.device.extent_at(offset)?;
                let place = if extent.zero {
                    Place::Zero { kept: Some(offset) }
                } else {
                    Place::Plain {
                        device: &*raw.device,
                        offset,
                    }
                };
                Ok(Located {
                    length: extent.length.min(most),
                    depth,
                    place,
                })
            }
            Self::Qcow2(image) => locate_qcow2(image, offset, most, depth),
        }
    }
}

fn locate_qcow2(image: &Qcow2, offset: u64, most: u64, depth: usize) -> Result<Located<'_>> {
    let (mapping, length) = image.map(GuestOffset(offset), most)?;
    let place = match mapping {
        Mapping::Zero { kept } => Place::Zero {
            kept: kept.map(|host| host.0),
        },
        Mapping::Data(host) => Place::Plain {
            device: &**image.data_file(),
            offset: host.0,
        },
        Mapping::Compressed(cluster) => Place::Packed {
            image,
            cluster,
            within: image.header().cluster.within(offset),
        },
        Mapping::Unallocated => match image.backing() {
            // A disk can be larger than what it was laid over.
            Some(backing) if offset < backing.size()? => {
                return backing.locate_at(offset, length, depth + 1);
            }
            _ => Place::Nowhere,
        },
    };
    Ok(Located {
        length,
        depth,
        place,
    })
}

/// Where some bytes of a disk are.
#[derive(Debug)]
pub struct Located<'i> {
    /// How many bytes.
    pub length: u64,
    /// How far down the chain; 0 is the image itself.
    pub depth: usize,
    /// Where.
    pub place: Place<'i>,
}

/// A place for bytes.
pub enum Place<'i> {
    /// No image has them; they read as zeroes.
    Nowhere,
    /// An image says that they are zeroes.
    Zero {
        /// Where on a device they have their place, if they have one.
        kept: Option<u64>,
    },
    /// On a device, as they are.
    Plain {
        /// The device.
        device: &'i dyn Source,
        /// Where on it.
        offset: u64,
    },
    /// In a compressed cluster.
    Packed {
        /// The image.
        image: &'i Qcow2,
        /// The cluster.
        cluster: CompressedCluster,
        /// How far into the unpacked cluster.
        within: u64,
    },
}

impl std::fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nowhere => f.write_str("Nowhere"),
            Self::Zero { .. } => f.write_str("Zero"),
            Self::Plain { offset, .. } => write!(f, "Plain({offset})"),
            Self::Packed { cluster, .. } => write!(f, "Packed({cluster:?})"),
        }
    }
}

/// A chain being opened.
struct Opening<'g> {
    gate: &'g dyn Gate,
    /// Device and inode of what was opened, to see a loop.
    seen: Vec<(u64, u64)>,
}

impl Opening<'_> {
    fn open(&mut self, file: FileDevice, format: Format) -> Result<Image> {
        self.enter(&file)?;
        match format {
            Format::Raw => Ok(Image::raw(Arc::new(file))),
            Format::Qcow2 => self.open_qcow2(file),
        }
    }

    fn open_qcow2(&mut self, file: FileDevice) -> Result<Image> {
        let name = file.name().to_owned();
        let header = Qcow2::read_header(&file, &name)?;
        let data: Option<Arc<dyn Source>> = match &header.data_file {
            DataFile::Own => None,
            DataFile::External { name: named, .. } => {
                let named = named.as_deref().ok_or_else(|| {
                    unsupported("the image does not say where its data file is").of(&name)
                })?;
                let data = self
                    .gate
                    .open(named, Role::Data, &file)
                    .map_err(|error| error.of(&name))?;
                self.enter(&data)?;
                Some(Arc::new(data))
            }
        };
        let backing = match &header.backing_file {
            None => None,
            Some(named) => {
                let format = header.backing_format.as_deref();
                let format = format.and_then(Format::from_name).ok_or_else(|| {
                    unsupported("the image does not say that its backing file is raw or qcow2; a format is not guessed")
                        .of(&name)
                })?;
                let below = self
                    .gate
                    .open(named, Role::Backing, &file)
                    .map_err(|error| error.of(&name))?;
                Some(Arc::new(self.open(below, format)?))
            }
        };
        let image = Qcow2::assemble(header, name, Arc::new(file), data, backing)?;
        // All that lie below are open by now.
        let image = image.in_chain_of(self.seen.len());
        Ok(Image::Qcow2(Box::new(image)))
    }

    fn enter(&mut self, file: &FileDevice) -> Result<()> {
        let identity = file.file().metadata().map(|meta| (meta.dev(), meta.ino()));
        if let Ok(identity) = identity {
            if self.seen.contains(&identity) {
                return Err(limit("the image leads back to itself").of(file.name()));
            }
            self.seen.push(identity);
        }
        if self.seen.len() > MAX_CHAIN {
            return Err(
                limit(format!("more than {MAX_CHAIN} images are below each other")).of(file.name()),
            );
        }
        Ok(())
    }
}

impl Image {
    fn source(&self) -> &dyn Source {
        match self {
            Self::Raw(raw) => &*raw.device,
            Self::Qcow2(image) => &**image,
        }
    }
}

impl Size for Image {
    fn size(&self) -> Result<u64> {
        self.source().size()
    }
}

impl ReadAt for Image {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.source().read_at(buffer, offset)
    }
}

impl Extents for Image {
    fn extent_at(&self, offset: u64) -> Result<Extent> {
        self.source().extent_at(offset)
    }
}

impl Shareable for Image {
    fn shareable_file(&self) -> Option<&File> {
        match self {
            Self::Raw(raw) => raw.device.shareable_file(),
            Self::Qcow2(_) => None,
        }
    }
}
