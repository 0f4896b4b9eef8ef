//! Images at a web server of the node, and mappings of names to it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::storage::{Tied, server_on_node};
use super::{Tenant, run};

/// `script/lib/servers/http.sh` on the node's loopback, where its agent reaches it.
pub(crate) struct Web {
    facts: serde_json::Value,
    directory: PathBuf,
    _process: Tied,
}

impl Web {
    pub(crate) fn start(tenant: &Tenant) -> Self {
        let directory = std::env::temp_dir().join(format!("disklet-http-{}", tenant.name));
        let (process, facts) = Tied::start(&mut server_on_node("http.sh", &directory));
        Self {
            facts: serde_json::from_str(&facts).expect("facts"),
            directory,
            _process: process,
        }
    }

    /// What it serves.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.directory.join("files").join(path)
    }

    /// The host and port at which it speaks TLS.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.facts["tlsPort"])
    }

    /// Whom its certificate is from.
    pub(crate) fn authority(&self) -> String {
        let file = self.facts["caFile"].as_str().expect("a path");
        fs::read_to_string(file).expect("a certificate")
    }

    /// The password of the user `reader`, for what is below `/basic`.
    pub(crate) fn password(&self) -> String {
        let file = self.facts["basic"]["passwordFile"].as_str();
        fs::read_to_string(file.expect("a path")).expect("a password")
    }

    /// Maps names of the tenant: `TENANT/open`, `first` and `second` are for everybody,
    /// and so is `slow`, which takes a minute; `guarded` is for those who have the
    /// password, `missing` is not there.
    pub(crate) fn map(&self, tenant: &Tenant) -> Mapping {
        let (host, authority) = (self.host(), self.authority());
        let rules: String = [
            ("open", "disk.raw"),
            ("first", "first/disk.raw"),
            ("second", "second/disk.raw"),
            ("slow", "slow/disk.raw"),
            ("guarded", "basic/disk.qcow2"),
            ("missing", "no-such-file"),
        ]
        .iter()
        .map(|(name, file)| format!("  - {{name: {name}, url: \"https://{host}/{file}\"}}\n"))
        .collect();
        Mapping::apply(
            &tenant.name,
            &format!(
                "  prefix: {}\n  translations:\n{rules}  transports:\n    \"\": {{tls: {{certificates: [{{cert: {authority:?}}}]}}}}\n",
                tenant.name
            ),
        )
    }
}

/// A mapping in Disklet's own namespace, which goes with the test.
pub(crate) struct Mapping(String);

impl Mapping {
    /// `spec` in lines of YAML.
    pub(crate) fn apply(name: &str, spec: &str) -> Self {
        Tenant::apply_to_disklet(&mapping_object(name, spec));
        Self(name.to_owned())
    }

    /// A field of its condition.
    pub(crate) fn accepted(&self, field: &str) -> Option<String> {
        let path = format!("jsonpath={{.status.conditions[?(@.type==\"Accepted\")].{field}}}");
        let output = run(
            Command::new("kubectl").args(["-n", "disklet", "get", "vim", &self.0, "-o", &path])
        );
        (!output.is_empty()).then_some(output)
    }
}

/// The object, in whichever namespace it is applied.
pub(crate) fn mapping_object(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: virtlet.k8s/v1\nkind: VirtletImageMapping\nmetadata: {{name: {name}}}\nspec:\n{spec}"
    )
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = Command::new("kubectl")
            .args(["-n", "disklet", "delete", "vim", &self.0, "--wait=false"])
            .output();
    }
}
