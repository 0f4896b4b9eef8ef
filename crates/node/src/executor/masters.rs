//! Copies of masters, wherever those are.

use std::path::Path;
use std::sync::Arc;

use disklet_block::convert::Watch;
use disklet_block::device::{Size as _, Source as Bytes};
use disklet_block::image::{Format as ImageFormat, Image};
use disklet_core::config::Config;
use disklet_core::domain::Format;
use disklet_core::plan::{Master, NetworkKey, Size, Source};
use disklet_core::source::Network;

use super::copies::{self, Origin};
use super::volumes::{self, Below};
use super::{Executor, plain_key, servers};
use crate::failure::{Failure, Result, on_image};
use crate::libvirt::QemuUser;
use crate::record::Records;
use crate::remote::{Login, Reader};
use crate::verbs::Node;

impl Executor<'_> {
    /// An overlay of ours over a raw master.
    pub(super) fn overlay(&self, file: &str, backing: &Master, size: Size) -> Result<()> {
        let path = Path::new(file);
        match backing {
            Master::Path(below) => {
                let size_of = || volumes::size_of(below);
                let below = Below {
                    name: below.clone(),
                    size: &size_of,
                };
                volumes::overlay(path, &below, size, self.user)
            }
            Master::Network(network) => {
                let size_of = || {
                    let size = self.read(file, network, |bytes| sized(network, &*bytes))?;
                    self.promise(file, size)?;
                    Ok(size)
                };
                // QEMU is told where the master is; nobody shall find it by this name.
                let below = Below {
                    name: format!("disklet:{network}"),
                    size: &size_of,
                };
                volumes::overlay(path, &below, size, self.user)
            }
        }
    }

    /// A raw file of ours with all bytes of a master.
    pub(super) fn clone(&self, file: &str, from: &Master, format: Format) -> Result<()> {
        let path = Path::new(file);
        // One that is there is complete.
        if path.exists() {
            return Ok(());
        }
        match from {
            Master::Path(master) => {
                let known_as = self.behind(master);
                let origin = Origin {
                    path: master,
                    known_as: &known_as,
                    format: in_block(format),
                };
                copies::clone(self.host(), path, &origin, self.user, self.watch)
            }
            Master::Network(network) => self.read(file, network, |bytes| {
                let name = network.to_string();
                let opened = Image::alone(bytes, &name, in_block(format));
                let image = opened.map_err(|error| on_image(&name, "cloned", error))?;
                let size = image.size();
                self.promise(
                    file,
                    size.map_err(|error| on_image(&name, "cloned", error))?,
                )?;
                copies::copy(path, &name, &image, self.user, self.watch)
            }),
        }
    }

    /// What was not known when the VM was planned is promised before it is made.
    fn promise(&self, file: &str, size: u64) -> Result<()> {
        let disk = self.plan.disk_at(file);
        let Some(disk) = disk.filter(|disk| disk.size.known().is_none()) else {
            return Ok(());
        };
        let node = Node {
            libvirt: self.libvirt,
            config: self.config,
            records: &Records::of(self.config),
            launcher: self.launcher,
            leases: self.leases,
        };
        let promised = node.promise_learned(self.held, &disk.name, size);
        promised.map_err(|failure| failure.of(&format!("disk {}", disk.name)))
    }

    /// Has the bytes of the master at a server that is below a file of ours.
    fn read<T>(
        &self,
        file: &str,
        network: &Network,
        read: impl FnOnce(Arc<dyn Bytes>) -> Result<T>,
    ) -> Result<T> {
        let source = self.plan.disk_at(file).map(|disk| &disk.source);
        self.read_from(source, network, read)
    }

    /// Has the bytes of storage at a server, with the key that a disk of it has.
    pub(super) fn read_from<T>(
        &self,
        source: Option<&Source>,
        network: &Network,
        read: impl FnOnce(Arc<dyn Bytes>) -> Result<T>,
    ) -> Result<T> {
        let key = match source {
            Some(Source::Network { key, .. }) => key.as_ref(),
            _ => None,
        };
        let opener = Opener {
            config: self.config,
            user: self.user,
            watch: self.watch,
        };
        opener.open(network, key, self.server_names(), read)
    }
}

/// Whoever opens storage at servers, only to read.
pub(crate) struct Opener<'o> {
    pub(crate) config: &'o Config,
    pub(crate) user: Option<QemuUser>,
    pub(crate) watch: &'o dyn Watch,
}

impl Opener<'_> {
    /// Has the bytes of a storage. Names of servers that users gave are looked up and judged
    /// now.
    pub(crate) fn open<'h, T>(
        &self,
        network: &Network,
        key: Option<&NetworkKey>,
        names: impl Iterator<Item = &'h String>,
        read: impl FnOnce(Arc<dyn Bytes>) -> Result<T>,
    ) -> Result<T> {
        let login = match key {
            Some(key) => Some(Login {
                user: &key.user,
                key: plain_key(key.kind, &key.key)?,
            }),
            None => None,
        };
        let networks = &self.config.networks;
        let network = match network {
            // Whoever asks there judges every address.
            Network::Http(_) => network.clone(),
            _ => servers::pinned_storage(network, names, networks)?,
        };
        let reader = Reader {
            run_dir: Path::new(&self.config.run_dir),
            certificates: &self.config.nbd_certificates,
            networks,
            user: self.user,
            watch: self.watch,
        };
        reader.with(&network, login.as_ref(), read)
    }
}

pub(super) fn sized(network: &Network, bytes: &dyn Bytes) -> Result<u64> {
    let size = bytes.size();
    size.map_err(|error| Failure::new(format!("{network} cannot be looked at")).because(error))
}

fn in_block(format: Format) -> ImageFormat {
    match format {
        Format::Raw => ImageFormat::Raw,
        Format::Qcow2 => ImageFormat::Qcow2,
    }
}
