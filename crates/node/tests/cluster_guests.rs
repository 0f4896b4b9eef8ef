//! What Kubernetes does with a pod, done with a guest: probes and Services reach it at the
//! pod's address.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use std::process::Command;

use kube::guests::{have_small_guest, vm};
use kube::{Tenant, run, until};

/// Its guest has the pod's address from DHCP, and answers after a while.
fn web_server(name: &str) -> String {
    let script = r#"#!/bin/sh\n[ "$1" = bound ] || exit 0\nip addr add "$ip/$mask" dev eth0\nip route add default via "$router"\n"#;
    let commands = [
        "ip link set eth0 up",
        &format!("printf '{script}' >/run/dhcp && chmod +x /run/dhcp"),
        "udhcpc -i eth0 -n -q -s /run/dhcp",
        "mkdir /www && echo I-AM-THE-GUEST >/www/index.html",
        "echo NOT-YET-SERVING; sleep 12",
        "httpd -p 8080 -h /www && echo SERVING",
        "stay",
    ];
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
    tenant.await_console(60, "web", "GUEST-READY");
    until(30, "the guest answers its probe", || {
        is_ready(&tenant, "web").then_some(())
    });
    let pod = tenant
        .field("pod/web", ".status.podIP")
        .expect("an address");
    assert_eq!(page_at(&pod, 8080).trim(), "I-AM-THE-GUEST");
    tenant.await_field(20, "endpoints/web", ".subsets[*].addresses[*].ip", &pod);
    let service = tenant
        .field("service/web", ".spec.clusterIP")
        .expect("an address");
    assert_eq!(page_at(&service, 80).trim(), "I-AM-THE-GUEST");
    tenant.kubectl(&["delete", "vm", "web", "--timeout=90s"]);
}
