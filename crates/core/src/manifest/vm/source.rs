//! Where a VM object's disk comes from.

use disklet_flexvolume::{CephUser, Monitor};

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::address::{
    ceph_user, iqn, lun, rbd_name, refuse, server, servers, spanned_int,
};
use crate::manifest::meta::{parse_name, required_name};
use crate::names::{ImageName, ObjectName};
use crate::source::{
    Gluster, GlusterPath, GlusterVolume, Iscsi, Nbd, NbdExport, NbdServer, Network, Rbd, SocketPath,
};
use crate::url::Url;
use crate::yaml::{Fields, Spanned, Value, View};

/// The source of a disk.
#[derive(Debug, Clone)]
pub enum DiskSource {
    /// Storage at a server.
    Network {
        /// Which.
        network: Network,
        /// The Secret with the key.
        auth: Option<Spanned<ObjectName>>,
    },
    /// A file of a web server.
    Http {
        /// Its address.
        url: Spanned<Url>,
        /// The Secret with user and password.
        auth: Option<Spanned<ObjectName>>,
    },
    /// A claim.
    Claim {
        /// Its name.
        name: Spanned<ObjectName>,
        /// A disk image that is missing in it is made.
        create: bool,
    },
    /// A container that makes the storage.
    Container {
        /// The container's image.
        image: Spanned<String>,
    },
    /// An image for the store.
    Image(Spanned<ImageName>),
}

const KINDS: [&str; 9] = [
    "iscsi",
    "rbd",
    "nbd",
    "gluster",
    "http",
    "https",
    "pvc",
    "container",
    "image",
];

impl DiskSource {
    /// Reads a source that names its kind: exactly one.
    pub(crate) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Spanned<Self>> {
        let mut fields = view.fields(diags)?;
        // Beside `iscsi`, as storage containers answer.
        let unit = match view.node.get("iscsi") {
            Some(_) => spanned_int(&mut fields, "lun", diags),
            None => None,
        };
        let mut kinds = fields.unread().into_iter();
        let Some((kind, source)) = kinds.next() else {
            diags.push(
                Diagnostic::error(&view.place, "the disk has no source").allowed(KINDS.join(", ")),
            );
            return None;
        };
        if let Some((second, at)) = kinds.next() {
            let known = KINDS.contains(&kind) && KINDS.contains(&second);
            let stranger = [(kind, &source), (second, &at)]
                .into_iter()
                .find(|(key, _)| !KINDS.contains(key));
            diags.push(match stranger {
                Some((key, at)) if !known => unknown(key, &at.place),
                _ => Diagnostic::error(&at.place, "a disk has one source")
                    .found(format!("{kind} and {second}"))
                    .help("remove one of the two, or make two disks of them"),
            });
            return None;
        }
        let value = Self::of_kind(kind, &source, unit, diags)?;
        let place = source.place;
        Some(Spanned { value, place })
    }

    fn of_kind(
        kind: &str,
        view: &View<'_>,
        unit: Option<Spanned<i64>>,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        match kind {
            "iscsi" => read_iscsi(view, unit, diags),
            "rbd" => read_rbd(view, diags),
            "nbd" => read_nbd(view, diags),
            "gluster" => read_gluster(view, diags),
            "http" | "https" => read_http(view, diags),
            "pvc" => read_claim(view, &["claimname", "claimName"], diags),
            "container" => read_container(view, diags),
            "image" => read_image(view, diags),
            other => {
                diags.push(unknown(other, &view.place));
                None
            }
        }
    }

    /// Reads the source of a disk of type `PersistentVolumeClaim`.
    pub(super) fn read_typed(view: &View<'_>, diags: &mut Diagnostics) -> Option<Spanned<Self>> {
        let other = KINDS.iter().find(|kind| view.node.get(kind).is_some());
        if let Some(kind) = other {
            diags.push(
                Diagnostic::error(&view.place, "a disk has one source")
                    .found(format!("type: PersistentVolumeClaim and {kind}"))
                    .help("remove type, or name the claim with source.name"),
            );
            return None;
        }
        let value = read_claim(view, &["name"], diags)?;
        let place = view.place.clone();
        Some(Spanned { value, place })
    }
}

fn unknown(key: &str, place: &Place) -> Diagnostic {
    Diagnostic::error(place, format!("{key:?} is no source of a disk"))
        .allowed(KINDS.join(", "))
        .did_you_mean(key, KINDS)
}

fn read_iscsi(
    view: &View<'_>,
    beside: Option<Spanned<i64>>,
    diags: &mut Diagnostics,
) -> Option<DiskSource> {
    let mut fields = view.fields(diags)?;
    let portal = fields
        .required("host", diags)
        .and_then(|host| server(&host, Iscsi::PORT, diags));
    let target = fields
        .required_text("portal", diags)
        .and_then(|text| iqn(&text, diags));
    let within = spanned_int(&mut fields, "lun", diags);
    let initiator = fields.spanned_text("initiator", diags);
    let wrong_initiator = initiator.is_some();
    let initiator = initiator.and_then(|text| iqn(&text, diags));
    let auth = read_auth(&mut fields, diags);
    let unit = match (within, beside) {
        (Some(_), Some(beside)) => {
            diags.push(
                Diagnostic::error(&beside.place, "the number of the unit stands twice")
                    .help("keep the one within iscsi"),
            );
            None
        }
        (Some(unit), None) | (None, Some(unit)) => lun(&unit, diags),
        (None, None) => {
            // Reported as missing, unless something that is none stands there.
            let stands = view.node.get("lun").is_some();
            if !stands {
                fields.required("lun", diags);
            }
            None
        }
    };
    fields.no_others(&["host", "portal", "lun", "auth", "initiator"], diags);
    if wrong_initiator && initiator.is_none() {
        return None;
    }
    let network = Network::Iscsi(Iscsi {
        portal: portal?,
        target: target?,
        lun: unit?,
        initiator,
    });
    Some(DiskSource::Network {
        network,
        auth: auth?,
    })
}

fn read_rbd(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
    let mut fields = view.fields(diags)?;
    let monitors = servers(&mut fields, "monitors", Monitor::DEFAULT_PORT, diags);
    let pool = fields
        .required_text("pool", diags)
        .and_then(|text| rbd_name(&text, "a pool", diags));
    let image = fields
        .required_text("image", diags)
        .and_then(|text| rbd_name(&text, "an rbd image", diags));
    let user = match fields.spanned_text("user", diags) {
        Some(text) => ceph_user(&text, diags),
        None => Some(CephUser::default()),
    };
    let auth = read_auth(&mut fields, diags);
    fields.no_others(&["monitors", "pool", "image", "user", "auth"], diags);
    let network = Network::Rbd(Rbd {
        monitors: monitors?,
        pool: pool?,
        image: image?,
        user: user?,
    });
    Some(DiskSource::Network {
        network,
        auth: auth?,
    })
}

/// Fields by which people would give an NBD disk certificates of its own.
const CERTIFICATES: [&str; 6] = [
    "auth",
    "ca",
    "caSecretRef",
    "certificates",
    "secretRef",
    "tlsSecretRef",
];

fn read_nbd(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
    let mut fields = view.fields(diags)?;
    let tls = fields.get("tls");
    let own = CERTIFICATES.iter().find_map(|key| fields.get(key));
    let own = own.or(tls
        .clone()
        .filter(|tls| matches!(tls.node.value, Value::Map(_))));
    if let Some(own) = own {
        diags.push(
            Diagnostic::error(
                &own.place,
                "an NBD disk cannot have certificates of its own",
            )
            .allowed("tls: true, with the certificates of the node")
            .help("the node's administrator sets them in libvirt's qemu.conf (nbd_tls)"),
        );
        return None;
    }
    let tls = tls.map_or(Some(false), |tls| tls.bool(diags));
    let host = fields.get("host");
    let unix = fields.spanned_text("unix", diags);
    let server = match (host, unix) {
        (Some(host), None) => server(&host, Nbd::PORT, diags).map(NbdServer::Tcp),
        (None, Some(path)) => socket(&path, diags).map(NbdServer::Unix),
        (host, _) => {
            let problem = match host {
                Some(_) => "an NBD server is at one place",
                None => "says not where the NBD server is",
            };
            diags.push(Diagnostic::error(&view.place, problem).allowed("host, or unix"));
            None
        }
    };
    let export = match fields.spanned_text("export", diags) {
        None => NbdExport::parse(""),
        Some(text) => {
            let export = NbdExport::parse(&text.value);
            if export.is_none() {
                refuse(
                    &text.place,
                    NbdExport::WHAT,
                    &text.value,
                    NbdExport::ALLOWED,
                    diags,
                );
            }
            export
        }
    };
    fields.no_others(&["host", "unix", "export", "tls"], diags);
    let network = Network::Nbd(Nbd {
        server: server?,
        export: export?,
        tls: tls?,
    });
    Some(DiskSource::Network {
        network,
        auth: None,
    })
}

fn socket(path: &Spanned<String>, diags: &mut Diagnostics) -> Option<SocketPath> {
    let read = SocketPath::parse(&path.value);
    if read.is_none() {
        refuse(
            &path.place,
            SocketPath::WHAT,
            &path.value,
            SocketPath::ALLOWED,
            diags,
        );
    }
    read
}

fn read_gluster(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
    let mut fields = view.fields(diags)?;
    let hosts = servers(&mut fields, "hosts", Gluster::PORT, diags);
    let volume = fields.required_text("volume", diags).and_then(|text| {
        let read = GlusterVolume::parse(&text.value);
        if read.is_none() {
            refuse(
                &text.place,
                GlusterVolume::WHAT,
                &text.value,
                GlusterVolume::ALLOWED,
                diags,
            );
        }
        read
    });
    let path = fields.required_text("path", diags).and_then(|text| {
        let read = GlusterPath::parse(text.value.trim_start_matches('/'));
        if read.is_none() {
            refuse(
                &text.place,
                GlusterPath::WHAT,
                &text.value,
                GlusterPath::ALLOWED,
                diags,
            );
        }
        read
    });
    fields.no_others(&["hosts", "volume", "path"], diags);
    let network = Network::Gluster(Gluster {
        hosts: hosts?,
        volume: volume?,
        path: path?,
    });
    Some(DiskSource::Network {
        network,
        auth: None,
    })
}

/// The address itself is not shown if it is wrong: a password may be in it.
fn read_http(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
    let mut fields = view.fields(diags)?;
    let url = fields
        .required_text("url", diags)
        .and_then(|text| match Url::parse(&text.value) {
            Ok(url) => Some(text.map(|_| url)),
            Err(error) => {
                diags.push(
                    Diagnostic::error(&text.place, format!("not an address of a file: it {error}"))
                        .allowed("such as https://images.example.com/debian.raw"),
                );
                None
            }
        });
    let auth = read_auth(&mut fields, diags);
    fields.no_others(&["url", "auth"], diags);
    Some(DiskSource::Http {
        url: url?,
        auth: auth?,
    })
}

fn read_claim(view: &View<'_>, keys: &[&str], diags: &mut Diagnostics) -> Option<DiskSource> {
    let mut fields = view.fields(diags)?;
    let written = keys.iter().find(|key| view.node.get(key).is_some());
    let key = written.copied().unwrap_or(keys[0]);
    let name = required_name(&mut fields, key, ObjectName::parse, diags);
    let create = fields.flag("create", diags);
    let mut known = keys.to_vec();
    known.push("create");
    fields.no_others(&known, diags);
    Some(DiskSource::Claim {
        name: name?,
        create,
    })
}

/// The rest of it is the container's own business.
fn read_container(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
    let mut fields = view.fields(diags)?;
    let image = fields.required_text("image", diags)?;
    if image.value.is_empty() || image.value.chars().any(char::is_whitespace) {
        refuse(
            &image.place,
            "a container image",
            &image.value,
            "a name without blanks, such as registry.example.com/volumes:1",
            diags,
        );
        return None;
    }
    Some(DiskSource::Container { image })
}

fn read_image(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
    let mut fields = view.fields(diags)?;
    let name = fields.required_text("name", diags);
    fields.no_others(&["name"], diags);
    let name = name?;
    match ImageName::parse(&name.value) {
        Ok(image) => Some(DiskSource::Image(name.map(|_| image))),
        Err(error) => {
            let problem = Diagnostic::error(&name.place, format!("the image name {error}"));
            let hidden = error == crate::names::ImageNameError::Credentials;
            diags.push(match hidden {
                true => problem,
                false => problem.found(format!("{:?}", name.value)),
            });
            None
        }
    }
}

/// The Secret of `auth: {secretRef: NAME}`; the name may stand in a mapping, as
/// Kubernetes writes it. Nothing at all if it was refused.
#[expect(
    clippy::option_option,
    reason = "absent and refused are different things"
)]
fn read_auth(
    fields: &mut Fields<'_>,
    diags: &mut Diagnostics,
) -> Option<Option<Spanned<ObjectName>>> {
    let Some(view) = fields.get("auth") else {
        return Some(None);
    };
    let mut auth = view.fields(diags)?;
    let reference = auth.required("secretRef", diags);
    auth.no_others(&["secretRef"], diags);
    let reference = reference?;
    let name = match reference.node.value {
        Value::Map(_) => {
            let mut inner = reference.fields(diags)?;
            let name = inner.required_text("name", diags);
            inner.no_others(&["name"], diags);
            name?
        }
        _ => reference.spanned_text(diags)?,
    };
    parse_name(name, ObjectName::parse, diags).map(Some)
}
