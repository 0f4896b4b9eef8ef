//! The master of a disk: where the bytes are, and how to have them.

use super::Vm;
use super::disk::written_format;
use super::matrix::Writable;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{Format, KeyKind};
use crate::manifest::{ContainerSpec, DiskSource, DiskSpec, PersistentVolume};
use crate::names::{ImageName, ObjectName, PoolName, VolumeName};
use crate::plan::{
    Claimed, CopyMode, Later, Migration, NetworkKey, Size, Source, Storage, StorageContainer,
};
use crate::resolve::keys::Login;
use crate::resolve::{Reference, Resolver};
use crate::source::{Nbd, NbdServer, Network, NotDirect, WebFile};
use crate::text::Secret;
use crate::url::Url;
use crate::yaml::Spanned;

/// A master, and what is known of it.
pub(super) struct Found<'v> {
    pub(super) source: Source,
    pub(super) format: Format,
    pub(super) size: Size,
    pub(super) writable: Writable,
    pub(super) migration: Migration,
    pub(super) storage: Option<Storage>,
    pub(super) claim: Option<Claimed>,
    /// The volume that the claim is bound to.
    pub(super) volume: Option<&'v PersistentVolume>,
    /// The pool that holds it, if it is a file of ours.
    pub(super) pool: Option<PoolName>,
    /// Servers by name, whose addresses are to be checked on the node.
    pub(super) server_names: Vec<String>,
}

/// Who asks a server.
pub(super) enum ServerLogin {
    /// Nobody in particular.
    None,
    /// Who has this key.
    Key(NetworkKey),
    /// Who has the key in a Secret that cannot be seen.
    Hidden(Reference),
}

impl Found<'_> {
    /// Storage at a server.
    pub(super) fn at_server(network: Network, login: ServerLogin, format: Format) -> Self {
        Found {
            format,
            size: Size::OnNode,
            writable: match network.is_read_only() {
                true => Writable::Protocol,
                false => Writable::Yes,
            },
            // A socket is the node's own.
            migration: match &network {
                Network::Nbd(Nbd {
                    server: NbdServer::Unix(_),
                    ..
                }) => Migration::Copied,
                _ => Migration::Shared,
            },
            storage: Some(Storage::of_network(&network)),
            claim: None,
            volume: None,
            pool: None,
            server_names: Vec::new(),
            source: match login {
                ServerLogin::None => Source::Network { network, key: None },
                ServerLogin::Key(key) => Source::Network {
                    network,
                    key: Some(key),
                },
                ServerLogin::Hidden(secret) => Source::Later(Later::AtLaunch {
                    storage: Some(format!("{} {}", network.protocol(), network.name())),
                    needs: secret,
                }),
            },
        }
    }

    /// Storage behind something that cannot be seen. Nothing is assumed of it that
    /// could be a reason to refuse a disk.
    pub(super) fn at_launch(needs: Reference) -> Self {
        Found {
            source: Source::Later(Later::AtLaunch {
                storage: None,
                needs,
            }),
            format: Format::Raw,
            size: Size::OnNode,
            writable: Writable::Yes,
            migration: Migration::Unknown,
            storage: None,
            claim: None,
            volume: None,
            pool: None,
            server_names: Vec::new(),
        }
    }
}

impl<'r> Resolver<'r> {
    pub(super) fn master(
        &'r self,
        vm: Vm<'_>,
        spec: &DiskSpec,
        name: &VolumeName,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        let source = spec.source.as_ref()?;
        self.tell_idle_driver(spec, diags);
        match &source.value {
            DiskSource::Claim {
                name: claim,
                create,
            } => self.claim_master(vm, spec, name, claim, *create, diags),
            DiskSource::Image(image) => self.image_master(spec, image, diags),
            DiskSource::Container(container) => {
                self.container_master(vm, spec, name, container, diags)
            }
            direct => self.direct_master(vm, spec, name, direct, &source.place, diags),
        }
    }

    /// Storage that QEMU opens itself, or that is read for a clone.
    fn direct_master(
        &self,
        vm: Vm<'_>,
        spec: &DiskSpec,
        name: &VolumeName,
        source: &DiskSource,
        place: &Place,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        let format = written_format(spec);
        match source {
            DiskSource::Network { network, auth } => {
                self.check_socket(network, place, diags)?;
                check_family(network, place, diags)?;
                let server_names = self.names_to_check(network.endpoints(), place, diags);
                let login = match auth {
                    Some(secret) => self.server_key(vm, name, network, secret, diags)?,
                    None => {
                        tell_no_key(network, place, diags);
                        ServerLogin::None
                    }
                };
                Some(Found {
                    server_names: server_names?,
                    ..Found::at_server(network.clone(), login, format)
                })
            }
            DiskSource::Http { url, auth } => {
                self.web_master(vm, spec, name, url, auth.as_ref(), diags)
            }
            DiskSource::Claim { .. } | DiskSource::Container(_) | DiskSource::Image(_) => {
                diags.push(
                    Diagnostic::error(place, "not storage that a container can answer with")
                        .allowed("iscsi, rbd, nbd, gluster, http, pvc"),
                );
                None
            }
        }
    }

    /// A socket is a path of the node, so not any is a tenant's to name.
    fn check_socket(
        &self,
        network: &Network,
        place: &Place,
        diags: &mut Diagnostics,
    ) -> Option<()> {
        let Network::Nbd(Nbd {
            server: NbdServer::Unix(path),
            ..
        }) = network
        else {
            return Some(());
        };
        let directory = format!("{}/nbd/", self.config.run_dir);
        if path.as_str().starts_with(&directory) || self.unseen.configuration {
            return Some(());
        }
        diags.push(
            Diagnostic::error(place, "not a socket that VMs may use")
                .found(path.as_str())
                .allowed(format!("sockets below {directory}"))
                .help("the node's administrator has the NBD server listen there"),
        );
        None
    }

    fn server_key(
        &self,
        vm: Vm<'_>,
        name: &VolumeName,
        network: &Network,
        secret: &Spanned<ObjectName>,
        diags: &mut Diagnostics,
    ) -> Option<ServerLogin> {
        let namespace = vm.namespace();
        if let Some(hidden) = self.hidden_secret(namespace, &secret.value) {
            return Some(ServerLogin::Hidden(hidden));
        }
        Some(ServerLogin::Key(match network {
            Network::Rbd(rbd) => NetworkKey {
                uuid: vm.derived("ceph", name),
                user: rbd.user.as_str().to_owned(),
                kind: KeyKind::Ceph,
                key: self.ceph_key(namespace, secret, diags)?,
            },
            _ => iscsi_key(vm, name, self.chap(namespace, secret, diags)?),
        }))
    }

    /// What reads for a clone can log in; the QEMU of a guest is not told any secret.
    fn web_master(
        &self,
        vm: Vm<'_>,
        spec: &DiskSpec,
        name: &VolumeName,
        url: &Spanned<Url>,
        auth: Option<&Spanned<ObjectName>>,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        let is_clone = spec
            .copy
            .as_ref()
            .is_some_and(|copy| copy.mode.value == CopyMode::Clone);
        let login = self.web_key(vm, name, auth, diags)?;
        let place = auth.map_or(&url.place, |secret| &secret.place);
        let file = match (WebFile::of(&url.value), is_clone) {
            (Ok(file), true) => file,
            (Ok(file), false) if file.query.is_none() && !file.path.is_empty() => file,
            (Ok(file), false) => {
                let why = match file.query {
                    Some(_) => NotDirect::Query,
                    None => NotDirect::NoFile,
                };
                diags.push(not_direct(why, &url.place));
                return None;
            }
            (Err(why), _) => {
                diags.push(not_direct(why, &url.place));
                return None;
            }
        };
        if auth.is_some() && !is_clone {
            diags.push(not_direct(NotDirect::Credentials, place));
            return None;
        }
        let network = Network::Http(file);
        let server_names = self.names_to_check(network.endpoints(), &url.place, diags);
        // A clone is read by us, who judge every address that a server leads to.
        if !is_clone {
            self.demand_web(&url.place, diags)?;
        }
        Some(Found {
            server_names: server_names?,
            ..Found::at_server(network, login, written_format(spec))
        })
    }

    fn web_key(
        &self,
        vm: Vm<'_>,
        name: &VolumeName,
        auth: Option<&Spanned<ObjectName>>,
        diags: &mut Diagnostics,
    ) -> Option<ServerLogin> {
        let Some(secret) = auth else {
            return Some(ServerLogin::None);
        };
        if let Some(hidden) = self.hidden_secret(vm.namespace(), &secret.value) {
            return Some(ServerLogin::Hidden(hidden));
        }
        let login = self.web_login(vm.namespace(), secret, diags)?;
        Some(ServerLogin::Key(NetworkKey {
            uuid: vm.derived("http", name),
            user: login.user,
            kind: KeyKind::Web,
            key: login.password,
        }))
    }

    /// An image of the store, which is raw there whatever it was.
    fn image_master(
        &self,
        spec: &DiskSpec,
        image: &Spanned<ImageName>,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        if let Some(format) = &spec.format {
            diags.push(
                Diagnostic::error(
                    &format.place,
                    "an image's format is found out when it is pulled",
                )
                .help("remove format"),
            );
        }
        let stored = self.stored_image(&image.value);
        Some(Found {
            source: Source::Image {
                image: image.value.clone(),
                digest: stored.digest,
                store_file: stored.file,
            },
            format: Format::Raw,
            size: stored.size.map_or(Size::AfterPull, Size::Known),
            writable: Writable::Image,
            // It is in the node's own store.
            migration: Migration::Copied,
            storage: None,
            claim: None,
            volume: None,
            pool: None,
            server_names: Vec::new(),
        })
    }

    /// What the container has answered, if somebody has asked it.
    fn container_master(
        &'r self,
        vm: Vm<'_>,
        spec: &DiskSpec,
        name: &VolumeName,
        container: &ContainerSpec,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        let meta = &vm.object.meta;
        let asked = format!("{}/{}/{name}", meta.namespace, meta.name);
        if let Some(answer) = self.facts.answers.get(&asked) {
            let place = &answer.place;
            return match &answer.value {
                DiskSource::Claim {
                    name: claim,
                    create,
                } => self.claim_master(vm, spec, name, claim, *create, diags),
                source => self.direct_master(vm, spec, name, source, place, diags),
            };
        }
        Some(Found {
            source: Source::Later(Later::Container {
                container: StorageContainer {
                    image: container.image.value.clone(),
                    fields: container.fields.clone(),
                    environment: self.container_environment(vm.namespace(), container, diags),
                },
                id: vm.derived("container", name),
            }),
            format: written_format(spec),
            size: Size::OnNode,
            writable: Writable::Yes,
            migration: Migration::Unknown,
            storage: None,
            claim: None,
            volume: None,
            pool: None,
            server_names: Vec::new(),
        })
    }

    fn tell_idle_driver(&self, spec: &DiskSpec, diags: &mut Diagnostics) {
        let is_claim = matches!(
            spec.source.as_ref().map(|source| &source.value),
            Some(DiskSource::Claim { .. } | DiskSource::Container(_))
        );
        if let (Some(driver), false) = (&spec.driver, is_claim) {
            diags.push(
                Diagnostic::error(&driver.place, "only a claim has a driver")
                    .help("remove driver: the source says how it is opened"),
            );
        }
    }
}

/// The secret of a target.
pub(super) fn iscsi_key(vm: Vm<'_>, name: &VolumeName, login: Login) -> NetworkKey {
    NetworkKey {
        uuid: vm.derived("iscsi", name),
        user: login.user,
        kind: KeyKind::Iscsi,
        key: Secret::new(login.password.expose()),
    }
}

/// QEMU's Gluster driver takes the colons of IPv6 for something else.
pub(super) fn check_family(
    network: &Network,
    place: &Place,
    diags: &mut Diagnostics,
) -> Option<()> {
    let Network::Gluster(file) = network else {
        return Some(());
    };
    let mut hosts = file.hosts.iter();
    let Some(host) = hosts.find(|endpoint| endpoint.host().contains(':')) else {
        return Some(());
    };
    diags.push(
        Diagnostic::error(place, "QEMU's Gluster driver cannot use an IPv6 address")
            .found(host)
            .allowed("an IPv4 address, or a DNS name"),
    );
    None
}

/// A user without a key is nobody to a cluster that asks.
pub(super) fn tell_no_key(network: &Network, place: &Place, diags: &mut Diagnostics) {
    if let Network::Rbd(_) = network {
        diags.push(
            Diagnostic::notice(place, "without a Secret the cluster is used without cephx")
                .help("name the Secret with the user's key, unless the cluster asks for none"),
        );
    }
}

fn not_direct(why: NotDirect, place: &Place) -> Diagnostic {
    let clone = "use copy: {mode: clone}, which downloads it";
    match why {
        NotDirect::Credentials => Diagnostic::error(
            place,
            "QEMU cannot be given a user and a password for a web server",
        )
        .help(clone),
        NotDirect::Query => Diagnostic::error(
            place,
            "QEMU cannot be given an address with a query: it may be a signature",
        )
        .help(clone),
        NotDirect::NoFile => Diagnostic::error(place, "the address has no path to a file")
            .allowed("such as https://images.example.com/debian.raw"),
        NotDirect::Path => Diagnostic::error(
            place,
            "the address has a path that is not text, or with an invisible character",
        )
        .help("have the server give the file another path"),
        NotDirect::Slashes => Diagnostic::error(
            place,
            "the address has a path that begins with two slashes, of which libvirt makes one",
        )
        .help("have one there, or have the server give the file another path"),
        NotDirect::Host => Diagnostic::error(place, "the address has a host that is none")
            .allowed(crate::source::Endpoint::ALLOWED),
    }
}
