//! A file as a stream that goes on where it was interrupted.
//!
//! ```text
//!   what an earlier pull has left --> what comes now --lost--> what comes next
//!            (partial file)             (kept there as well)
//! ```

use std::io::{self, Read};

use super::Client;
use super::answer::Answer;
use super::client::Rest;
use super::patience::{first_answer, in_words, pause};
use crate::pull::{Observer, PullError, PullErrorKind};
use crate::report::with_causes;
use crate::shown::short_size;
use crate::store::{Partial, Pulling, Validator};

/// A file on its way.
pub(in crate::pull) struct Download<'d> {
    client: &'d Client,
    observer: &'d dyn Observer,
    retries: u32,
    answer: Answer,
    validator: Option<Validator>,
    total: Option<u64>,
    /// How much has been handed on.
    offset: u64,
    /// How much of it comes from the partial file.
    kept: u64,
    /// How much of what comes has been handed on before.
    skip: u64,
    partial: Option<Partial>,
    /// How often in a row the connection was lost, and where it was first.
    lost: (u32, u64),
    failure: Option<PullError>,
}

/// Whether what comes is kept for a later pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pull) enum Keeping {
    /// It is.
    AsItComes,
    /// There is no room for it.
    Nothing,
}

/// So much must come for a connection to count as one.
const PROGRESS: u64 = 64 << 10;

impl<'d> Download<'d> {
    /// Asks for the file, or for what is missing of it where a pull has kept some.
    pub(in crate::pull) fn begin(
        client: &'d Client,
        pulling: Option<&Pulling>,
        keeping: Keeping,
        retries: u32,
        observer: &'d dyn Observer,
    ) -> Result<Self, PullError> {
        let url = client.url().to_string();
        let mut partial = pulling.and_then(|pulling| Partial::of(pulling, &url));
        let rest = partial.as_ref().map(|partial| Rest {
            from: partial.length(),
            validator: Some(partial.validator()),
        });
        let answer = match first_answer(client, rest, retries, observer) {
            Err(error) if error.kind() == PullErrorKind::WrongPart => {
                // It would be the same again.
                partial.take().inspect(Partial::remove);
                return Err(error);
            }
            outcome => outcome?,
        };
        // Whatever is not the very rest of that file is another file.
        let fits = |partial: &Partial| {
            answer.from == partial.length()
                && answer.total == Some(partial.total())
                && answer
                    .validator
                    .as_ref()
                    .is_none_or(|it| it == partial.validator())
        };
        if partial.as_ref().is_some_and(|partial| !fits(partial)) {
            partial.take().inspect(Partial::remove);
        }
        let kept = partial.as_ref().map_or(0, Partial::length);
        if answer.from != kept {
            return Err(PullError::new(
                PullErrorKind::Changed,
                format!("{url}: the file has changed since the last pull"),
            ));
        }
        let validator = match &partial {
            Some(partial) => Some(partial.validator().clone()),
            None => answer.validator.clone(),
        };
        if let (None, Some(validator), Some(total)) = (&partial, &validator, answer.total)
            && let Some(pulling) = pulling
            && keeping == Keeping::AsItComes
        {
            // Without it a later pull begins at the beginning, no more.
            partial = Partial::create(pulling, &url, validator, total).ok();
        }
        Ok(Self {
            client,
            observer,
            retries,
            validator,
            total: answer.total,
            answer,
            offset: 0,
            kept,
            skip: 0,
            partial,
            lost: (0, kept),
            failure: None,
        })
    }

    pub(in crate::pull) fn total(&self) -> Option<u64> {
        self.total
    }

    /// By what the server knows the file again.
    pub(in crate::pull) fn validator(&self) -> Option<&Validator> {
        self.validator.as_ref()
    }

    /// How much was there before.
    pub(in crate::pull) fn kept(&self) -> u64 {
        self.kept
    }

    /// Whether the end of the file can be told from a lost connection.
    pub(in crate::pull) fn has_end(&self) -> bool {
        self.answer.has_end
    }

    /// Whether the server says that it is a page for people.
    pub(in crate::pull) fn is_page(&self) -> bool {
        self.answer.is_page
    }

    /// Why it could not be read to its end, if it could not.
    pub(in crate::pull) fn take_failure(&mut self) -> Option<PullError> {
        self.failure.take()
    }

    /// The partial file is of no more use.
    pub(in crate::pull) fn forget(&mut self) {
        self.partial.take().inspect(Partial::remove);
    }

    /// Keeps what there is for a later pull.
    pub(in crate::pull) fn keep(&mut self) {
        if self.partial.as_mut().is_some_and(|it| it.settle().is_err()) {
            self.forget();
        }
    }

    fn next_bytes(&mut self, buffer: &mut [u8]) -> Result<usize, PullError> {
        if self.offset < self.kept {
            return self.replay(buffer);
        }
        loop {
            if self.observer.cancelled() {
                return Err(PullError::cancelled());
            }
            if self.total == Some(self.offset) {
                return Ok(0);
            }
            let lost = match self.answer.body.read(buffer) {
                Ok(0) if self.total.is_none() && self.skip == 0 => return Ok(0),
                Ok(0) => io::Error::from(io::ErrorKind::UnexpectedEof),
                Ok(length) => match self.took(&buffer[..length]) {
                    0 => continue,
                    new => {
                        buffer.copy_within(length - new..length, 0);
                        return Ok(new);
                    }
                },
                Err(error) => error,
            };
            self.go_on(&lost)?;
        }
    }

    /// Something has come; how much of its end is new.
    fn took(&mut self, bytes: &[u8]) -> usize {
        let old = usize::try_from(self.skip).map_or(bytes.len(), |skip| skip.min(bytes.len()));
        self.skip -= old as u64;
        let new = &bytes[old..];
        // That there is no room for both is no reason to have neither.
        if self
            .partial
            .as_mut()
            .is_some_and(|it| it.append(new).is_err())
        {
            self.forget();
        }
        self.offset += new.len() as u64;
        self.observer.advance(new.len() as u64);
        if self.offset - self.lost.1 >= PROGRESS {
            self.lost.0 = 0;
        }
        new.len()
    }

    fn replay(&mut self, buffer: &mut [u8]) -> Result<usize, PullError> {
        let left = usize::try_from(self.kept - self.offset).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let read = match &self.partial {
            Some(partial) => partial.read_at(&mut buffer[..wanted], self.offset),
            None => Ok(0),
        };
        match read {
            Ok(length) if length > 0 => {
                self.offset += length as u64;
                Ok(length)
            }
            _ => {
                self.forget();
                Err(self.changed("what an earlier pull has left cannot be read"))
            }
        }
    }

    /// After a lost connection: asks for the rest until it comes, or no more.
    fn go_on(&mut self, lost: &io::Error) -> Result<(), PullError> {
        let mut cause = in_words(lost);
        self.keep();
        loop {
            self.lost = (self.lost.0 + 1, self.offset);
            if self.lost.0 > self.retries {
                return Err(self.gave_up(&cause));
            }
            let at = self.reached();
            let url = self.client.url();
            self.observer
                .notice(&format!("{url}: {cause} {at}; trying to go on"));
            pause(self.lost.0, self.observer);
            if self.observer.cancelled() {
                return Err(PullError::cancelled());
            }
            if self.validator.is_none() && !self.client.is_by_digest() {
                self.forget();
                return Err(
                    self.changed("the server does not say whether its file is still the same")
                );
            }
            let of_name = |_: &&Validator| !self.client.is_by_digest();
            let rest = Rest {
                from: self.offset,
                validator: self.validator.as_ref().filter(of_name),
            };
            match self.client.get(Some(rest)) {
                Ok(answer) => return self.take_up(answer),
                Err(error) if error.is_passing() => cause = self.without_address(&error),
                Err(error) if error.kind() == PullErrorKind::WrongPart => {
                    self.forget();
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whoever tells of it names the address.
    fn without_address(&self, error: &PullError) -> String {
        let words = with_causes(error);
        let address = format!("{}: ", self.client.url());
        words
            .strip_prefix(&address)
            .map_or_else(|| words.clone(), str::to_owned)
    }

    /// Goes on with an answer, if it is of the same file.
    fn take_up(&mut self, answer: Answer) -> Result<(), PullError> {
        let is_rest = answer.from == self.offset;
        // Who sends all of it need not say how long it is.
        let lengths = self.total.zip(answer.total);
        let same_length = lengths.is_none_or(|(old, new)| old == new);
        let same_tag = match (&self.validator, &answer.validator) {
            // Whoever sends it need not be the same.
            _ if self.client.is_by_digest() => true,
            (Some(old), Some(new)) => old == new,
            // A part was only sent because the tag that we gave is right.
            (_, None) => answer.from > 0,
            (None, Some(_)) => false,
        };
        // A server that cannot send parts sends the same file again.
        if !(is_rest || answer.from == 0) || !same_length || !same_tag {
            self.forget();
            return Err(self.changed("the file has changed while it was fetched"));
        }
        self.skip = self.offset - answer.from;
        self.total = answer.total.or(self.total);
        self.answer = answer;
        Ok(())
    }

    fn changed(&self, why: &str) -> PullError {
        PullError::new(
            PullErrorKind::Changed,
            format!("{}: {why}", self.client.url()),
        )
        .help("try again")
    }

    fn gave_up(&self, cause: &str) -> PullError {
        let (url, at) = (self.client.url(), self.reached());
        let tries = self.retries;
        let error = PullError::new(
            PullErrorKind::Lost,
            format!("{url}: {cause} {at}, and {tries} attempts to go on have failed"),
        );
        match self.partial {
            Some(_) => {
                error.help("pull it again: it goes on from there if the server can send parts")
            }
            None => error.help("pull it again"),
        }
    }

    fn reached(&self) -> String {
        let done = short_size(self.offset);
        match self.total {
            Some(total) => format!("after {done} of {}", short_size(total)),
            None => format!("after {done}"),
        }
    }
}

impl Read for Download<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.next_bytes(buffer).map_err(|error| {
            let told = io::Error::other(error.to_string());
            self.failure = Some(error);
            told
        })
    }
}
