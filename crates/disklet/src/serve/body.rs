//! The body of a request, for a thread that reads it.

use std::io::{self, Read};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

/// So many pieces wait to be read, of what the connection reads at once.
const WAITING: usize = 8;

/// How a body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// The connection was lost, or what came makes no sense.
    Connection,
    /// Nothing came any more.
    Stalled,
    /// The server was told to end.
    Ending,
}

type Piece = Result<Bytes, Lost>;

/// The end that reads.
pub(super) struct Reader {
    pieces: mpsc::Receiver<Piece>,
    piece: Bytes,
    lost: Arc<Mutex<Option<Lost>>>,
    ended: bool,
}

/// The end that is told what comes.
pub(super) struct Feeder {
    pieces: mpsc::Sender<Piece>,
}

/// Why what was read ended before its end, for whoever does not read it.
#[derive(Clone)]
pub(super) struct Loss(Arc<Mutex<Option<Lost>>>);

impl Loss {
    pub(super) fn get(&self) -> Option<Lost> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn pipe() -> (Feeder, Reader, Loss) {
    let (sender, pieces) = mpsc::channel(WAITING);
    let lost = Arc::new(Mutex::new(None));
    let reader = Reader {
        pieces,
        piece: Bytes::new(),
        lost: Arc::clone(&lost),
        ended: false,
    };
    (Feeder { pieces: sender }, reader, Loss(lost))
}

impl Feeder {
    /// Hands the body over as it comes. Returns when it has ended, or nobody reads it any
    /// more.
    pub(super) async fn feed(
        self,
        body: &mut Incoming,
        patience: Duration,
        mut ending: watch::Receiver<bool>,
        count: impl Fn(usize),
    ) {
        let told = async {
            let _ = ending.wait_for(|ends| *ends).await;
        };
        let mut told = pin!(told);
        loop {
            let frame = tokio::select! {
                frame = timeout(patience, body.frame()) => frame,
                () = &mut told => return self.lose(Lost::Ending).await,
                // Whoever does not read has refused it.
                () = self.pieces.closed() => return,
            };
            let piece = match frame {
                Ok(None) => return self.end().await,
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => piece,
                    Err(_) => continue,
                },
                Ok(Some(Err(_))) => return self.lose(Lost::Connection).await,
                Err(_) => return self.lose(Lost::Stalled).await,
            };
            count(piece.len());
            if !piece.is_empty() && self.pieces.send(Ok(piece)).await.is_err() {
                return;
            }
        }
    }

    async fn end(self) {
        let _ = self.pieces.send(Ok(Bytes::new())).await;
    }

    async fn lose(self, lost: Lost) {
        let _ = self.pieces.send(Err(lost)).await;
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && !self.ended {
            // Whoever feeds says when it is over: if nobody does, it is not.
            match self.pieces.blocking_recv().unwrap_or(Err(Lost::Connection)) {
                Ok(piece) => {
                    self.ended = piece.is_empty();
                    self.piece = piece;
                }
                Err(lost) => {
                    let mut shared = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
                    *shared = Some(lost);
                    return Err(io::Error::other("the upload was lost"));
                }
            }
        }
        let length = self.piece.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.piece.split_to(length));
        Ok(length)
    }
}
