//! Where a VM object's disk comes from.

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::address::{may_hold_a_secret, spanned_int};
use crate::manifest::meta::required_name;
use crate::names::{ImageName, ObjectName};
use crate::source::Network;
use crate::url::Scheme;
use crate::url::Url;
use crate::yaml::{Spanned, View};

use super::container::ContainerSpec;
use super::servers::{read_gluster, read_http, read_iscsi, read_nbd, read_rbd};

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
    Container(Box<ContainerSpec>),
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

/// Who says what the source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Author {
    /// A manifest.
    User,
    /// A container that has made the storage.
    Container,
}

impl Author {
    /// What it may name: a container makes storage, and no other container.
    fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::User => &KINDS,
            Self::Container => &KINDS[..7],
        }
    }

    fn unknown(self, key: &str, place: &Place) -> Diagnostic {
        let kinds = self.kinds();
        let problem = match (self, KINDS.contains(&key)) {
            (Self::Container, true) => Diagnostic::error(
                place,
                format!("{key:?} is not storage that a container can answer with"),
            ),
            _ => Diagnostic::error(place, format!("{key:?} is no source of a disk")),
        };
        let problem = problem.allowed(kinds.join(", "));
        problem.did_you_mean(key, kinds.iter().copied())
    }

    fn nothing(self, place: &Place) -> Diagnostic {
        let problem = match self {
            Self::User => "the disk has no source",
            Self::Container => "the answer has no source for the disk",
        };
        Diagnostic::error(place, problem).allowed(self.kinds().join(", "))
    }

    fn two(self, kinds: [&str; 2], place: &Place) -> Diagnostic {
        let [first, second] = kinds;
        let problem = match self {
            Self::User => Diagnostic::error(place, "a disk has one source")
                .help("remove one of the two, or make two disks of them"),
            Self::Container => Diagnostic::error(place, "the answer has two sources for one disk")
                .help("have the container answer with one of the two"),
        };
        problem.found(format!("{first} and {second}"))
    }
}

impl DiskSource {
    /// Reads a source that names its kind: exactly one.
    pub(crate) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Spanned<Self>> {
        Self::read_by(Author::User, view, diags)
    }

    /// Reads what a container has answered.
    pub(crate) fn read_answer(view: &View<'_>, diags: &mut Diagnostics) -> Option<Spanned<Self>> {
        Self::read_by(Author::Container, view, diags)
    }

    fn read_by(author: Author, view: &View<'_>, diags: &mut Diagnostics) -> Option<Spanned<Self>> {
        let mut fields = view.fields(diags)?;
        // Beside `iscsi`, as storage containers answer.
        let unit = match view.node.get("iscsi") {
            Some(_) => spanned_int(&mut fields, "lun", diags),
            None => None,
        };
        let mut kinds = fields.unread().into_iter();
        let Some((kind, source)) = kinds.next() else {
            diags.push(author.nothing(&view.place));
            return None;
        };
        let second = kinds.next();
        let both = [
            Some((kind, &source)),
            second.as_ref().map(|(key, at)| (*key, at)),
        ];
        let strange = |(key, _): &(&str, _)| !author.kinds().contains(key);
        let stranger = both.into_iter().flatten().find(strange);
        let problem = match (stranger, &second) {
            (Some((key, at)), _) => Some(author.unknown(key, &at.place)),
            (None, Some((second, at))) => Some(author.two([kind, second], &at.place)),
            (None, None) => None,
        };
        if let Some(problem) = problem {
            diags.push(problem);
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
            "http" => read_http(view, None, diags),
            "https" => read_http(view, Some(Scheme::Https), diags),
            "pvc" => read_claim(view, &["claimname", "claimName"], diags),
            "container" => ContainerSpec::read(view, diags).map(|it| Self::Container(Box::new(it))),
            "image" => read_image(view, diags),
            _ => None,
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

fn read_image(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
    let mut fields = view.fields(diags)?;
    let name = fields.required_text("name", diags);
    fields.no_others(&["name"], diags);
    let name = name?;
    match ImageName::parse(&name.value) {
        Ok(image) => Some(DiskSource::Image(name.map(|_| image))),
        Err(error) => {
            let problem = Diagnostic::error(&name.place, format!("the image name {error}"))
                .allowed("such as https://images.example.com/debian.qcow2, or a name that the node's mapping knows")
                .help(match may_hold_a_secret(&name.value) {
                    true => "credentials are told in the image mapping, or by imagePullSecrets of the service account",
                    false => "correct the name",
                });
            diags.push(match may_hold_a_secret(&name.value) {
                true => problem,
                false => problem.found(format!("{:?}", name.value)),
            });
            None
        }
    }
}
