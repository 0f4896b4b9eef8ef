//! The launcher pod of a VM: what core makes of the VM, and what ties it to the
//! VM object.

use clap::Args as ClapArgs;
use disklet::cluster::names;
use disklet_core::config::read_memory;
use disklet_core::launch::pod::{Settings, Unready, pod};
use disklet_core::manifest::{Objects, VmObject};
use disklet_core::units::ByteSize;
use k8s_openapi::api::core::v1::Pod;

use super::objects::Vm;

/// What administrators decide about launcher pods.
#[derive(Debug, ClapArgs)]
pub(super) struct LauncherArgs {
    /// Image of launcher pods, with `disklet` and `passt`
    #[arg(long, value_name = "IMAGE", env = "DISKLET_LAUNCHER_IMAGE")]
    launcher_image: String,

    /// When nodes pull it [default: as Kubernetes decides]
    #[arg(long, value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    launcher_pull_policy: Option<String>,

    /// Seccomp profile of launcher pods, below the kubelet's directory of profiles
    /// [default: none]
    #[arg(long, value_name = "PATH")]
    launcher_seccomp_profile: Option<String>,

    /// Guests are reached at ports below 1024, too: launcher pods have the
    /// capability `NET_BIND_SERVICE`
    #[arg(long)]
    launcher_low_ports: bool,

    /// Memory of VMs that name none: `defaultMemory` of the nodes' configuration,
    /// since launcher pods are made for what agents give their guests
    #[arg(long, value_name = "QUANTITY", default_value = "1Gi", value_parser = read_memory)]
    default_memory: ByteSize,
}

impl LauncherArgs {
    pub(super) fn settings(&self) -> Settings {
        Settings {
            image: self.launcher_image.clone(),
            pull_policy: self.launcher_pull_policy.clone(),
            default_memory: self.default_memory,
            low_ports: self.launcher_low_ports,
            seccomp_profile: self.launcher_seccomp_profile.clone(),
        }
    }
}

/// The pod that a VM would have now; or the claims that are not ready for it.
pub(super) fn make(
    vm: &VmObject,
    objects: &Objects,
    settings: &Settings,
) -> Result<Pod, Vec<Unready>> {
    let pod = pod(vm, objects, settings)?;
    // It is one, as tests show.
    Ok(serde_json::from_value(pod).unwrap_or_default())
}

/// Whether the kubelet has to do with this claim.
pub(super) fn carries(pod: &Pod, claim: &str) -> bool {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let mut claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.any(|carried| carried.claim_name == claim)
}

/// Ties a pod to its VM. The agent's finalizer is there from the beginning: a pod
/// that is deleted, even by force, stays until its agent has freed everything.
pub(super) fn tied(pod: &Pod, vm: &Vm, restarts: u32, direct_claims: &[String]) -> Pod {
    let mut pod = pod.clone();
    let meta = &mut pod.metadata;
    let finalizers = meta.finalizers.get_or_insert_default();
    finalizers.push(names::POD_FINALIZER.to_owned());
    let annotations = meta.annotations.get_or_insert_default();
    let generation = vm.metadata.generation.unwrap_or_default();
    annotations.insert(names::GENERATION.to_owned(), generation.to_string());
    if restarts > 0 {
        annotations.insert(names::RESTARTS.to_owned(), restarts.to_string());
    }
    if !direct_claims.is_empty() {
        annotations.insert(names::DIRECT_CLAIMS.to_owned(), direct_claims.join(","));
    }
    pod
}
