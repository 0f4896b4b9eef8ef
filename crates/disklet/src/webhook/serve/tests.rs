use std::net::SocketAddr;
use std::sync::Mutex;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::certificates::{Served, make, tls};
use super::*;

const HOST: &str = "disklet-webhook.disklet.svc";
const GOOD: &str = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1",
    "kind": {"group": "disklet.io", "kind": "VM"}, "operation": "DELETE"}}"#;

#[derive(Default)]
struct Counted(Mutex<Vec<&'static str>>);

impl Counts for Counted {
    fn answered(&self, outcome: &'static str, _: Duration) {
        self.0.lock().unwrap().push(outcome);
    }

    fn serving_until(&self, _: u64) {}
}

struct Running {
    address: SocketAddr,
    served: Arc<Served>,
    ending: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
    counted: Arc<Counted>,
}

/// A new certificate is served; who believes its authority.
fn exchange(served: &Served) -> TlsConnector {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let generation = make(&[HOST.to_owned()], now, Duration::from_secs(600)).unwrap();
    served.exchange(&generation).unwrap();
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(generation.authority.as_bytes()).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Who goes on with an earlier conversation does not look at certificates.
    config.resumption = Resumption::disabled();
    TlsConnector::from(Arc::new(config))
}

async fn start() -> Running {
    start_with(None).await
}

async fn start_with(client: Option<Client>) -> Running {
    start_for(MOST_CONNECTIONS, client).await
}

async fn start_for(most: usize, client: Option<Client>) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = Arc::new(Served::default());
    let counted = Arc::new(Counted::default());
    let (ending, told) = watch::channel(false);
    let server = Server {
        tls: TlsAcceptor::from(Arc::new(tls(Arc::clone(&served)).unwrap())),
        counts: Arc::clone(&counted),
        launcher: Settings {
            image: "example.com/disklet:1".to_owned(),
            pull_policy: None,
            default_memory: disklet_core::units::ByteSize::from_bytes(1 << 30),
            low_ports: false,
            seccomp_profile: None,
        },
        client,
    };
    Running {
        address,
        served,
        ending,
        task: tokio::spawn(server.serve_so_many(most, listener, told)),
        counted,
    }
}

async fn connect(running: &Running, by: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(running.address).await?;
    by.connect(ServerName::try_from(HOST).unwrap(), stream)
        .await
}

async fn ask(stream: &mut TlsStream<TcpStream>, method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let _ = stream.write_all(body.as_bytes()).await;
    answered(stream).await
}

async fn answered(stream: &mut TlsStream<TcpStream>) -> String {
    let mut buffer = vec![0; 8192];
    let length = stream.read(&mut buffer).await.unwrap_or(0);
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[tokio::test]
async fn it_answers_api_servers_and_nobody_for_long() {
    let running = start().await;
    let by = exchange(&running.served);
    let mut stream = connect(&running, &by).await.unwrap();
    let answer = ask(&mut stream, "POST", "/validate", GOOD).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("\"allowed\":true"),
        "{answer}"
    );
    for (method, path, body, code) in [
        ("POST", "/", "", "404"),
        ("GET", "/validate", "", "405"),
        ("POST", "/validate", "{}", "400"),
        ("POST", "/validate", "\u{0}", "400"),
    ] {
        let mut stream = connect(&running, &by).await.unwrap();
        let answer = ask(&mut stream, method, path, body).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
        // Who is no API server does not stay.
        assert!(answer.contains("connection: close"), "{answer}");
    }
    let large = " ".repeat(LARGEST_BODY + 1);
    let answer = ask(&mut stream, "POST", "/validate", &large).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let counted = running.counted.0.lock().unwrap().clone();
    assert_eq!(counted[0], "allowed");
    assert!(
        counted[1..].iter().all(|it| *it == "malformed"),
        "{counted:?}"
    );
}

#[tokio::test]
async fn what_does_not_arrive_is_not_waited_for() {
    let running = start().await;
    let by = exchange(&running.served);
    let mut slow = connect(&running, &by).await.unwrap();
    let head = "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nno";
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let began = Instant::now();
    assert!(answered(&mut slow).await.starts_with("HTTP/1.1 408"));
    let mut nothing = Vec::new();
    let _ = silent.read_to_end(&mut nothing).await;
    assert!(
        began.elapsed() < ARRIVES_WITHIN * 2,
        "{:?}",
        began.elapsed()
    );
    // Others were answered meanwhile, and are now.
    let mut stream = connect(&running, &by).await.unwrap();
    assert!(
        ask(&mut stream, "POST", "/validate", GOOD)
            .await
            .contains("200")
    );
}

/// Whoever else is connected, and whatever they send, slowly, API servers are answered.
#[tokio::test]
async fn nobody_keeps_others_away() {
    let running = start().await;
    let by = exchange(&running.served);
    let mut slow = Vec::new();
    for length in [100, LARGE_BODY + 1].repeat(MOST_JUDGED as usize + MOST_LARGE) {
        let mut stream = connect(&running, &by).await.unwrap();
        let head =
            format!("POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let began = Instant::now();
    let mut stream = connect(&running, &by).await.unwrap();
    let answer = ask(&mut stream, "POST", "/validate", GOOD).await;
    assert!(answer.contains("200"), "{answer}");
    assert!(
        began.elapsed() < ARRIVES_WITHIN / 2,
        "{:?}",
        began.elapsed()
    );
}

/// Begins a request whose body does not come.
async fn begin_asking(running: &Running, by: &TlsConnector) -> TlsStream<TcpStream> {
    let mut stream = connect(running, by).await.unwrap();
    let head = "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn one_address_has_its_share_of_the_places() {
    let running = start().await;
    let by = exchange(&running.served);
    let mut all = Vec::new();
    while all.len() < peers::MOST {
        all.push(begin_asking(&running, &by).await);
    }
    connect(&running, &by).await.unwrap_err();
    // Those that stand are served, and one that ends makes room.
    all[0].write_all(&[b' '; 100]).await.unwrap();
    let answer = answered(&mut all[0]).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    all.pop();
    let again = async { while connect(&running, &by).await.is_err() {} };
    timeout(ARRIVES_WITHIN, again).await.unwrap();
}

async fn asked_once(running: &Running, by: &TlsConnector) -> TlsStream<TcpStream> {
    let mut stream = connect(running, by).await.unwrap();
    let answer = ask(&mut stream, "POST", "/validate", GOOD).await;
    assert!(answer.contains("200"), "{answer}");
    stream
}

/// Who only waits for its next request keeps nobody away, neither its own address nor
/// others.
#[tokio::test]
async fn who_waits_longest_makes_room() {
    for most in [peers::MOST, MOST_CONNECTIONS] {
        let running = start_for(most, None).await;
        let by = exchange(&running.served);
        let mut all = Vec::new();
        while all.len() < peers::MOST {
            all.push(asked_once(&running, &by).await);
        }
        let began = Instant::now();
        let answer = ask(&mut all[0], "POST", "/validate", GOOD).await;
        assert!(answer.contains("200"), "{answer}");
        all.push(asked_once(&running, &by).await);
        assert!(began.elapsed() < ARRIVES_WITHIN, "{:?}", began.elapsed());
        // The first one has asked again, so the second one has waited longest.
        assert_eq!(answered(&mut all[1]).await, "", "of {most}");
        for stands in [0, 2, peers::MOST] {
            let answer = ask(&mut all[stands], "POST", "/validate", GOOD).await;
            assert!(answer.contains("200"), "{stands} of {most}: {answer}");
        }
    }
}

/// The same, of all places.
#[tokio::test]
async fn whoever_waits_makes_room_for_everybody() {
    let running = start_for(8, None).await;
    let by = exchange(&running.served);
    let mut all = Vec::new();
    for _ in 0..16 {
        let began = Instant::now();
        all.push(asked_once(&running, &by).await);
        assert!(began.elapsed() < ARRIVES_WITHIN, "{:?}", began.elapsed());
    }
    for gone in &mut all[..8] {
        assert_eq!(answered(gone).await, "");
    }
    for stands in &mut all[8..] {
        let answer = ask(stands, "POST", "/validate", GOOD).await;
        assert!(answer.contains("200"), "{answer}");
    }
}

#[tokio::test]
async fn who_asks_nothing_does_not_stay_and_who_has_asked_does() {
    let running = start().await;
    let by = exchange(&running.served);
    let mut asks = connect(&running, &by).await.unwrap();
    let answer = ask(&mut asks, "POST", "/validate", GOOD).await;
    assert!(answer.contains("200"), "{answer}");
    let mut silent = connect(&running, &by).await.unwrap();
    let began = Instant::now();
    assert_eq!(answered(&mut silent).await, "");
    assert!(
        began.elapsed() < ARRIVES_WITHIN * 2,
        "{:?}",
        began.elapsed()
    );
    let answer = ask(&mut asks, "POST", "/validate", GOOD).await;
    assert!(answer.contains("200"), "{answer}");
}

/// Anybody can ask about claims, and the cluster may be slow to tell of them.
#[tokio::test]
async fn who_waits_for_the_cluster_keeps_nobody_waiting() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", silent.local_addr().unwrap());
    let config = kube::Config::new(uri.parse().unwrap());
    let running = start_with(Some(Client::try_from(config).unwrap())).await;
    let by = exchange(&running.served);
    let pod = r#"{"metadata": {"name": "vm", "annotations": {"kubernetes.io/target-runtime": "virtlet.cloud"}},
        "spec": {"containers": [{"name": "vm", "image": "virtlet.cloud/cirros"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}}"#;
    let review = format!(
        r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {{"uid": "1",
        "kind": {{"group": "", "kind": "Pod"}}, "operation": "CREATE", "object": {pod}}}}}"#
    );
    let begun = Instant::now();
    let mut waiting = Vec::new();
    for _ in 0..3 * MOST_JUDGED {
        let (mut stream, review) = (connect(&running, &by).await.unwrap(), review.clone());
        waiting.push(tokio::spawn(async move {
            ask(&mut stream, "POST", "/mutate", &review).await
        }));
    }
    // So that all of them wait.
    sleep(Duration::from_millis(500)).await;
    let asked = Instant::now();
    let mut other = connect(&running, &by).await.unwrap();
    let answer = ask(&mut other, "POST", "/validate", GOOD).await;
    assert!(answer.contains("200"), "{answer}");
    assert!(
        asked.elapsed() < claims::PATIENCE / 2,
        "{:?}",
        asked.elapsed()
    );
    for answer in waiting {
        let answer = answer.await.unwrap();
        assert!(answer.contains("was not looked up in time"), "{answer}");
    }
    // Nobody is asked one after the other.
    let most = claims::PATIENCE + Duration::from_secs(2);
    assert!(begun.elapsed() < most, "{:?}", begun.elapsed());
}

/// Connections that stand go on; new ones have the new certificate.
#[tokio::test]
async fn a_certificate_is_exchanged_without_losing_a_connection() {
    let running = start().await;
    let old = exchange(&running.served);
    let mut stands = connect(&running, &old).await.unwrap();
    let new = exchange(&running.served);
    assert!(
        ask(&mut stands, "POST", "/validate", GOOD)
            .await
            .contains("200")
    );
    assert!(
        connect(&running, &old).await.is_err(),
        "the old authority is not the new one's"
    );
    let mut other = connect(&running, &new).await.unwrap();
    assert!(
        ask(&mut other, "POST", "/validate", GOOD)
            .await
            .contains("200")
    );
}

#[tokio::test]
async fn who_still_comes_at_the_end_is_answered_and_sent_elsewhere() {
    let running = start().await;
    let by = exchange(&running.served);
    let mut stands = connect(&running, &by).await.unwrap();
    running.ending.send(true).unwrap();
    let answer = ask(&mut stands, "POST", "/validate", GOOD).await;
    assert!(
        answer.contains("200") && answer.contains("connection: close"),
        "{answer}"
    );
    let mut late = connect(&running, &by).await.unwrap();
    assert!(
        ask(&mut late, "POST", "/validate", GOOD)
            .await
            .contains("200")
    );
    timeout(STAYS + ENDS_WITHIN, running.task)
        .await
        .unwrap()
        .unwrap();
    TcpStream::connect(running.address).await.unwrap_err();
}
