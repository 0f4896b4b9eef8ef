//! Storage that QEMU reaches over the network by itself: what is needed to
//! find it, as types. Who may use it stands beside it, never in it.

mod by_address;
mod endpoint;
mod knock;
mod names;

use std::fmt;

pub use disklet_flexvolume::{CephUser, RbdName};

pub use endpoint::Endpoint;
pub use knock::{Door, Servers};
pub use names::{GlusterPath, GlusterVolume, Iqn, Lun, NbdExport, SocketPath};

use crate::text::Secret;
use crate::url::{Scheme, Url};

/// Storage at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// A logical unit of an iSCSI target.
    Iscsi(Iscsi),
    /// An image in a Ceph pool.
    Rbd(Rbd),
    /// An export of an NBD server.
    Nbd(Nbd),
    /// A file on a Gluster volume.
    Gluster(Gluster),
    /// A file of a web server. It can only be read.
    Http(WebFile),
}

/// A logical unit of an iSCSI target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Iscsi {
    /// Where the target is.
    pub portal: Endpoint,
    /// The target.
    pub target: Iqn,
    /// The unit.
    pub lun: Lun,
    /// By which name QEMU introduces itself.
    pub initiator: Option<Iqn>,
}

/// An image in a Ceph pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rbd {
    /// Where the cluster is; at least one.
    pub monitors: Vec<Endpoint>,
    /// The pool.
    pub pool: RbdName,
    /// The image.
    pub image: RbdName,
    /// On whose behalf it is opened.
    pub user: CephUser,
}

/// An export of an NBD server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nbd {
    /// Where the server is.
    pub server: NbdServer,
    /// The export; the default one has no name.
    pub export: NbdExport,
    /// The connection is encrypted, with the node's certificates.
    pub tls: bool,
}

/// Where an NBD server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NbdServer {
    /// On a port.
    Tcp(Endpoint),
    /// On a socket of the node.
    Unix(SocketPath),
}

/// A file on a Gluster volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gluster {
    /// Servers that know the volume; at least one.
    pub hosts: Vec<Endpoint>,
    /// The volume.
    pub volume: GlusterVolume,
    /// The file in it.
    pub path: GlusterPath,
}

/// A file of a web server that anybody may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebFile {
    /// In the clear or not.
    pub scheme: Scheme,
    /// The server.
    pub server: Endpoint,
    /// The file, without a leading `/` and without escapes.
    pub path: String,
    /// What follows a `?`. It may be a signature, so only a clone has one.
    pub query: Option<Secret>,
}

/// Why an address cannot be opened by QEMU directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDirect {
    /// It has a user or a password in it.
    Credentials,
    /// It has a query, which may be a signature.
    Query,
    /// It is a server's alone.
    NoFile,
    /// Its path is not text, or has an invisible character in it.
    Path,
    /// It begins with two slashes, of which libvirt makes one.
    Slashes,
    /// Its host is none.
    Host,
}

impl WebFile {
    /// The file at an address, without user and password.
    pub fn of(url: &Url) -> Result<Self, NotDirect> {
        let path = url.decoded_path().ok_or(NotDirect::Path)?;
        if path.starts_with("//") {
            return Err(NotDirect::Slashes);
        }
        let server = Endpoint::new(url.host(), url.port()).ok_or(NotDirect::Host)?;
        Ok(Self {
            scheme: url.scheme(),
            server,
            path: path.trim_start_matches('/').to_owned(),
            query: url.query().cloned(),
        })
    }
}

impl Iscsi {
    /// Where targets listen.
    pub const PORT: u16 = 3260;
}

impl Nbd {
    /// Where servers listen.
    pub const PORT: u16 = 10809;
}

impl Gluster {
    /// Where servers listen.
    pub const PORT: u16 = 24007;
}

impl Network {
    /// The protocol, as libvirt names it.
    #[must_use]
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Iscsi(_) => "iscsi",
            Self::Rbd(_) => "rbd",
            Self::Nbd(_) => "nbd",
            Self::Gluster(_) => "gluster",
            Self::Http(file) => file.scheme.name(),
        }
    }

    /// The storage's name at its server, as libvirt writes it.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Iscsi(unit) => format!("{}/{}", unit.target, unit.lun),
            Self::Rbd(rbd) => format!("{}/{}", rbd.pool, rbd.image),
            Self::Nbd(nbd) => nbd.export.as_str().to_owned(),
            Self::Gluster(file) => format!("{}/{}", file.volume, file.path),
            Self::Http(file) => file.path.clone(),
        }
    }

    /// The servers that have it; none where it is at a socket.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        match self {
            Self::Iscsi(unit) => std::slice::from_ref(&unit.portal),
            Self::Rbd(rbd) => &rbd.monitors,
            Self::Nbd(Nbd {
                server: NbdServer::Tcp(endpoint),
                ..
            }) => std::slice::from_ref(endpoint),
            Self::Nbd(_) => &[],
            Self::Gluster(file) => &file.hosts,
            Self::Http(file) => std::slice::from_ref(&file.server),
        }
    }

    /// Whether the protocol has no way to write.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Http(_))
    }
}

/// For people.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = || {
            let all: Vec<_> = self.endpoints().iter().map(Endpoint::to_string).collect();
            all.join(", ")
        };
        match self {
            Self::Iscsi(_) => write!(f, "iscsi {} at {}", self.name(), at()),
            Self::Rbd(_) => write!(f, "rbd image {} at {}", self.name(), at()),
            Self::Nbd(nbd) => {
                let export = match nbd.export.as_str() {
                    "" => "the default export".to_owned(),
                    name => format!("export {name}"),
                };
                match &nbd.server {
                    NbdServer::Tcp(_) => write!(f, "nbd {export} at {}", at())?,
                    NbdServer::Unix(path) => write!(f, "nbd {export} at socket {path}")?,
                }
                f.write_str(if nbd.tls { " (TLS)" } else { "" })
            }
            Self::Gluster(_) => write!(f, "gluster file {} at {}", self.name(), at()),
            Self::Http(file) => {
                write!(f, "{}://{}/{}", file.scheme.name(), file.server, file.path)?;
                f.write_str(file.query.as_ref().map_or("", |_| "?…"))
            }
        }
    }
}
