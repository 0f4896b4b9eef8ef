//! `kubectl disklet describe`: a VM, its disks, its pod and what happened.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use disklet::report;
use disklet::shown::{age, table};
use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::{Value, json};

use super::cluster::{Answer, Cluster, last_seen};
use super::{DescribeArgs, DescribeOutput};
use crate::refusal::Refusal;

/// All that is known of a VM.
struct Description {
    vm: Value,
    launcher: Option<Pod>,
    events: Vec<Event>,
    /// What could not be looked at.
    unseen: Vec<String>,
}

pub(super) async fn describe(args: &DescribeArgs, cluster: &Cluster) -> Result<ExitCode, Refusal> {
    let vm = cluster.vm(&args.name).await?;
    let mut unseen = Vec::new();
    let launcher = seen("its pod", cluster.launcher(&vm).await?, &mut unseen);
    let events = seen("its events", cluster.events(&vm).await?, &mut unseen);
    let description = Description {
        vm,
        launcher,
        events: events.unwrap_or_default(),
        unseen,
    };
    let text = match args.output {
        DescribeOutput::Text => description.for_people(),
        DescribeOutput::Json => format!("{:#}\n", description.for_programs()),
        DescribeOutput::Yaml => serde_saphyr::to_string(&description.for_programs())
            .map_err(|error| Refusal::new(error.to_string()))?,
    };
    Ok(report::print(text.as_bytes(), "the description"))
}

fn seen<T>(what: &str, answer: Answer<T>, unseen: &mut Vec<String>) -> Option<T> {
    match answer {
        Answer::Found(found) => Some(found),
        Answer::Absent => None,
        Answer::Forbidden(_) => {
            unseen.push(format!("{what}: you may not read it"));
            None
        }
    }
}

impl Description {
    fn for_programs(&self) -> Value {
        let mut launcher = serde_json::to_value(&self.launcher).unwrap_or_default();
        if let Some(meta) = launcher.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
        json!({
            "vm": self.vm,
            "launcher": launcher,
            "events": self.events,
            "unseen": self.unseen,
        })
    }

    fn for_people(&self) -> String {
        let mut text = self.heading();
        self.conditions(&mut text);
        self.disks(&mut text);
        self.launcher(&mut text);
        self.happenings(&mut text);
        for what in &self.unseen {
            let _ = writeln!(text, "Not shown: {what}");
        }
        report::harmless(&text)
    }

    fn heading(&self) -> String {
        let (meta, spec, status) = (&self.vm["metadata"], &self.vm["spec"], &self.vm["status"]);
        let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let shall_run = spec["running"].as_bool().unwrap_or(true);
        let wish = match (meta["deletionTimestamp"].is_null(), shall_run) {
            (false, _) => "it is being deleted",
            (true, true) => "it shall run",
            (true, false) => "it shall not run",
        };
        let restarts = match status["restarts"].as_u64().unwrap_or(0) {
            0 => String::new(),
            1 => ", started again once".to_owned(),
            often => format!(", started again {often} times"),
        };
        let phase = status["phase"].as_str().unwrap_or("Pending");
        let rows = [
            (
                "VM",
                format!("{}/{}", word(&meta["namespace"]), word(&meta["name"])),
            ),
            ("Phase", format!("{phase}; {wish}{restarts}")),
            ("Node", word(&status["node"])),
            ("Address", self.address()),
            ("Made", word(&meta["creationTimestamp"])),
        ];
        let rows = rows.map(|(title, value)| vec![title.to_owned(), value]);
        table(&rows, &[])
    }

    /// The guest's address is its pod's.
    fn address(&self) -> String {
        let told = self.vm["status"]["podIP"].as_str().map(str::to_owned);
        let status = self.launcher.as_ref().and_then(|pod| pod.status.as_ref());
        let of_pod = status.and_then(|status| status.pod_ip.clone());
        told.or(of_pod).unwrap_or_else(|| "-".to_owned())
    }

    fn conditions(&self, text: &mut String) {
        let conditions = list(&self.vm["status"]["conditions"]);
        let generation = self.vm["metadata"]["generation"].as_i64();
        let _ = writeln!(text, "\nConditions");
        if conditions.is_empty() {
            let _ = writeln!(text, "  nothing is said yet");
        }
        for condition in conditions {
            let word = |key: &str| condition[key].as_str().unwrap_or_default();
            let is = match word("status") {
                "True" => "yes",
                "False" => "no",
                _ => "unknown",
            };
            let observed = condition["observedGeneration"].as_i64();
            let old = match observed < generation && observed.is_some() {
                true => " (of the spec before)",
                false => "",
            };
            let _ = write!(text, "  {}: {is}, {}{old}", word("type"), word("reason"));
            let _ = match word("message") {
                "" => writeln!(text),
                message => writeln!(text, "\n    {}", message.replace('\n', "\n    ")),
            };
        }
    }

    fn disks(&self, text: &mut String) {
        let disks = list(&self.vm["status"]["disks"]);
        let _ = writeln!(text, "\nDisks");
        if disks.is_empty() {
            let _ = writeln!(
                text,
                "  known when it runs; kubectl disklet plan shows them before"
            );
            return;
        }
        let columns = ["target", "name", "size", "allocation", "access", "source"];
        let heading = columns.map(str::to_uppercase).to_vec();
        let rows = disks.iter().map(|disk| {
            let cell = |key: &str| disk[key].as_str().unwrap_or("-").to_owned();
            columns.map(cell).to_vec()
        });
        let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
        for line in table(&rows, &[2, 3]).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }

    fn launcher(&self, text: &mut String) {
        let Some(pod) = &self.launcher else {
            if self.unseen.is_empty() {
                let _ = writeln!(text, "\nLauncher\n  none: the VM has no pod");
            }
            return;
        };
        let status = pod.status.clone().unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let _ = writeln!(
            text,
            "\nLauncher\n  pod {}, {}, on {}",
            pod.metadata.name.as_deref().unwrap_or_default(),
            status.phase.as_deref().unwrap_or("Pending"),
            node.unwrap_or("no node yet"),
        );
        for container in status.container_statuses.iter().flatten() {
            let state = container.state.clone().unwrap_or_default();
            let waits = state.waiting.map(|it| ("waits", it.reason, it.message));
            let ended = state.terminated.map(|it| {
                let reason = format!(
                    "{} (exit code {})",
                    it.reason.unwrap_or_default(),
                    it.exit_code
                );
                ("has ended", Some(reason), it.message)
            });
            if let Some((how, reason, message)) = waits.or(ended) {
                let why = [reason, message].into_iter().flatten();
                let why: Vec<_> = why.filter(|it| !it.trim().is_empty()).collect();
                let why = why.join(": ").trim_end().replace('\n', "\n    ");
                let _ = writeln!(text, "  it {how}: {why}");
            }
        }
    }

    fn happenings(&self, text: &mut String) {
        if self.events.is_empty() {
            return;
        }
        let _ = writeln!(text, "\nEvents");
        let heading = ["AGE", "TYPE", "REASON", "ABOUT", "MESSAGE"];
        let heading = heading.map(str::to_owned).to_vec();
        let rows: Vec<_> = std::iter::once(heading)
            .chain(self.events.iter().map(row))
            .collect();
        for line in table(&rows, &[]).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
}

fn row(event: &Event) -> Vec<String> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let since = last_seen(event).and_then(|seconds| u64::try_from(seconds).ok());
    let since = since.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    let often = match event.count {
        Some(count) if count > 1 => format!(" ({count} times)"),
        _ => String::new(),
    };
    // One line each: what has several is the reader's to look up.
    let message = text(&event.message).trim().replace('\n', " ");
    vec![
        since.map_or_else(|| "-".to_owned(), age),
        text(&event.type_),
        text(&event.reason),
        text(&event.involved_object.kind),
        format!("{message}{often}"),
    ]
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
