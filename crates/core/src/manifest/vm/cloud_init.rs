//! What a VM object tells its guest at boot.

use crate::cloudinit::{ImageType, is_template_header};
use crate::diag::{Diagnostic, Diagnostics, Place, is_private_key};
use crate::manifest::annotations::{embedded_map, image_type, private_key};
use crate::manifest::meta::required_name;
use crate::manifest::{DataRef, KeyedDataRef, ObjectKind};
use crate::names::{DataKey, ObjectName};
use crate::text::Data;
use crate::yaml::{Fields, Spanned, View};

/// The cloud-init image of a VM object.
#[derive(Debug, Clone)]
pub struct VmCloudInit {
    /// Where it stands.
    pub place: Place,
    /// The layout.
    pub image_type: ImageType,
    /// The user-data.
    pub user_data: VmUserData,
    /// The user's meta-data entries.
    pub meta_data: Vec<(String, Data)>,
    /// SSH public keys.
    pub ssh_keys: Vec<String>,
}

/// The user's own user-data.
#[derive(Debug, Clone)]
pub enum VmUserData {
    /// There is none.
    None,
    /// A `#cloud-config`.
    Config(Spanned<Vec<(String, Data)>>),
    /// A script.
    Script(Spanned<String>),
    /// A key of a Secret or ConfigMap that has one of the two.
    From(Spanned<KeyedDataRef>),
}

const FIELDS: [&str; 6] = [
    "type",
    "userData",
    "secretRef",
    "configMapRef",
    "metaData",
    "sshKeys",
];

impl VmCloudInit {
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let layout = fields.spanned_text("type", diags);
        let text = fields.spanned_text("userData", diags);
        let secret = read_reference(&mut fields, "secretRef", ObjectKind::Secret, diags);
        let map = read_reference(&mut fields, "configMapRef", ObjectKind::ConfigMap, diags);
        let meta_data = fields.get("metaData");
        let meta_data = meta_data.map_or(Vec::new(), |view| read_meta_data(&view, diags));
        let ssh_keys = fields.items("sshKeys", diags);
        let ssh_keys = ssh_keys.iter().filter_map(|item| read_key(item, diags));
        let ssh_keys = ssh_keys.collect();
        fields.no_others(&FIELDS, diags);
        let inline = text.map(|text| user_data(text, diags));
        let mut given = [inline, secret, map].into_iter().flatten();
        let user_data = given.next().unwrap_or(VmUserData::None);
        if given.next().is_some() {
            diags.push(
                Diagnostic::error(&view.place, "the user-data stands in several places")
                    .allowed("one of userData, secretRef and configMapRef"),
            );
        }
        Some(Self {
            place: view.place.clone(),
            image_type: layout.map_or(ImageType::default(), |text| image_type(&text, diags)),
            user_data,
            meta_data,
            ssh_keys,
        })
    }
}

/// The guest gets it as JSON.
fn read_meta_data(view: &View<'_>, diags: &mut Diagnostics) -> Vec<(String, Data)> {
    let entries = view.entries(diags).into_iter();
    let known =
        entries.filter_map(|(key, value)| Some((key.to_owned(), value.finite_data(diags)?)));
    known.collect()
}

/// A script begins with `#!`; everything else is a cloud-config.
fn user_data(text: Spanned<String>, diags: &mut Diagnostics) -> VmUserData {
    if text.value.starts_with("#!") {
        return VmUserData::Script(text);
    }
    if text.value.lines().next().is_some_and(is_template_header) {
        diags.push(
            Diagnostic::error(
                &text.place,
                "a template cannot be merged before it is rendered",
            )
            .allowed("a cloud-config, or a script that begins with #!"),
        );
        return VmUserData::None;
    }
    let place = text.place.clone();
    let value = embedded_map(&text, diags);
    VmUserData::Config(Spanned { value, place })
}

fn read_reference(
    fields: &mut Fields<'_>,
    field: &str,
    kind: ObjectKind,
    diags: &mut Diagnostics,
) -> Option<VmUserData> {
    let view = fields.get(field)?;
    let mut inner = view.fields(diags)?;
    let name = required_name(&mut inner, "name", ObjectName::parse, diags);
    let key = match inner.spanned_text("key", diags) {
        Some(text) => super::super::meta::parse_name(text, DataKey::parse, diags)?.value,
        None => DataKey::parse(DEFAULT_KEY).ok()?,
    };
    inner.no_others(&["name", "key"], diags);
    Some(VmUserData::From(Spanned {
        value: KeyedDataRef {
            object: DataRef {
                kind,
                name: name?.value,
            },
            key,
        },
        place: view.place,
    }))
}

/// As KubeVirt's users have it.
const DEFAULT_KEY: &str = "userdata";

fn read_key(item: &View<'_>, diags: &mut Diagnostics) -> Option<String> {
    let text = item.text(diags)?;
    if is_private_key(text) {
        diags.push(private_key(&item.place));
        return None;
    }
    if text.trim().is_empty() || text.contains('\n') {
        diags.push(
            Diagnostic::error(&item.place, "not an SSH public key")
                .allowed("one line, such as \"ssh-ed25519 AAAA… me@example\""),
        );
        return None;
    }
    Some(text.trim().to_owned())
}
