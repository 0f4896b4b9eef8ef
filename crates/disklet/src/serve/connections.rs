//! Connections: some at the same time, none without a request.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use super::uploads::Uploads;

/// So many are connected at the same time, at most.
const MOST_CONNECTIONS: usize = 64;
/// A handshake, or the head of a request, that takes longer does not come any more.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);
/// When the program ends, answers are sent for so long. What is durable by then stays so.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// What is read of a connection at once, which heads of requests have to fit into.
const READ_AT_ONCE: usize = 256 << 10;

pub(super) struct Server {
    /// Without it, what is sent can be read on the way.
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) uploads: Arc<Uploads>,
}

impl Server {
    /// Serves until told to end.
    pub(super) async fn serve(self, listener: TcpListener, mut ending: watch::Receiver<bool>) {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let told = ending.clone();
        loop {
            let arrived = tokio::select! {
                arrived = next(&listener, &places) => arrived,
                _ = ending.wait_for(|ends| *ends) => break,
            };
            let Some((stream, place)) = arrived else {
                continue;
            };
            let (tls, uploads, told) = (self.tls.clone(), Arc::clone(&self.uploads), told.clone());
            tokio::spawn(async move {
                match tls {
                    None => attend(stream, uploads, told).await,
                    Some(tls) => match timeout(ARRIVES_WITHIN, tls.accept(stream)).await {
                        Ok(Ok(stream)) => attend(stream, uploads, told).await,
                        Ok(Err(error)) => debug!(%error, "a handshake failed"),
                        Err(_) => debug!("a handshake took too long"),
                    },
                }
                drop(place);
            });
        }
        drop(listener);
        let all = u32::try_from(MOST_CONNECTIONS).unwrap_or(u32::MAX);
        let _ = timeout(ENDS_WITHIN, places.acquire_many(all)).await;
    }
}

async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            debug!(%error, "a connection was not accepted");
            sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

async fn attend(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    uploads: Arc<Uploads>,
    mut ending: watch::Receiver<bool>,
) {
    let service = service_fn(move |request| {
        let uploads = Arc::clone(&uploads);
        async move { Ok::<_, Infallible>(uploads.respond(request).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(ARRIVES_WITHIN)
            .max_buf_size(READ_AT_ONCE)
            .serve_connection(TokioIo::new(stream), service)
    );
    let told = async {
        let _ = ending.wait_for(|ends| *ends).await;
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection was lost");
    }
}
