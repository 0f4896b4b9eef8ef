//! Addresses and names of network storage, checked where they stand: in the
//! disks of VMs and in PersistentVolumes alike.

use disklet_flexvolume::{CephUser, RbdName};

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::source::{Endpoint, Iqn, Lun};
use crate::yaml::{Fields, Spanned, Value, View};

/// Whether a text that is no name may be a password or a key instead, or have
/// one in it: then it is not repeated.
pub(crate) fn may_hold_a_secret(text: &str) -> bool {
    text.contains(['@', '=', '?'])
}

/// Reports a value that is not what it should be.
pub(crate) fn refuse(
    place: &Place,
    what: &str,
    found: &str,
    allowed: &str,
    diags: &mut Diagnostics,
) {
    let problem = Diagnostic::error(place, format!("not {what}")).allowed(allowed);
    diags.push(match may_hold_a_secret(found) {
        true => problem,
        false => problem.found(format!("{found:?}")),
    });
}

/// `host[:port]`.
pub(crate) fn endpoint(
    text: &Spanned<String>,
    default_port: u16,
    diags: &mut Diagnostics,
) -> Option<Endpoint> {
    let read = Endpoint::parse(&text.value, default_port);
    if read.is_none() {
        let allowed = format!(
            "{}, with a port from 1 to 65535 after a colon if it is not {default_port}; IPv6 with a port in brackets",
            Endpoint::ALLOWED
        );
        refuse(
            &text.place,
            "an address of a server",
            &text.value,
            &allowed,
            diags,
        );
    }
    read
}

/// A name of a target or an initiator.
pub(crate) fn iqn(text: &Spanned<String>, diags: &mut Diagnostics) -> Option<Iqn> {
    let read = Iqn::parse(&text.value);
    if read.is_none() {
        refuse(
            &text.place,
            "an iSCSI name",
            &text.value,
            Iqn::ALLOWED,
            diags,
        );
    }
    read
}

/// The number of a unit.
pub(crate) fn lun(number: &Spanned<i64>, diags: &mut Diagnostics) -> Option<Lun> {
    let read = Lun::new(number.value);
    if read.is_none() {
        diags.push(
            Diagnostic::error(&number.place, "not the number of a unit")
                .found(number.value)
                .allowed(Lun::ALLOWED),
        );
    }
    read
}

/// What does not end a name for QEMU's driver, or begin something else.
const ALLOWED_RBD_NAME: &str = "1 to 255 bytes without '/', '@', ':', '=', ',', a backslash and invisible characters, not beginning with '-'";

/// A pool or an image.
pub(crate) fn rbd_name(
    text: &Spanned<String>,
    what: &str,
    diags: &mut Diagnostics,
) -> Option<RbdName> {
    match RbdName::parse(&text.value) {
        Ok(name) => Some(name),
        Err(error) => {
            let problem = Diagnostic::error(&text.place, format!("not {what}: {error}"))
                .allowed(ALLOWED_RBD_NAME);
            diags.push(match may_hold_a_secret(&text.value) {
                true => problem,
                false => problem.found(format!("{:?}", text.value)),
            });
            None
        }
    }
}

/// A Ceph user.
pub(crate) fn ceph_user(text: &Spanned<String>, diags: &mut Diagnostics) -> Option<CephUser> {
    match CephUser::parse(&text.value) {
        Ok(user) => Some(user),
        Err(error) => {
            let problem = Diagnostic::error(&text.place, format!("not a Ceph user: {error}"))
                .allowed("the name after \"client.\", such as admin");
            diags.push(match may_hold_a_secret(&text.value) {
                true => problem,
                false => problem.found(format!("{:?}", text.value)),
            });
            None
        }
    }
}

/// A whole number with its place.
pub(super) fn spanned_int(
    fields: &mut Fields<'_>,
    key: &str,
    diags: &mut Diagnostics,
) -> Option<Spanned<i64>> {
    let view = fields.get(key)?;
    let value = view.int(diags)?;
    let place = view.place;
    Some(Spanned { value, place })
}

/// A server as `{name, port}` or as `host[:port]`.
pub(super) fn server(
    view: &View<'_>,
    default_port: u16,
    diags: &mut Diagnostics,
) -> Option<Endpoint> {
    if let Value::Str(_) = view.node.value {
        return endpoint(&view.spanned_text(diags)?, default_port, diags);
    }
    let mut fields = view.fields(diags)?;
    let name = fields.required_text("name", diags);
    let port = match fields.get("port") {
        Some(view) => port(&view, diags),
        None => Some(default_port),
    };
    fields.no_others(&["name", "port"], diags);
    let (name, port) = (name?, port?);
    let read = Endpoint::new(&name.value, port);
    if read.is_none() {
        refuse(&name.place, "a host", &name.value, Endpoint::ALLOWED, diags);
    }
    read
}

fn port(view: &View<'_>, diags: &mut Diagnostics) -> Option<u16> {
    let text = view.scalar_text(diags)?;
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port > 0);
    if port.is_none() {
        refuse(
            &view.place,
            "a port",
            text,
            "a number from 1 to 65535",
            diags,
        );
    }
    port
}

/// At least one server.
pub(super) fn servers(
    fields: &mut Fields<'_>,
    key: &str,
    default_port: u16,
    diags: &mut Diagnostics,
) -> Option<Vec<Endpoint>> {
    let view = fields.required(key, diags)?;
    let items = view.items(diags);
    if items.is_empty() && matches!(view.node.value, Value::Seq(_)) {
        diags.push(Diagnostic::error(&view.place, "names no server").allowed("at least one"));
    }
    let count = items.len();
    let read: Vec<_> = items
        .iter()
        .filter_map(|item| server(item, default_port, diags))
        .collect();
    (!read.is_empty() && read.len() == count).then_some(read)
}
