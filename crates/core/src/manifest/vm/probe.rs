//! How the kubelet asks whether a guest is well: as in a Pod, but by the network only.

use crate::diag::{Diagnostic, Diagnostics};
use crate::yaml::{Fields, Spanned, View};

use super::words::{number, word};

/// What is asked, and when.
#[derive(Debug, Clone, Default)]
pub struct Probes {
    /// Services send nothing to a guest that does not answer it.
    pub readiness: Option<Spanned<Probe>>,
    /// A guest that does not answer it is started again.
    pub liveness: Option<Spanned<Probe>>,
    /// The others wait until this is answered once.
    pub startup: Option<Spanned<Probe>>,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// How it is asked.
    pub ask: Ask,
    /// Kubernetes' own fields for times and thresholds that are written.
    pub times: Vec<(&'static str, u32)>,
}

/// How a guest is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// Something answers.
    Http {
        /// The port.
        port: u16,
        /// What is asked for.
        path: String,
        /// Whether by HTTPS.
        tls: bool,
        /// Headers, in order.
        headers: Vec<(String, String)>,
    },
    /// Something accepts.
    Tcp {
        /// The port.
        port: u16,
    },
}

const PROBE: [&str; 7] = [
    "httpGet",
    "tcpSocket",
    "initialDelaySeconds",
    "periodSeconds",
    "timeoutSeconds",
    "successThreshold",
    "failureThreshold",
];
/// Each with the least that Kubernetes takes.
const TIMES: [(&str, i64); 5] = [
    ("initialDelaySeconds", 0),
    ("periodSeconds", 1),
    ("timeoutSeconds", 1),
    ("successThreshold", 1),
    ("failureThreshold", 1),
];
const MOST: i64 = 7 * 24 * 3600;

impl Probes {
    pub(super) fn read(spec: &mut Fields<'_>, diags: &mut Diagnostics) -> Self {
        let mut read = |field: &str| {
            let view = spec.get(field)?;
            let value = Probe::read(&view, field == "readinessProbe", diags)?;
            let place = view.place.clone();
            Some(Spanned { value, place })
        };
        Self {
            readiness: read("readinessProbe"),
            liveness: read("livenessProbe"),
            startup: read("startupProbe"),
        }
    }

    /// Those that there are, by their fields.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Spanned<Probe>)> {
        let all = [
            ("readinessProbe", &self.readiness),
            ("livenessProbe", &self.liveness),
            ("startupProbe", &self.startup),
        ];
        all.into_iter()
            .filter_map(|(field, probe)| probe.as_ref().map(|probe| (field, probe)))
    }
}

impl Probes {
    /// Nobody could answer.
    pub(super) fn refuse_without_network(&self, diags: &mut Diagnostics) {
        for (_, probe) in self.named() {
            diags.push(
                Diagnostic::error(
                    &probe.place,
                    "the VM has no network by which it could answer",
                )
                .help("remove the probe, or interfaces: []"),
            );
        }
    }
}

impl Probe {
    /// Only what is asked for readiness may have to be answered several times.
    fn read(view: &View<'_>, repeated: bool, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let mut times = Vec::new();
        for (field, least) in TIMES {
            let most = match (field, repeated) {
                ("successThreshold", false) => 1,
                _ => MOST,
            };
            let written = fields.get(field);
            let written = written
                .and_then(|view| number(&view, "what Kubernetes takes here", least..=most, diags));
            times.extend(written.map(|number| (field, number.value)));
        }
        let http = fields
            .fields("httpGet", diags)
            .map(|http| read_http(http, diags));
        let tcp = fields
            .fields("tcpSocket", diags)
            .map(|tcp| read_tcp(tcp, diags));
        if let Some(exec) = fields.get("exec") {
            diags.push(
                Diagnostic::error(
                    &exec.place,
                    "a command would run beside the guest, not in it",
                )
                .help("ask by httpGet or tcpSocket"),
            );
            return None;
        }
        fields.no_others(&PROBE, diags);
        let ask = match (http, tcp) {
            (Some(ask), None) | (None, Some(ask)) => ask?,
            (Some(_), Some(_)) => {
                diags.push(
                    Diagnostic::error(&view.place, "a probe asks in one way")
                        .found("httpGet and tcpSocket")
                        .help("remove one of the two"),
                );
                return None;
            }
            (None, None) => {
                diags.push(
                    Diagnostic::error(&view.place, "a probe that asks nothing")
                        .help("add httpGet: {path: /, port: 80}, or tcpSocket: {port: 22}"),
                );
                return None;
            }
        };
        Some(Self { ask, times })
    }
}

fn read_port(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<u16> {
    let port = fields.required("port", diags)?;
    let port = number(&port, "a port", 1..=65535, diags)?;
    u16::try_from(port.value).ok()
}

fn read_tcp(mut fields: Fields<'_>, diags: &mut Diagnostics) -> Option<Ask> {
    let port = read_port(&mut fields, diags);
    refuse_host(&mut fields, diags);
    fields.no_others(&["port"], diags);
    Some(Ask::Tcp { port: port? })
}

fn read_http(mut fields: Fields<'_>, diags: &mut Diagnostics) -> Option<Ask> {
    let port = read_port(&mut fields, diags);
    let path = fields.text("path", diags).unwrap_or("/").to_owned();
    let tls = fields
        .get("scheme")
        .and_then(|view| {
            word(
                &view,
                "a scheme",
                &[("HTTP", false), ("HTTPS", true)],
                diags,
            )
        })
        .is_some_and(|tls| tls.value);
    let headers = fields.items("httpHeaders", diags);
    let headers = headers.iter().filter_map(|item| read_header(item, diags));
    let headers = headers.collect();
    refuse_host(&mut fields, diags);
    fields.no_others(&["port", "path", "scheme", "httpHeaders"], diags);
    Some(Ask::Http {
        port: port?,
        path,
        tls,
        headers,
    })
}

fn read_header(item: &View<'_>, diags: &mut Diagnostics) -> Option<(String, String)> {
    let mut fields = item.fields(diags)?;
    let name = fields.required_text("name", diags);
    let value = fields.required_text("value", diags);
    fields.no_others(&["name", "value"], diags);
    Some((name?.value, value?.value))
}

/// It would be the node that asks somebody.
fn refuse_host(fields: &mut Fields<'_>, diags: &mut Diagnostics) {
    if let Some(host) = fields.get("host") {
        diags.push(
            Diagnostic::error(&host.place, "a probe asks the guest, and nobody else")
                .help("remove host"),
        );
    }
}
