//! `/healthz`, `/readyz` and `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::debug;

/// What a program says of itself.
#[derive(Debug)]
pub struct Health {
    is_ready: AtomicBool,
    held: AtomicUsize,
    metrics: Registry,
}

/// Until this is dropped, a program is not ready.
#[derive(Debug)]
pub struct Hold(Arc<Health>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Health {
    /// Not ready yet.
    #[must_use]
    pub fn new(metrics: Registry) -> Arc<Self> {
        Arc::new(Self {
            is_ready: AtomicBool::new(false),
            held: AtomicUsize::new(0),
            metrics,
        })
    }

    /// Keeps it from being ready, whatever else is said.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Hold {
        self.held.fetch_add(1, Ordering::Relaxed);
        Hold(Arc::clone(self))
    }

    fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed) && self.held.load(Ordering::Relaxed) == 0
    }

    /// From now on it is ready, or not.
    pub fn set_ready(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Relaxed);
    }

    fn answer(&self, method: &Method, path: &str) -> (StatusCode, &'static str, String) {
        const TEXT: &str = "text/plain; charset=utf-8";
        const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let plain = |status: StatusCode, text: &str| (status, TEXT, format!("{text}\n"));
        if method != Method::GET && method != Method::HEAD {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "use GET");
        }
        match path {
            "/healthz" => plain(StatusCode::OK, "ok"),
            "/readyz" if self.is_ready() => plain(StatusCode::OK, "ok"),
            "/readyz" => plain(StatusCode::SERVICE_UNAVAILABLE, "not ready"),
            "/metrics" => {
                let mut text = String::new();
                match encode(&mut text, &self.metrics) {
                    Ok(()) => (StatusCode::OK, METRICS, text),
                    Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot be written"),
                }
            }
            _ => plain(
                StatusCode::NOT_FOUND,
                "there are /healthz, /readyz, /metrics",
            ),
        }
    }
}

/// So many ask at the same time, at most.
const MOST_AT_ONCE: usize = 64;
/// A request that takes longer to arrive is no request.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// Answers until the program ends.
pub async fn serve(listener: TcpListener, health: Arc<Health>) {
    let places = Arc::new(Semaphore::new(MOST_AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let health = Arc::clone(&health);
        let answer = service_fn(move |request: Request<Incoming>| {
            let (status, kind, text) = health.answer(request.method(), request.uri().path());
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            let kind = HeaderValue::from_static(kind);
            response.headers_mut().insert(CONTENT_TYPE, kind);
            async move { Ok::<_, Infallible>(response) }
        });
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(ASKED_WITHIN)
                .keep_alive(false)
                .max_buf_size(8 << 10)
                .serve_connection(TokioIo::new(stream), answer);
            if let Err(error) = connection.await {
                debug!(%error, "a connection was lost");
            }
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn it_says_how_it_is() {
        let mut metrics = Registry::default();
        metrics.register_collector(Box::new(super::super::process::Process));
        let health = Health::new(metrics);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Arc::clone(&health)));
        let get = |path: &'static str| async move {
            let answer = ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
            answer.split(' ').nth(1).unwrap().to_owned() + &answer
        };
        assert!(get("/healthz").await.starts_with("200"));
        assert!(get("/readyz").await.starts_with("503"));
        let hold = health.hold();
        health.set_ready(true);
        assert!(get("/readyz").await.starts_with("503"));
        drop(hold);
        assert!(get("/readyz").await.starts_with("200"));
        assert!(get("/").await.starts_with("404"));
        let metrics = get("/metrics").await;
        assert!(
            metrics.contains("\nprocess_resident_memory_bytes "),
            "{metrics}"
        );
        assert!(metrics.ends_with("# EOF\n"), "{metrics}");
        let put = ask(
            address,
            "PUT /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
        );
        assert!(put.await.starts_with("HTTP/1.1 405"));
    }
}
