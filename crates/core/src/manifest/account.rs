//! ServiceAccounts: whether their pods get a token.

use crate::diag::Diagnostics;
use crate::names::Namespace;
use crate::yaml::View;

use super::Meta;

/// The account of pods that name none; every namespace has it.
pub(super) const DEFAULT_ACCOUNT: &str = "default";

/// The field by which an account and a pod speak of the token.
pub(super) const AUTOMOUNT: &str = "automountServiceAccountToken";

/// A ServiceAccount.
#[derive(Debug, Clone)]
pub struct ServiceAccount {
    /// Who it is.
    pub meta: Meta,
    /// Whether its token belongs in its pods; a pod's own word comes first.
    pub mounts_token: Option<bool>,
}

impl ServiceAccount {
    pub(super) fn read(
        view: &View<'_>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let mut object = view.fields(diags)?;
        let meta = Meta::read(view, &mut object, namespace, diags);
        let mounts_token = object.get(AUTOMOUNT).and_then(|view| view.bool(diags));
        object.tell_slips(diags);
        Some(Self {
            meta: meta?,
            mounts_token,
        })
    }
}
