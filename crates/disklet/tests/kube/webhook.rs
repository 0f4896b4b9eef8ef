//! The webhook's configuration and Service, as `disklet install` has them, with
//! endpoints by hand: the processes that answer are on this computer.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::cluster::{eventually, kubectl, kubectl_says, kubectl_with};
use super::controller::{Controller, NAMESPACE, have_rights};

const SECRET: [&str; 4] = ["-n", NAMESPACE, "get", "secret/disklet-webhook"];

const CONFIGURATIONS: [&str; 2] = [
    "validatingwebhookconfiguration/disklet-webhook",
    "mutatingwebhookconfiguration/disklet-webhook",
];

/// It goes with this.
pub(crate) struct Webhook(());

fn installed() -> Vec<Value> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_disklet"))
        .args(["install", "--namespace", NAMESPACE])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let parts = text
        .split("\n---\n")
        .filter(|part| part.contains("disklet-webhook\n"));
    let kinds = ["kind: Service\n", "kind: Validating", "kind: Mutating"];
    let objects = parts.filter(|part| kinds.iter().any(|kind| part.contains(kind)));
    objects
        .map(|part| {
            kubectl_with(
                &["create", "--dry-run=client", "-o", "json", "-f", "-"],
                part,
            )
        })
        .map(|json| serde_json::from_str(&json).unwrap())
        .collect()
}

/// The address of this computer as the API server sees it: the first of its network.
fn this_computer() -> String {
    let server = kubectl(&[
        "config",
        "view",
        "--minify",
        "-o",
        "jsonpath={.clusters[0].cluster.server}",
    ]);
    let host = server
        .trim_start_matches("https://")
        .split(':')
        .next()
        .unwrap();
    let (network, _) = host.rsplit_once('.').unwrap();
    format!("{network}.1")
}

impl Webhook {
    /// With a Service that leads nowhere yet.
    pub(crate) fn installed() -> Self {
        have_rights();
        let objects = installed();
        assert_eq!(objects.len(), 3, "{objects:#?}");
        for mut object in objects {
            if object["kind"] == "Service" {
                object["spec"]["selector"] = Value::Null;
                object["spec"]["ports"][0]["targetPort"] = json!(9443);
            }
            kubectl_with(&["apply", "-f", "-"], &object.to_string());
        }
        kubectl(&[
            "-n",
            NAMESPACE,
            "delete",
            "secret/disklet-webhook",
            "--ignore-not-found",
        ]);
        Self(())
    }

    /// A controller whose webhook listens, reached or not.
    pub(crate) fn start(&self, args: &[&str]) -> Controller {
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let listen = format!("--webhook-listen=0.0.0.0:{port}");
        let mut all = vec!["--lease-seconds=3", &listen];
        all.extend(args);
        let mut controller = Controller::with(&all);
        controller.webhook = port;
        controller
    }

    /// The only one, which leads and is reached.
    pub(crate) fn controller(&self, args: &[&str]) -> Controller {
        let controller = self.start(args);
        eventually("the controller is ready", || controller.is_ready());
        self.reached_at(&[&controller]);
        controller
    }

    /// Has the Service lead to these ports of this computer.
    pub(crate) fn lead_to(&self, ports: &[u16]) {
        let subset = |port: &u16| {
            let ports = json!([{"name": "webhook", "port": port}]);
            json!({"addresses": [{"ip": this_computer()}], "ports": ports})
        };
        let subsets: Vec<_> = ports.iter().map(subset).collect();
        let endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": "disklet-webhook", "namespace": NAMESPACE}, "subsets": subsets,
        });
        kubectl_with(&["apply", "-f", "-"], &endpoints.to_string());
    }

    /// Has the Service lead to these, and waits until API servers find and believe them.
    pub(crate) fn reached_at(&self, controllers: &[&Controller]) {
        let ports: Vec<_> = controllers.iter().map(|it| it.webhook).collect();
        self.lead_to(&ports);
        let wrong = "---\n{apiVersion: disklet.io/v1alpha1, kind: VM, metadata: {name: probe}, spec: {runing: true, domain: {}}}";
        // One of them: an API server stays with whom it has found.
        eventually("the webhook is asked", || {
            let taken = kubectl_says(&["create", "--dry-run=server", "-f", "-"], wrong);
            !taken.0 && controllers.iter().any(|it| it.has_refused())
        });
    }

    /// Until when each generation holds; empty if there are none.
    pub(crate) fn generations(&self) -> Vec<u64> {
        let path = "jsonpath={.data.certificates\\.json}";
        let (_, encoded) = kubectl_says(&[&SECRET[..], &["-o", path]].concat(), "");
        let text = BASE64_STANDARD.decode(encoded.trim()).unwrap_or_default();
        let state: Value = serde_json::from_slice(&text).unwrap_or_default();
        let all = state["generations"].as_array().cloned().unwrap_or_default();
        all.iter()
            .map(|it| it["notAfter"].as_u64().unwrap())
            .collect()
    }

    pub(crate) fn spoil_secret(&self) {
        let patch = json!({"data": {"certificates.json": BASE64_STANDARD.encode("{}")}});
        kubectl(&[
            "-n",
            NAMESPACE,
            "patch",
            "secret/disklet-webhook",
            "--type=merge",
            "-p",
            &patch.to_string(),
        ]);
    }

    pub(crate) fn delete_secret(&self) {
        kubectl(&["-n", NAMESPACE, "delete", "secret/disklet-webhook"]);
    }

    /// Whether each webhook of both configurations has one.
    pub(crate) fn has_authorities(&self) -> bool {
        CONFIGURATIONS.iter().all(|configuration| {
            let object = kubectl(&["get", configuration, "-o", "json"]);
            let object: Value = serde_json::from_str(&object).unwrap();
            let mut webhooks = object["webhooks"].as_array().unwrap().iter();
            webhooks.all(|it| it["clientConfig"]["caBundle"].is_string())
        })
    }

    /// Takes the authority of the first webhook away from both configurations.
    pub(crate) fn forget_authority(&self) {
        let patch = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]);
        for configuration in CONFIGURATIONS {
            kubectl(&[
                "patch",
                configuration,
                "--type=json",
                "-p",
                &patch.to_string(),
            ]);
        }
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        for configuration in CONFIGURATIONS {
            kubectl_says(&["delete", configuration], "");
        }
        kubectl_says(&["-n", NAMESPACE, "delete", "service/disklet-webhook"], "");
    }
}

pub(crate) fn serves_until(controller: &Controller) -> u64 {
    let until = controller.metric("disklet_controller_webhook_certificate_expiry_seconds");
    until.unwrap().parse().unwrap()
}
