//! `disklet launch` with the real passt, in a network namespace as a pod has
//! it, with the rights that a pod has, and with a guest that is reached there.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "launch/guest.rs"]
mod guest;
#[path = "launch/launched.rs"]
#[allow(dead_code, reason = "the tests without root use the rest")]
mod launched;
#[path = "launch/pod.rs"]
mod pod;

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use guest::Guest;
use launched::{Launched, Launcher, wait_until};
use pod::{Pod, children, run};

const ADDRESS: &str = "10.231.7.2";
const GATEWAY: &str = "10.231.7.1";

/// What the guest does with what DHCP says.
const DHCP: &str = "printf '#!/bin/sh\\n[ \"$1\" = bound ] || exit 0\\necho got $ip/$mask $router\\n\
    ip addr add $ip/$mask dev eth0; ip route add default via $router\\n' >/run/dhcp; chmod +x /run/dhcp; \
    ip link set lo up; ip link set eth0 up; udhcpc -i eth0 -n -q -t 10 -s /run/dhcp 2>/dev/null";

#[test]
#[ignore = "needs root, passt and QEMU: script/test"]
fn a_guest_has_the_pods_address_and_is_reached_there() {
    let pod = Pod::new("guest", ADDRESS, GATEWAY);
    let launched = pod.launch(&["--tcp-ports=80,81,8080", "--udp-ports=5353"]);
    let mut agent = launched.greeted();
    let mut guest = Guest::boot(launched);
    let said = guest.shell(DHCP);
    assert!(
        said.contains(&format!("got {ADDRESS}/24 {GATEWAY}")),
        "{said}"
    );

    guest.shell("mkdir /run/www; echo from-the-guest >/run/www/x");
    guest.shell("httpd -p 80 -h /run/www; httpd -p 8080 -h /run/www");
    for port in [80, 8080] {
        assert!(pod.get(port).contains("from-the-guest"), "{port}");
    }
    // Nobody listens in the guest; and nobody does for it.
    assert_eq!(pod.get(81), "");
    assert_eq!(pod.get(8081), "");

    let before = guest.shell("grep Udp: /proc/net/snmp | tail -n 1");
    pod.peer(
        "for i in 1 2 3; do echo x >/dev/udp/$0/5353; done",
        &[ADDRESS],
    );
    wait_until("datagrams come", || {
        guest.shell("grep Udp: /proc/net/snmp | tail -n 1") != before
    });

    let server = pod.peer_server("busybox nc -l -p 9000", 9000);
    guest.shell(&format!("echo to-the-node | nc {GATEWAY} 9000"));
    assert_eq!(server.wait(), "to-the-node\n");
    let said = guest.shell(&format!("ping -c 1 -W 5 {GATEWAY}"));
    assert!(said.contains(" 0% packet loss"), "{said}");

    // QEMU connects again, and passt is there again.
    let passt = children(guest.launched.child.id())[0];
    kill_process(Pid::from_raw(passt).unwrap(), Signal::KILL).unwrap();
    wait_until("the guest is reached again", || {
        pod.get(8080).contains("from-the-guest")
    });

    guest.launched.signal(Signal::TERM);
    assert_eq!(agent.hear(), r#"{"type":"stop","grace":25}"#);
    let launched = guest.kill();
    agent.say(r#"{"type":"ended","how":"killed","why":"by the test"}"#);
    let outcome = launched.end();
    assert_eq!(outcome.code, Some(137), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("signal 9"), "{}", outcome.stderr);
}

#[test]
#[ignore = "needs root and passt: script/test"]
fn a_pod_without_low_ports_says_so() {
    let pod = Pod::new("low", "10.231.8.2", "10.231.8.1");
    pod.sysctl("net.ipv4.ip_unprivileged_port_start=1024");
    let launched = pod.launch(&[]);
    launched.greeted().say(r#"{"type":"ended","how":"off"}"#);
    let outcome = launched.end();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let told = "cannot be reached at ports below 1024";
    assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
}

/// The pod and the program's file say it; passt is told by the launcher, and has no
/// right any more when it listens.
#[test]
#[ignore = "needs root and passt: script/test"]
fn a_pod_with_the_right_has_low_ports() {
    let pod = Pod::new("right", "10.231.12.2", "10.231.12.1");
    pod.sysctl("net.ipv4.ip_unprivileged_port_start=1024");
    let launched = pod.launch_with_low_ports(&["--tcp-ports=22,8080", "--udp-ports=53"]);
    let _qemu = launched.connect("net");
    let listens = |file: &str, port: &str| {
        let path = format!("/proc/{}/net/{file}", launched.child.id());
        fs::read_to_string(path).unwrap().contains(port)
    };
    wait_until("TCP 22 and UDP 53 are open", || {
        listens("tcp", ":0016 ") && listens("udp", ":0035 ")
    });
    let passt = children(launched.child.id())[0];
    wait_until("passt has no right any more", || {
        fs::read_to_string(format!("/proc/{passt}/status"))
            .unwrap()
            .contains("CapPrm:\t0000000000000000")
    });
    launched.greeted().say(r#"{"type":"ended","how":"off"}"#);
    let outcome = launched.end();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let told = "cannot be reached";
    assert!(!outcome.stderr.contains(told), "{}", outcome.stderr);
}

/// passt would end if it could not listen at all that it was told.
#[test]
#[ignore = "needs root and passt: script/test"]
fn a_pod_with_few_descriptors_has_fewer_ports() {
    let pod = Pod::new("few", "10.231.11.2", "10.231.11.1");
    let launched = pod.launch_by(&["prlimit", "--nofile=1024:1024"], &[]);
    let _qemu = launched.connect("net");
    wait_until("a port is open", || {
        fs::read_to_string(format!("/proc/{}/net/tcp", launched.child.id()))
            .unwrap()
            .contains(":01D0 ")
    });
    launched.greeted().say(r#"{"type":"ended","how":"off"}"#);
    let outcome = launched.end();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let told = "at TCP ports 1-464 and UDP ports 1-48 only";
    assert!(outcome.stderr.contains(told), "{}", outcome.stderr);
}

#[test]
#[ignore = "needs root and passt: script/test"]
fn a_pod_without_a_network_says_so() {
    let pod = Pod::new("lone", "10.231.9.2", "10.231.9.1");
    run(&["ip", "-n", pod.name(), "link", "del", "eth0"]);
    let outcome = pod.launch(&[]).end();
    assert_eq!(outcome.code, Some(70));
    let told = "External interface not usable";
    assert!(outcome.message.contains(told), "{}", outcome.message);
}

/// The first process of a container inherits everybody's orphans, and gets no
/// signal that it does not ask for.
#[test]
#[ignore = "needs root: script/test"]
fn is_a_good_first_process() {
    let mut launcher = Launcher::new(&["--no-network"]);
    let mut outer = Command::new("unshare");
    outer.args(["--pid", "--fork", "--kill-child"]);
    outer.arg(launcher.command.get_program());
    outer.args(launcher.command.get_args());
    outer.stdin(std::process::Stdio::piped());
    outer.stdout(std::process::Stdio::piped());
    outer.stderr(std::process::Stdio::piped());
    launcher.command = outer;
    let launched: Launched = launcher.start();
    let mut agent = launched.greeted();
    let first = children(launched.child.id())[0];
    let first_text = first.to_string();
    for _ in 0..5 {
        run(&[
            "nsenter",
            "-t",
            &first_text,
            "-p",
            "sh",
            "-c",
            "(sleep 0.3 &) ; exit 0",
        ]);
    }
    wait_until("it has inherited them", || {
        !children(first.unsigned_abs()).is_empty()
    });
    wait_until("it has waited for them", || {
        children(first.unsigned_abs()).is_empty()
    });
    kill_process(Pid::from_raw(first).unwrap(), Signal::TERM).unwrap();
    assert_eq!(agent.hear(), r#"{"type":"stop","grace":25}"#);
    agent.say(r#"{"type":"ended","how":"off"}"#);
    assert_eq!(launched.end().code, Some(0));
}

/// A machine with 10,000 ports open has to be up soon.
#[test]
#[ignore = "needs root and passt: script/test"]
fn the_usual_ports_open_soon() {
    let pod = Pod::new("ports", "10.231.10.2", "10.231.10.1");
    let launched = pod.launch(&[]);
    let start = std::time::Instant::now();
    let _qemu = launched.connect("net");
    wait_until("the last port is open", || {
        fs::read_to_string(format!("/proc/{}/net/udp", launched.child.id()))
            .unwrap()
            .contains(":03FF ")
    });
    assert!(start.elapsed() < Duration::from_secs(30));
}
