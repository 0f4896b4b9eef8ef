//! What Kubernetes does with a pod, done with a guest: probes and Services reach it at the
//! pod's address.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use std::net::TcpStream;
use std::process::Command;

use kube::guests::{NODE, delete, have_small_guest, vm};
use kube::storage::{Iscsi, read_and_write, written};
use kube::{Tenant, on_node, run, until};
use serde_json::Value;

/// By which a guest has the pod's address from DHCP, and something to tell.
fn network() -> [String; 4] {
    let script = r#"#!/bin/sh\n[ "$1" = bound ] || exit 0\nip addr add "$ip/$mask" dev eth0\nip route add default via "$router"\n"#;
    [
        "ip link set eth0 up".to_owned(),
        format!("printf '{script}' >/run/dhcp && chmod +x /run/dhcp"),
        "udhcpc -i eth0 -n -q -s /run/dhcp".to_owned(),
        "mkdir /www && echo I-AM-THE-GUEST >/www/index.html".to_owned(),
    ]
}

/// Its guest answers once somebody has come to its port 7000.
fn web_server(name: &str) -> String {
    let mut commands = network().to_vec();
    commands.extend(
        [
            "echo NOT-YET-SERVING; nc -l -p 7000 </dev/null",
            "httpd -p 8080 -h /www && httpd -p 22 -h /www && echo SERVING",
            "stay",
        ]
        .map(str::to_owned),
    );
    let probes = "spec:
  readinessProbe: {httpGet: {port: 8080, path: /index.html}, periodSeconds: 1}
  livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 5}
";
    vm(name, "", &commands).replace("spec:\n", probes)
}

fn is_ready(tenant: &Tenant, pod: &str) -> bool {
    let path = ".status.conditions[?(@.type==\"Ready\")].status";
    tenant.field(&format!("pod/{pod}"), path).as_deref() == Some("True")
}

fn page_at(address: &str, port: u16) -> String {
    let url = format!("http://{address}:{port}/index.html");
    run(Command::new("curl").args([
        "--silent",
        "--show-error",
        "--fail",
        "--max-time",
        "20",
        &url,
    ]))
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn probes_and_services_reach_the_guest() {
    have_small_guest();
    let tenant = Tenant::new("web");
    tenant.apply(&web_server("web"));
    tenant.apply(
        "apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
",
    );
    tenant.await_console(180, "web", "NOT-YET-SERVING");
    // passt accepts connections already; only the guest can answer.
    assert!(!is_ready(&tenant, "web"), "nothing answers yet");
    assert_eq!(
        tenant.field("endpoints/web", ".subsets[*].addresses[*].ip"),
        None
    );
    let reason = ".status.conditions[?(@.type==\"Ready\")].reason";
    tenant.await_field(10, "vm/web", reason, "NotAnswering");
    let pod = tenant
        .field("pod/web", ".status.podIP")
        .expect("an address");
    until(60, "the guest answers its probe", || {
        let _ = TcpStream::connect((pod.as_str(), 7000));
        is_ready(&tenant, "web").then_some(())
    });
    assert_eq!(page_at(&pod, 8080).trim(), "I-AM-THE-GUEST");
    // Below 1024, too, though this Kubernetes takes no sysctl for it.
    assert_eq!(page_at(&pod, 22).trim(), "I-AM-THE-GUEST");
    tenant.await_field(20, "endpoints/web", ".subsets[*].addresses[*].ip", &pod);
    let service = tenant
        .field("service/web", ".spec.clusterIP")
        .expect("an address");
    assert_eq!(page_at(&service, 80).trim(), "I-AM-THE-GUEST");
    tenant.kubectl(&["delete", "vm", "web", "--timeout=300s"]);
}

/// The agent has a name in its hosts, and nobody else: neither has QEMU.
fn known_to_the_agent(name: &str, address: &str) {
    let label = "disklet.io/component=agent";
    let uid = "jsonpath={.items[0].metadata.uid}";
    let uid =
        run(Command::new("kubectl").args(["-n", "disklet", "get", "pods", "-l", label, "-o", uid]));
    let add = "echo \"$1 $2\" >>\"/var/lib/kubelet/pods/$3/etc-hosts\"";
    on_node(NODE, &["sh", "-ec", add, "sh", address, name, &uid]);
}

/// All that a tenant needs is rights in its own namespace. A disk that the VM names
/// itself is at the address that was judged: QEMU looks no name up.
#[test]
#[ignore = "needs a cluster: script/test"]
fn a_tenants_vm_has_a_disk_at_a_server_and_is_reached_by_tcp() {
    have_small_guest();
    let tenant = Tenant::with_own_rights("inline");
    let server = Iscsi::start(&tenant);
    known_to_the_agent("storage.test", server.address());
    let (source, secret) = server.chap_source("storage.test");
    let mut commands = network().to_vec();
    commands.push("httpd -p 22 -h /www".to_owned());
    commands.extend(read_and_write("lun"));
    commands.push("stay".to_owned());
    let disk = format!("      - {{source: {{{source}}}, serial: lun}}");
    let probe = "spec:\n  readinessProbe: {tcpSocket: {port: 22}, periodSeconds: 1}\n";
    tenant.apply(&secret);
    tenant.apply(&vm("inline", &disk, &commands).replace("spec:\n", probe));
    tenant.apply(
        "---\n{apiVersion: v1, kind: Service, metadata: {name: inline}, \
         spec: {selector: {app: inline}, ports: [{port: 22}]}}",
    );

    let console = tenant.await_console(180, "inline", "GUEST-READY");
    assert!(
        console.contains("lun READS disk of iscsi chap"),
        "{console}"
    );
    assert_eq!(
        written(&server.directory().join("chap.raw")),
        "guest wrote lun"
    );
    // passt answers the probe as soon as QEMU runs; the page is the guest's.
    until(20, "the launcher is ready", || {
        is_ready(&tenant, "inline").then_some(())
    });
    let pod = tenant.field("pod/inline", ".status.podIP");
    let pod = pod.expect("an address");
    tenant.await_field(20, "endpoints/inline", ".subsets[*].addresses[*].ip", &pod);
    let service = tenant.field("service/inline", ".spec.clusterIP");
    assert_eq!(
        page_at(&service.expect("an address"), 22).trim(),
        "I-AM-THE-GUEST"
    );
    assert_status(&tenant, &pod, server.address());
    delete(&tenant, "inline");
}

/// What a tenant sees of the VM, field by field.
fn assert_status(tenant: &Tenant, pod: &str, server: &str) {
    tenant.await_field(10, "vm/inline", ".status.phase", "Running");
    let vm: Value = serde_json::from_str(&tenant.kubectl(&["get", "vm", "inline", "-o", "json"]))
        .expect("JSON");
    let status = &vm["status"];
    assert_eq!(status["podIP"], pod, "{status}");
    let generation = &vm["metadata"]["generation"];
    for kind in ["Ready", "DisksReady"] {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let condition = conditions.find(|condition| condition["type"] == kind);
        let condition = condition.unwrap_or_else(|| panic!("no {kind} in {status}"));
        assert_eq!(condition["status"], "True", "{condition}");
        assert_eq!(&condition["observedGeneration"], generation, "{condition}");
    }
    let disks = status["disks"].as_array().expect("disks");
    let [root, lun, ..] = &disks[..] else {
        panic!("{status}");
    };
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
    assert_eq!(root["target"], "sda", "{root}");
    assert_eq!(root["source"], "image virtlet.cloud/small", "{root}");
    assert_eq!(root["access"], "read-shared", "{root}");
    assert!(
        number(&root["size"]) > number(&root["allocation"]),
        "{root}"
    );
    assert!(number(&root["allocation"]) > Some(0), "{root}");
    assert_eq!(lun["target"], "sdb", "{lun}");
    assert_eq!(lun["access"], "write-exclusive", "{lun}");
    assert_eq!(
        lun["source"], "iscsi iqn.2024-01.test.disklet:chap/1",
        "{lun}"
    );
    let domain = on_node(
        NODE,
        &[
            "sh",
            "-c",
            "virsh -q -c qemu:///system dumpxml \"$(virsh -q -c qemu:///system list --name | grep -e -inline)\"",
        ],
    );
    assert!(
        domain.contains(server) && !domain.contains("storage.test"),
        "{domain}"
    );
}
