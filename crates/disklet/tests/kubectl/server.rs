//! An API server of a few answers, on a port of its own, and what is made of them.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use disklet::cluster::leases::Leases;
use disklet_core::lease::Holder;
use kube::{Client, Config};
use serde_json::json;

use crate::{Scratch, disklet, kubeconfig, plugin};

/// The paths that were asked for.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Answers until the test ends: by the path's beginning, and else that there is no such
/// thing.
pub(crate) fn serve(answers: &'static [(&'static str, u16, &'static str)]) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Asked::default();
    let log = asked.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let log = log.clone();
            thread::spawn(move || converse(&stream, answers, &log));
        }
    });
    (address, asked)
}

fn converse(stream: &TcpStream, answers: &[(&str, u16, &str)], asked: &Asked) {
    let mut reader = BufReader::new(stream);
    while let Some(path) = request(&mut reader) {
        let found = answers.iter().find(|(start, ..)| path.starts_with(start));
        asked.0.lock().unwrap().push(path.clone());
        let (code, body) = found.map_or((404, NOT_FOUND), |(_, code, body)| (*code, *body));
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {code} -\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        let mut out = stream;
        if out.write_all(format!("{head}{body}").as_bytes()).is_err() {
            return;
        }
    }
}

/// The path of the next request, which is read to its end.
fn request(reader: &mut impl BufRead) -> Option<String> {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(told) = line.strip_prefix("content-length:") {
            length = told.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    first.split(' ').nth(1).map(str::to_owned)
}

const NOT_FOUND: &str = r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "there is none", "reason": "NotFound", "code": 404}"#;
const VM: &str = "/apis/disklet.io/v1alpha1/namespaces/default/vms/x";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases";
const NO_LEASES: &str =
    r#"{"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", "metadata": {}, "items": []}"#;
const NAMESPACE: &str =
    r#"{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "nowhere"}}"#;
const NO_NODES: &str = r#"{"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []}"#;

#[test]
fn what_an_api_server_says_does_not_reach_the_terminal() {
    let scratch = Scratch::new("hostile");
    let (address, _) = serve(&[(
        VM,
        403,
        r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no\u001b[2J\nerror: x", "reason": "Forbidden", "code": 403}"#,
    )]);
    let file = scratch.file("config", &kubeconfig(&address, ""));
    let told = plugin(&["describe", "x"], &file);
    told.assert_refused(r"no\u{1b}[2J\nerror: x");
    let (address, _) = serve(&[(
        VM,
        500,
        r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "the disk is full", "reason": "InternalError", "code": 500}"#,
    )]);
    let told = plugin(&["describe", "x", "--server", &address], &file);
    told.assert_refused("error: VM default/x: the API server answers 500: the disk is full\n");
}

#[test]
fn a_namespace_without_leases_is_told_from_none() {
    let args = ["leases", "ls", "--disklet-namespace", "nowhere", "--server"];
    let (address, _) = serve(&[(LEASES, 200, NO_LEASES)]);
    let told = plugin(&[&args[..], &[&address]].concat(), "");
    told.assert_refused("there is no namespace nowhere");
    let (address, _) = serve(&[
        (LEASES, 200, NO_LEASES),
        ("/api/v1/namespaces/nowhere", 200, NAMESPACE),
        ("/api/v1/nodes", 200, NO_NODES),
    ]);
    let told = plugin(&[&args[..], &[&address]].concat(), "");
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    told.assert_harmless();
}

/// What comes of taking a lease in that namespace: the answer's code.
fn refused_lease(address: &str) -> u16 {
    let holder = json!({
        "uuid": "00000000-0000-0000-0000-000000000001",
        "namespace": "shop", "name": "db", "node": "n", "boot": "b",
        "access": "write-exclusive", "since": "then",
    });
    let holder: Holder = serde_json::from_value(holder).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::try_from(Config::new(address.parse().unwrap())).unwrap();
        let leases = Leases::new(client, "nowhere");
        let taken = leases.take("x", "a disk", &holder);
        let taken = tokio::time::timeout(Duration::from_secs(60), taken).await;
        match taken.unwrap() {
            Err(kube::Error::Api(status)) => status.code,
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn a_lease_that_cannot_be_had_is_not_tried_for_ever() {
    let (address, asked) = serve(&[]);
    assert_eq!(refused_lease(&address), 404);
    assert_eq!(asked.all().len(), 2);
    let (address, asked) = serve(&[
        (
            "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases/x",
            404,
            NOT_FOUND,
        ),
        (
            LEASES,
            409,
            r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "it is there", "reason": "AlreadyExists", "code": 409}"#,
        ),
    ]);
    assert_eq!(refused_lease(&address), 409);
    assert!(asked.all().len() < 100);
}

#[test]
fn what_a_dry_run_leaves_is_not_said_to_be_deleted() {
    let scratch = Scratch::new("dry");
    let (address, _) = serve(&[
        (
            "/apis/disklet.io/v1alpha1/vms",
            200,
            r#"{"kind": "VMList", "apiVersion": "disklet.io/v1alpha1", "metadata": {}, "items": [
                {"kind": "VM", "apiVersion": "disklet.io/v1alpha1", "metadata": {"name": "db", "namespace": "shop"}}]}"#,
        ),
        (
            "/api/v1/pods",
            200,
            r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []}"#,
        ),
    ]);
    let file = scratch.file("config", &kubeconfig(&address, ""));
    let told = disklet(&["uninstall", "--dry-run", "--force"], &file);
    assert!(
        told.stdout.contains("VM shop/db would be deleted\n"),
        "{}",
        told.stdout
    );
    assert!(!told.stdout.contains("deleting"), "{}", told.stdout);
}
