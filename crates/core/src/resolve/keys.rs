//! Keys of network storage, out of the Secrets that disks and volumes name.

use disklet_flexvolume::Key;

use super::Resolver;
use crate::diag::{Diagnostic, Diagnostics, is_unprintable};
use crate::manifest::{DataObject, DataRef, ObjectKind};
use crate::names::{DataKey, Namespace, ObjectName};
use crate::text::Secret;
use crate::yaml::Spanned;

/// A user and a password.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: Secret,
}

impl Resolver<'_> {
    /// A Ceph user's key, under the name that Kubernetes' own RBD volumes use.
    pub(super) fn ceph_key(
        &self,
        namespace: &Namespace,
        secret: &Spanned<ObjectName>,
        diags: &mut Diagnostics,
    ) -> Option<Secret> {
        let object = self.secret(namespace, secret, diags)?;
        let text = text_under(object, &[Key::IN_SECRET]);
        match text.map(Key::parse) {
            Some(Ok(key)) => Some(Secret::new(key.expose())),
            found => {
                let message = match found {
                    None => "the Secret has no text under \"key\"",
                    Some(_) => "the Secret's \"key\" is not a Ceph key",
                };
                diags.push(
                    Diagnostic::error(&secret.place, message)
                        .found(format!("Secret {}", secret.value))
                        .allowed("a key as ceph auth get-key prints it"),
                );
                None
            }
        }
    }

    /// Who one is to an iSCSI target, under the names of open-iscsi, as
    /// Kubernetes has them, or in plain words.
    pub(super) fn chap(
        &self,
        namespace: &Namespace,
        secret: &Spanned<ObjectName>,
        diags: &mut Diagnostics,
    ) -> Option<Login> {
        let object = self.secret(namespace, secret, diags)?;
        let mutual = [
            "node.session.auth.username_in",
            "node.session.auth.password_in",
        ];
        if text_under(object, &mutual).is_some_and(|text| !text.is_empty()) {
            diags.push(
                Diagnostic::error(
                    &secret.place,
                    "mutual CHAP cannot be had with QEMU's own driver",
                )
                .found(format!(
                    "Secret {} has {}",
                    secret.value,
                    mutual.join(" or ")
                ))
                .help(
                    "remove these keys, or have the kubelet use a claim: driver: {name: kubelet}",
                ),
            );
            return None;
        }
        let names = [
            ["node.session.auth.username", "username"],
            ["node.session.auth.password", "password"],
        ];
        login(object, secret, &names[0], &names[1], diags)
    }

    /// Who one is to a web server.
    pub(super) fn web_login(
        &self,
        namespace: &Namespace,
        secret: &Spanned<ObjectName>,
        diags: &mut Diagnostics,
    ) -> Option<Login> {
        let object = self.secret(namespace, secret, diags)?;
        login(object, secret, &["username"], &["password"], diags)
    }

    fn secret(
        &self,
        namespace: &Namespace,
        secret: &Spanned<ObjectName>,
        diags: &mut Diagnostics,
    ) -> Option<&DataObject> {
        let wanted = DataRef {
            kind: ObjectKind::Secret,
            name: secret.value.clone(),
        };
        self.data_object(namespace, &wanted, &secret.place, diags)
    }
}

/// A user and a password, each under the first of its names that is there.
fn login(
    object: &DataObject,
    secret: &Spanned<ObjectName>,
    users: &[&str],
    passwords: &[&str],
    diags: &mut Diagnostics,
) -> Option<Login> {
    let shows = |user: &&str| !user.is_empty() && !user.chars().any(is_unprintable);
    let user = text_under(object, users).filter(shows);
    // To QEMU a password ends at the first zero.
    let is_whole = |password: &&str| !password.is_empty() && !password.contains('\0');
    let password = text_under(object, passwords).filter(is_whole);
    if let (Some(user), Some(password)) = (user, password) {
        return Some(Login {
            user: user.to_owned(),
            password: Secret::new(password),
        });
    }
    diags.push(
        Diagnostic::error(&secret.place, "the Secret has no user and password")
            .found(format!("Secret {}", secret.value))
            .allowed(format!(
                "texts under {} and {}",
                users.join(" or "),
                passwords.join(" or ")
            )),
    );
    None
}

/// The text under the first of the names that is there.
fn text_under<'o>(object: &'o DataObject, names: &[&str]) -> Option<&'o str> {
    let keys = names.iter().filter_map(|name| DataKey::parse(name).ok());
    let mut texts = keys.filter_map(|key| {
        let bytes = object.data.get(&key)?.bytes()?;
        std::str::from_utf8(bytes).ok()
    });
    texts.next()
}
