//! Sources at servers.

use disklet_flexvolume::{CephUser, Monitor};

use super::source::DiskSource;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::address::{
    ceph_user, iqn, lun, may_hold_a_secret, rbd_name, refuse, server, servers, spanned_int,
};
use crate::manifest::meta::parse_name;
use crate::names::ObjectName;
use crate::source::{
    Endpoint, Gluster, GlusterPath, GlusterVolume, Iqn, Iscsi, Nbd, NbdExport, NbdServer, Network,
    Rbd, SocketPath,
};
use crate::url::{Scheme, Url};
use crate::yaml::{Fields, Spanned, Value, View};

pub(super) fn read_iscsi(
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
        .and_then(|text| target(&text, diags));
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
            let stands = view
                .node
                .get("lun")
                .is_some_and(|it| it.value != Value::Null);
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

/// The field is called as in the seed, and many would put the address there.
fn target(text: &Spanned<String>, diags: &mut Diagnostics) -> Option<Iqn> {
    let is_meant = ["iqn.", "eui.", "naa."]
        .iter()
        .any(|it| text.value.starts_with(it));
    let is_address = !is_meant && Endpoint::parse(&text.value, Iscsi::PORT).is_some();
    if is_address {
        diags.push(
            Diagnostic::error(&text.place, "not an iSCSI name")
                .found(format!("{:?}", text.value))
                .allowed(Iqn::ALLOWED)
                .help("the target's name goes here, its address into host"),
        );
        return None;
    }
    iqn(text, diags)
}

pub(super) fn read_rbd(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
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

pub(super) fn read_nbd(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
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
                "an NBD disk cannot have certificates of its own, nor can a copy of one",
            )
            .allowed("tls: true, with the certificates of the node")
            .help("the node's administrator sets them in libvirt's qemu.conf (nbd_tls) and, for copies, with nbdCertificates in the configuration"),
        );
        return None;
    }
    let host = fields.get("host");
    let unix = fields.spanned_text("unix", diags);
    let tls = tls.map_or(Some(false), |tls| {
        let wanted = tls.bool(diags)?;
        refuse_nameless(wanted && unix.is_some(), &tls.place, diags)?;
        Some(wanted)
    });
    let server = match (host, unix) {
        (Some(host), None) => server(&host, Nbd::PORT, diags).map(NbdServer::Tcp),
        (None, Some(path)) => socket(&path, diags).map(NbdServer::Unix),
        (host, _) => {
            diags.push(match host {
                Some(_) => Diagnostic::error(&view.place, "an NBD server is at one place")
                    .found("host and unix")
                    .help("remove one of the two"),
                None => Diagnostic::error(&view.place, "does not say where the NBD server is")
                    .help("add host: {name: NAME}, or unix: PATH"),
            });
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

/// QEMU compares a certificate with the server's name.
fn refuse_nameless(is_nameless: bool, place: &Place, diags: &mut Diagnostics) -> Option<()> {
    if is_nameless {
        diags.push(
            Diagnostic::error(
                place,
                "a socket has no name that a certificate could be for",
            )
            .help("remove tls: what goes through a socket does not leave the node"),
        );
    }
    (!is_nameless).then_some(())
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

pub(super) fn read_gluster(view: &View<'_>, diags: &mut Diagnostics) -> Option<DiskSource> {
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
pub(super) fn read_http(
    view: &View<'_>,
    wanted: Option<Scheme>,
    diags: &mut Diagnostics,
) -> Option<DiskSource> {
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
    refuse_authorities(&mut fields, diags)?;
    fields.no_others(&["url", "auth"], diags);
    let url = url?;
    if wanted.is_some_and(|wanted| wanted != url.value.scheme()) {
        diags.push(
            Diagnostic::error(&url.place, "not an address that begins with https://")
                .help("write http as the source's kind, or https in the address"),
        );
        return None;
    }
    if url.value.login().is_some() {
        diags.push(
            Diagnostic::error(
                &url.place,
                "an address cannot have a user or a password in it",
            )
            .help("put them into a Secret, and name it with auth: {secretRef: NAME}"),
        );
        return None;
    }
    Some(DiskSource::Http { url, auth: auth? })
}

/// Fields by which people would have a web server known by an authority of its own.
const AUTHORITIES: [&str; 7] = [
    "ca",
    "caBundle",
    "caFile",
    "caSecretRef",
    "certificates",
    "tls",
    "tlsSecretRef",
];

/// QEMU's driver, which reads for copies as well, goes by the node's authorities.
fn refuse_authorities(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<()> {
    let Some(own) = AUTHORITIES.iter().find_map(|key| fields.get(key)) else {
        return Some(());
    };
    diags.push(
        Diagnostic::error(
            &own.place,
            "a web server cannot have certificates of its own: QEMU, which reads for copies as well, knows those of the node",
        )
        .help("have the node trust the server's authority, or have the file fetched, with source: {image: {name: https://…}}: its mapping takes tls"),
    );
    None
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
    if may_hold_a_secret(&name.value) {
        diags.push(
            Diagnostic::error(&name.place, "not the name of a Secret")
                .allowed(ObjectName::RULE.allowed)
                .help("put the key into a Secret, and name that"),
        );
        return None;
    }
    parse_name(name, ObjectName::parse, diags).map(Some)
}
