//! Domains that are in the way of a VM's own: libvirt takes a name once, and a
//! UUID once.

use disklet_core::plan::Plan;

use crate::failure::{Failure, Result};
use crate::libvirt::{Known, Libvirt};

/// Refuses a VM whose domain could not be defined. `is_known` says that its
/// record has a domain.
pub(crate) fn refuse_rivals(libvirt: &Libvirt, plan: &Plan, is_known: bool) -> Result<()> {
    let name = &plan.domain.name;
    if let Some(other) = libvirt
        .by_name(name)?
        .filter(|other| other.uuid != plan.uuid)
    {
        return Err(foreign(libvirt, "name", &other)?);
    }
    match libvirt.by_uuid(plan.uuid)? {
        Some(other) if !is_known => Err(foreign(libvirt, "UUID", &other)?),
        Some(own) if own.name != *name => Err(renamed(plan, &own)),
        _ => Ok(()),
    }
}

fn foreign(libvirt: &Libvirt, same: &str, other: &Known) -> Result<Failure> {
    let Known { name, uuid } = other;
    let address = libvirt.address()?;
    Ok(Failure::new(format!(
        "libvirt has a domain {name} (UUID {uuid}) with this VM's {same}, which was not made for it"
    ))
    .help(format!(
        "look at it with virsh -c '{address}' dominfo {uuid}; if nobody needs it, remove it with \
         virsh -c '{address}' undefine {uuid} (destroy ends it first, if it runs); else give this \
         VM another name, or another UUID with the annotation VirtletSystemUUID"
    )))
}

/// The container's name is a part of the domain's.
fn renamed(plan: &Plan, own: &Known) -> Failure {
    let (namespace, vm) = (&plan.namespace, &plan.name);
    Failure::new(format!(
        "its domain has another name, {}: the container was renamed",
        own.name
    ))
    .help(format!(
        "disklet down {namespace}/{vm} --keep-volumes removes that domain and keeps the volumes; then say up again"
    ))
}
