//! ConfigMaps and Secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::{DataKey, Namespace};
use crate::text::{Content, Secret};
use crate::yaml::{Fields, Spanned, View};

use super::Meta;
use super::meta::parse_name;

/// A ConfigMap or a Secret: named pieces of content.
#[derive(Debug, Clone)]
pub struct DataObject {
    /// Who it is.
    pub meta: Meta,
    /// The content, in the order of the keys as Kubernetes lists them.
    pub data: std::collections::BTreeMap<DataKey, Content>,
    /// The service account whose token a Secret holds, if it holds one.
    pub token_of: Option<String>,
}

/// The type of a Secret with a service account's token.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// The annotation that names the account.
const TOKEN_ACCOUNT: &str = "kubernetes.io/service-account.name";

impl DataObject {
    pub(super) fn read_config_map(
        view: &View<'_>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let mut object = view.fields(diags)?;
        let read = Meta::read(view, &mut object, namespace, diags);
        let mut data = Self {
            meta: read
                .clone()
                .unwrap_or_else(|| Meta::stand_in(view, namespace)),
            data: Default::default(),
            token_of: None,
        };
        data.take(
            &mut object,
            "data",
            |text| Some(Content::public(text)),
            diags,
        );
        let binary = |text: &str| decode(text).map(Content::Public);
        data.take(&mut object, "binaryData", binary, diags);
        object.tell_slips(diags);
        read.map(|_| data)
    }

    pub(super) fn read_secret(
        view: &View<'_>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let mut object = view.fields(diags)?;
        let read = Meta::read(view, &mut object, namespace, diags);
        let kind = object.text("type", diags);
        let account = view
            .node
            .get("metadata")
            .and_then(|meta| meta.get("annotations")?.get(TOKEN_ACCOUNT)?.as_str());
        let mut secret = Self {
            meta: read
                .clone()
                .unwrap_or_else(|| Meta::stand_in(view, namespace)),
            data: Default::default(),
            token_of: account
                .filter(|_| kind == Some(TOKEN_TYPE))
                .map(str::to_owned),
        };
        let encoded = |text: &str| decode(text).map(|bytes| Content::Secret(Secret::new(bytes)));
        secret.take(&mut object, "data", encoded, diags);
        // The API server lets stringData win over data.
        let plain = |text: &str| Some(Content::Secret(Secret::new(text)));
        secret.take(&mut object, "stringData", plain, diags);
        object.tell_slips(diags);
        read.map(|_| secret)
    }

    /// Takes the entries of one field. What is wrong is told without the
    /// value: it may be a secret.
    fn take(
        &mut self,
        object: &mut Fields<'_>,
        field: &str,
        content: impl Fn(&str) -> Option<Content>,
        diags: &mut Diagnostics,
    ) {
        for (key, value) in object.entries(field, diags) {
            let key = Spanned {
                value: key.to_owned(),
                place: value.place.clone(),
            };
            let Some(key) = parse_name(key, DataKey::parse, diags) else {
                continue;
            };
            let Some(text) = value.node.as_str() else {
                diags.push(
                    Diagnostic::error(&value.place, "must be a text")
                        .found(value.node.kind())
                        .help("write it in quotes"),
                );
                continue;
            };
            match content(text) {
                Some(content) => {
                    self.data.insert(key.value, content);
                }
                None => diags.push(
                    Diagnostic::error(&value.place, "not base64")
                        .help("encode it with base64, or put plain text under stringData (of a Secret) or data (of a ConfigMap)"),
                ),
            }
        }
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let packed: String = text.split_ascii_whitespace().collect();
    BASE64.decode(packed).ok()
}
