//! HTTPS for API servers: few, small and quick requests, whoever sends them.

mod door;
mod idle;
mod peers;

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use disklet_core::launch::pod::Settings;

use self::door::{Door, Visitor};
use self::peers::Peer;
use super::claims::{self, Claims};
use super::review::{self, Outcome, Question, Unsaid};
use super::{Counts, MUTATE, VALIDATE};

/// So many are connected at the same time, at most.
const MOST_CONNECTIONS: usize = 512;
/// So many requests are judged at the same time, at most; of large ones less.
const MOST_JUDGED: u32 = 8;
/// For so many the cluster is asked about claims at the same time, at most. They wait, and
/// keep nobody from being judged.
const MOST_LOOKED_UP: usize = 16;
/// The API server takes objects of 3 MiB at most, and an update has two.
const LARGEST_BODY: usize = 8 << 20;
/// Hardly any body is larger. What is, waits until it may be sent: some at the same
/// time, and one of each address.
const LARGE_BODY: u64 = 128 << 10;
const MOST_LARGE: usize = 8;
/// A handshake, the first request, or a body, that takes longer does not come any more.
const ARRIVES_WITHIN: Duration = Duration::from_secs(5);
/// API servers keep connections for 90 seconds without a request. They, not we,
/// shall be the ones who close them, or a request may be lost. So long they stay only
/// while nobody else needs their places.
const IDLE: Duration = Duration::from_secs(120);
/// Who is told to make room goes at once, or has not read its answer.
const GOES_WITHIN: Duration = Duration::from_secs(1);
/// When the program ends, API servers still come for a moment.
const STAYS: Duration = Duration::from_secs(3);
const ENDS_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Server<C> {
    pub(super) tls: TlsAcceptor,
    pub(super) counts: Arc<C>,
    /// What launchers are like.
    pub(super) launcher: Settings,
    /// Where claims are looked up; without it none are.
    pub(super) client: Option<Client>,
}

struct Shared<C> {
    judged: Semaphore,
    large: Semaphore,
    looked_up: Semaphore,
    counts: Arc<C>,
    launcher: Arc<Settings>,
    client: Option<Client>,
}

impl<C: Counts> Server<C> {
    /// Serves until told to end, and then until nobody comes any more.
    pub(super) async fn serve(self, listener: TcpListener, ending: watch::Receiver<bool>) {
        self.serve_so_many(MOST_CONNECTIONS, listener, ending).await;
    }

    async fn serve_so_many(
        self,
        most: usize,
        listener: TcpListener,
        mut ending: watch::Receiver<bool>,
    ) {
        let door = Door::new(listener, most);
        let shared = Arc::new(Shared {
            judged: Semaphore::new(MOST_JUDGED as usize),
            large: Semaphore::new(MOST_LARGE),
            looked_up: Semaphore::new(MOST_LOOKED_UP),
            counts: self.counts,
            launcher: Arc::new(self.launcher),
            client: self.client,
        });
        let told = ending.clone();
        let mut ended = pin!(async {
            let _ = ending.wait_for(|ends| *ends).await;
            sleep(STAYS).await;
        });
        loop {
            let visitor = tokio::select! {
                visitor = door.next() => visitor,
                () = &mut ended => break,
            };
            let Some(mut visitor) = visitor else {
                continue;
            };
            let (tls, shared, told) = (self.tls.clone(), Arc::clone(&shared), told.clone());
            tokio::spawn(async move {
                if visitor.has_entered().await {
                    attend(visitor, &tls, shared, told).await;
                } else {
                    debug!(address = %visitor.address(), "nobody of it has made room");
                }
            });
        }
        // Requests that have come are answered.
        let _ = timeout(ENDS_WITHIN, door.close(most)).await;
    }
}

async fn attend<C: Counts>(
    visitor: Visitor,
    tls: &TlsAcceptor,
    shared: Arc<Shared<C>>,
    mut ending: watch::Receiver<bool>,
) {
    let Visitor {
        stream,
        peer,
        course,
        places: _places,
    } = visitor;
    let stream = match timeout(ARRIVES_WITHIN, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return debug!(%error, "a handshake failed"),
        Err(_) => return debug!("a handshake took too long"),
    };
    let is_ending = ending.clone();
    let asked = Arc::new(Notify::new());
    let first = Arc::clone(&asked);
    let course = Arc::new(course);
    let connected = Arc::new((shared, peer, Arc::clone(&course)));
    let service = service_fn(move |request| {
        first.notify_one();
        let (connected, is_ending) = (Arc::clone(&connected), is_ending.clone());
        async move {
            let (shared, peer, course) = &*connected;
            course.asks();
            let mut response = shared.respond(request, peer).await;
            course.is_answered();
            // Who is asked to go elsewhere by an answer loses no request. Who is no API
            // server does not stay.
            if *is_ending.borrow() || response.status() != StatusCode::OK {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(64 << 10)
            .serve_connection(TokioIo::new(stream), service)
    );
    let over = async {
        let _ = ending.wait_for(|ends| *ends).await;
        sleep(STAYS).await;
    };
    let unasked = async {
        if timeout(ARRIVES_WITHIN, asked.notified()).await.is_ok() {
            pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = unasked => return debug!("a connection without a request"),
        () = course.told_to_go() => {
            connection.as_mut().graceful_shutdown();
            let mut gone = timeout(GOES_WITHIN, connection.as_mut()).await;
            if gone.is_err() && course.is_asking() {
                // It has asked in the same moment.
                gone = timeout(IDLE, connection).await;
            }
            match gone {
                Ok(ended) => ended,
                Err(_) => return debug!("a connection that has not read its answer"),
            }
        }
        () = over => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection was lost");
    }
}

impl<C: Counts> Shared<C> {
    async fn respond(&self, request: Request<Incoming>, peer: &Peer) -> Response<Full<Bytes>> {
        let began = Instant::now();
        let (status, body, outcome) = self.judged(request, peer).await;
        self.counts.answered(outcome, began.elapsed());
        let kind = match status {
            StatusCode::OK => "application/json",
            _ => "text/plain; charset=utf-8",
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        let kind = HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// What is known of a VM pod's claims of which the pod says nothing. Who asks for many
    /// holds up its own requests only.
    async fn claims(&self, body: &Bytes, peer: &Peer) -> Claims {
        let Some(client) = &self.client else {
            return Claims::default();
        };
        let unsaid = {
            let (body, _turn) = (body.clone(), self.judged.acquire_many(turns(body)).await);
            tokio::task::spawn_blocking(move || Unsaid::of(&body)).await
        };
        let Ok(Some(unsaid)) = unsaid else {
            return Claims::default();
        };
        let turn = async {
            let of_peer = peer.looked_up.acquire().await;
            (of_peer, self.looked_up.acquire().await)
        };
        claims::look(client, &unsaid, turn).await
    }

    /// The body, as far as it comes in time.
    async fn body(&self, body: Incoming, peer: &Peer) -> Result<Bytes, (StatusCode, String)> {
        let is_large = body.size_hint().exact().is_none_or(|it| it > LARGE_BODY);
        // Who sends slowly holds up its own requests only.
        let _turns = match is_large {
            true => Some((peer.large.acquire().await, self.large.acquire().await)),
            false => None,
        };
        let body = Limited::new(body, LARGEST_BODY).collect();
        match timeout(ARRIVES_WITHIN, body).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) => Err((StatusCode::PAYLOAD_TOO_LARGE, error.to_string())),
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "took too long".to_owned())),
        }
    }

    async fn judged(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
    ) -> (StatusCode, Vec<u8>, &'static str) {
        let no = |status: StatusCode, why: String| (status, (why + "\n").into_bytes(), "malformed");
        let mutates = match request.uri().path() {
            VALIDATE => false,
            MUTATE => true,
            _ => {
                let there_is = format!("there is {VALIDATE}, and {MUTATE}");
                return no(StatusCode::NOT_FOUND, there_is);
            }
        };
        if request.method() != Method::POST {
            return no(StatusCode::METHOD_NOT_ALLOWED, "use POST".to_owned());
        }
        let body = match self.body(request.into_body(), peer).await {
            Ok(body) => body,
            Err((status, why)) => return no(status, why),
        };
        let claims = match mutates {
            true => self.claims(&body, peer).await,
            false => Claims::default(),
        };
        let Ok(_turn) = self.judged.acquire_many(turns(&body)).await else {
            return no(StatusCode::SERVICE_UNAVAILABLE, "ending".to_owned());
        };
        // A computation, which must not hold up who only waits.
        let launcher = Arc::clone(&self.launcher);
        let answer = tokio::task::spawn_blocking(move || {
            let question = match mutates {
                true => Question::Changed(&launcher, &claims),
                false => Question::Valid(&launcher),
            };
            review::answer(&body, question)
        });
        let answer = answer.await;
        match answer {
            Ok(Ok((answer, Outcome::Allowed))) => (StatusCode::OK, answer, "allowed"),
            Ok(Ok((answer, Outcome::Refused))) => (StatusCode::OK, answer, "refused"),
            Ok(Err(why)) => no(StatusCode::BAD_REQUEST, why.to_string()),
            Err(_) => no(StatusCode::INTERNAL_SERVER_ERROR, "failed".to_owned()),
        }
    }
}

/// Of how many a body takes the places: a large one takes much memory while it is judged.
fn turns(body: &Bytes) -> u32 {
    let large = u32::try_from(body.len() as u64 / LARGE_BODY).unwrap_or(MOST_JUDGED);
    large.saturating_add(1).min(MOST_JUDGED)
}

#[cfg(test)]
#[path = "serve/tests.rs"]
mod tests;
