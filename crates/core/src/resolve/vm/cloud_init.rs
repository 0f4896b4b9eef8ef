//! The cloud-init image of a VM object.

use super::Vm;
use super::target::Targets;
use crate::cloudinit::{CloudInitSpec, NetworkSpec, ShapeProblem, UserDataSpec, shape_problems};
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{DeviceKind, Serial};
use crate::manifest::{KeyedDataRef, VmCloudInit, VmUserData, parse_map};
use crate::plan::{PlannedDisk, Source};
use crate::resolve::disks::Piece;
use crate::resolve::user_data::missing_key;
use crate::resolve::{Reference, Resolver};
use crate::text::{Data, Text};
use crate::yaml::Spanned;

impl Resolver<'_> {
    /// What the guest is told, if the VM says that it is told something.
    pub(super) fn vm_cloud_init(
        &self,
        vm: Vm<'_>,
        mac: Option<&str>,
        diags: &mut Diagnostics,
    ) -> Option<CloudInitSpec> {
        let written = vm.object.cloud_init.as_ref()?;
        let meta = &vm.object.meta;
        let uuid = vm.uuid.to_string();
        Some(CloudInitSpec {
            image_type: written.image_type,
            instance_id: meta.uid.clone().unwrap_or(uuid),
            hostname: crate::manifest::default_hostname(meta.name.as_str()),
            ssh_keys: written.ssh_keys.iter().cloned().map(Text::Public).collect(),
            meta_data: written.meta_data.clone(),
            user_data: self.vm_user_data(vm, written, diags),
            mounts: Vec::new(),
            links: Vec::new(),
            files: Vec::new(),
            environment: Vec::new(),
            network: mac.map(|mac| NetworkSpec {
                mac: mac.to_owned(),
            }),
        })
    }

    fn vm_user_data(
        &self,
        vm: Vm<'_>,
        written: &VmCloudInit,
        diags: &mut Diagnostics,
    ) -> UserDataSpec {
        match &written.user_data {
            VmUserData::None => UserDataSpec::Config(Vec::new()),
            VmUserData::Script(script) => UserDataSpec::Script(Text::Public(script.value.clone())),
            VmUserData::Config(config) => {
                check_shapes(&config.value, &config.place, diags);
                UserDataSpec::Config(config.value.clone())
            }
            VmUserData::From(reference) => self.referred_user_data(vm, reference, diags),
        }
    }

    fn referred_user_data(
        &self,
        vm: Vm<'_>,
        reference: &Spanned<KeyedDataRef>,
        diags: &mut Diagnostics,
    ) -> UserDataSpec {
        let nothing = UserDataSpec::Config(Vec::new());
        let KeyedDataRef { object, key } = &reference.value;
        let place = &reference.place;
        if self.hides_data(vm.namespace(), object) {
            let key = (vm.namespace().clone(), object.name.clone());
            let needs = Reference::data(object.kind, key);
            return UserDataSpec::Script(Text::Later(format!("{needs}, known at launch")));
        }
        let Some(found) = self.data_object(vm.namespace(), object, place, diags) else {
            return nothing;
        };
        let Some(content) = found.data.get(key) else {
            diags.push(missing_key(key, found, reference));
            return nothing;
        };
        let text = content
            .bytes()
            .and_then(|bytes| std::str::from_utf8(bytes).ok());
        match text {
            Some(script) if script.starts_with("#!") => {
                UserDataSpec::Script(match content.is_secret() {
                    true => Text::Secret(crate::text::Secret::new(script)),
                    false => Text::Public(script.to_owned()),
                })
            }
            Some(text) if parse_map(text).is_ok() => {
                let config = parse_map(text).unwrap_or_default();
                check_shapes(&config, place, diags);
                let hidden = |(key, value): (String, Data)| match content.is_secret() {
                    true => (key, value.hidden()),
                    false => (key, value),
                };
                UserDataSpec::Config(config.into_iter().map(hidden).collect())
            }
            _ => {
                diags.push(
                    Diagnostic::error(
                        place,
                        "the user-data is neither a cloud-config nor a script",
                    )
                    .found(format!(
                        "key {:?} of {} {}",
                        key.as_str(),
                        object.kind.name(),
                        object.name
                    ))
                    .allowed("a YAML mapping, or a text that begins with #!"),
                );
                nothing
            }
        }
    }

    /// The last disk.
    pub(super) fn vm_cloud_init_disk(
        &self,
        vm: Vm<'_>,
        targets: &Targets,
        diags: &mut Diagnostics,
    ) -> Option<PlannedDisk> {
        let written = vm.object.cloud_init.as_ref()?;
        let Some(target) = targets.last_free() else {
            diags.push(
                Diagnostic::error(
                    &written.place,
                    "no place is left on the scsi bus for cloud-init",
                )
                .help("remove disks, or give some another bus"),
            );
            return None;
        };
        let source = Source::CloudInit {
            path: self.cloud_init_path(vm.uuid),
        };
        let name = PlannedDisk::CLOUD_INIT.to_owned();
        let place = written.place.clone();
        let piece = Piece {
            device: DeviceKind::Cdrom,
            ..Piece::new(name, Serial::cloud_init(), place, source).reading_only(true)
        };
        Some(piece.at(target))
    }
}

fn check_shapes(config: &[(String, Data)], place: &Place, diags: &mut Diagnostics) {
    for ShapeProblem { key, found } in shape_problems(config) {
        diags.push(
            Diagnostic::error(place, format!("user-data: {key:?} must be a list"))
                .found(found)
                .help("see the cloud-init documentation"),
        );
    }
}
