//! One volume, and whoever fills it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use disklet::fill::{Coming, FillError, Filled, Stage, Standing, Volume};
use disklet::progress::{Progress, ProgressForm};
use disklet_block::convert::Watch as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, Request, StatusCode};
use tokio::sync::{Mutex as Turn, Notify, OwnedMutexGuard, watch};
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Answer, Refusal, plain};
use super::asked::{self, Token};
use super::body::{Loss, Lost, pipe};
use super::metrics::Metrics;

/// A connection that is closed while somebody sends loses the answer that is on its way to
/// them. For so long, what still comes is read, and thrown away.
const LINGERS: Duration = Duration::from_secs(2);

/// The upload into one volume.
#[derive(Debug)]
pub(super) struct Uploads {
    volume: Arc<Turn<Volume>>,
    standing: Arc<Mutex<Standing>>,
    token: Token,
    patience: Duration,
    form: ProgressForm,
    ending: watch::Receiver<bool>,
    /// What was said to whoever came last.
    last: Mutex<Option<Refusal>>,
    done: Notify,
    metrics: Arc<Metrics>,
}

impl Uploads {
    pub(super) fn new(
        volume: Volume,
        token: Token,
        patience: Duration,
        form: ProgressForm,
        ending: watch::Receiver<bool>,
    ) -> Self {
        let metrics = Arc::new(Metrics::new());
        if volume.filled().is_some() {
            metrics.set_filled();
        }
        Self {
            standing: volume.standing(),
            volume: Arc::new(Turn::new(volume)),
            token,
            patience,
            form,
            ending,
            last: Mutex::new(None),
            done: Notify::new(),
            metrics,
        }
    }

    /// When the volume is filled.
    pub(super) async fn done(&self) {
        while !self.is_done() {
            self.done.notified().await;
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.look().stage == Stage::Done
    }

    /// When nobody fills the volume any more.
    pub(super) async fn rest(&self) {
        drop(self.volume.lock().await);
    }

    pub(super) async fn respond(self: &Arc<Self>, request: Request<Incoming>) -> Answer {
        let as_json = asked::wants_json(request.headers());
        match self.judged(request).await {
            Ok(answer) => answer,
            Err(refusal) => {
                self.metrics.refused();
                refusal.answer(as_json)
            }
        }
    }

    async fn judged(self: &Arc<Self>, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let is_looking = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/healthz" if is_looking => Ok(plain(StatusCode::OK, "ok")),
            "/metrics" if is_looking => Ok(self.tell_metrics()),
            "/upload" => {
                self.token.demand(request.headers())?;
                match *request.method() {
                    Method::PUT => self.put(request).await,
                    _ if is_looking => Ok(self.stand()),
                    _ => Err(use_instead("PUT, or HEAD")),
                }
            }
            "/healthz" | "/metrics" => Err(use_instead("GET")),
            _ => Err(Refusal::new(
                StatusCode::NOT_FOUND,
                "there is nothing of this name",
                "there are /upload, /healthz and /metrics",
            )),
        }
    }

    fn tell_metrics(&self) -> Answer {
        const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        match self.metrics.text() {
            Some(text) => answer::of_kind(StatusCode::OK, KIND, text),
            None => plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot be written"),
        }
    }

    fn stand(&self) -> Answer {
        let is_busy = self.volume.try_lock().is_err();
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        answer::standing(&self.look(), is_busy, last.as_ref())
    }

    fn look(&self) -> Standing {
        let standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.clone()
    }

    async fn put(self: &Arc<Self>, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let (volume, coming) = self.admit(request.headers())?;
        self.metrics.begun();
        self.remember(None);
        // Whoever has sent all of it may be gone before it is durable: it is the disk
        // nevertheless.
        let taken = Arc::clone(self).take(volume, coming, request.into_body());
        tokio::spawn(taken).await.unwrap_or_else(|_| Err(failed()))
    }

    async fn take(
        self: Arc<Self>,
        mut volume: OwnedMutexGuard<Volume>,
        coming: Coming,
        mut body: Incoming,
    ) -> Result<Answer, Refusal> {
        let (feeder, reader, loss) = pipe();
        let progress = Progress::new(coming.total, self.form).beginning_at(coming.from);
        let metrics = Arc::clone(&self.metrics);
        let filling = tokio::task::spawn_blocking(move || {
            let outcome = volume.fill(&coming, reader, &*metrics);
            drop(volume);
            outcome
        });
        // Until the end of the one or of the other.
        let ending = self.ending.clone();
        feeder
            .feed(&mut body, self.patience, ending, |bytes| {
                self.metrics.received(bytes);
                progress.advance(bytes as u64);
            })
            .await;
        progress.end();
        let outcome = match filling.await {
            Ok(outcome) => outcome,
            Err(_) => return Err(failed()),
        };
        let concluded = self.conclude(outcome, &loss);
        if let Err(refusal) = &concluded {
            self.remember(Some(refusal.clone()));
            tokio::spawn(linger(body));
        }
        concluded
    }

    /// Refuses what can be refused before anything comes.
    fn admit(&self, headers: &HeaderMap) -> Result<(OwnedMutexGuard<Volume>, Coming), Refusal> {
        let coming = asked::coming(headers)?;
        if *self.ending.borrow() {
            return Err(ending());
        }
        let Ok(volume) = Arc::clone(&self.volume).try_lock_owned() else {
            return Err(Refusal::new(
                StatusCode::CONFLICT,
                "somebody else is uploading",
                "wait until that has ended: HEAD tells",
            ));
        };
        let standing = self.look();
        if standing.stage == Stage::Done {
            return Err(Refusal::new(
                StatusCode::CONFLICT,
                "the volume is filled",
                "take another volume",
            ));
        }
        if coming.from != 0 && coming.from != standing.taken {
            let taken = standing.taken;
            let what = format!("the upload goes on at byte {taken}, not at {}", coming.from);
            let help = "ask HEAD for Upload-Offset, and send what is behind it";
            return Err(Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, what, help).at(taken));
        }
        volume.demand_room_for(&coming)?;
        Ok((volume, coming))
    }

    fn conclude(&self, outcome: Result<Filled, FillError>, loss: &Loss) -> Result<Answer, Refusal> {
        match (outcome, loss.get()) {
            (Ok(filled), _) => {
                self.metrics.set_filled();
                self.done.notify_waiters();
                self.done.notify_one();
                let text = format!(
                    "filled: {} bytes, from sha256:{}",
                    filled.size, filled.digest
                );
                Ok(plain(StatusCode::CREATED, &text))
            }
            (Err(_), Some(lost)) => Err(told(lost)),
            (Err(error), None) => Err(Refusal::from(error)),
        }
    }

    fn remember(&self, refusal: Option<Refusal>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = refusal;
    }
}

/// Reads what still comes, but not for long.
async fn linger(mut body: Incoming) {
    let end = Instant::now() + LINGERS;
    while let Ok(Some(Ok(_))) = timeout_at(end, body.frame()).await {}
}

fn use_instead(what: &str) -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this cannot be done here",
        format!("use {what}"),
    )
}

fn ending() -> Refusal {
    Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the server was told to end",
        "go on when it is there again",
    )
}

fn failed() -> Refusal {
    Refusal::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the server has failed",
        "look at what it says, and tell its authors",
    )
}

fn told(lost: Lost) -> Refusal {
    let help = "HEAD tells from where it can go on";
    match lost {
        Lost::Connection => Refusal::new(StatusCode::BAD_REQUEST, "the upload ended early", help),
        Lost::Stalled => Refusal::new(StatusCode::REQUEST_TIMEOUT, "nothing came any more", help),
        Lost::Ending => ending(),
    }
}
