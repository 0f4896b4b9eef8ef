//! What people are told of an image on its way to this node, and how often.

use std::time::Duration;

use disklet::pull::{Beginning, PullError, PullErrorKind};
use disklet::report::with_causes;
use disklet::shown::short_size;
use disklet::store::StoreErrorKind;
use disklet_core::facts::ImageFact;

/// The reasons of events about images; the first and the third are the kubelet's.
const PULLING: &str = "Pulling";
const PROGRESS: &str = "PullProgress";
const PULLED: &str = "Pulled";
const REFUSED: &str = "PullRefused";
const FAILED: &str = "PullFailed";

/// When it is first told how far it has come.
const FIRST: Duration = Duration::from_secs(30);

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) reason: &'static str,
    pub(super) note: String,
}

/// A pull, as it is told.
#[derive(Debug)]
pub(super) struct Story {
    image: String,
    total: Option<u64>,
    come: u64,
    next: Duration,
}

impl Story {
    /// It begins, perhaps anew. `from` is without secrets.
    pub(super) fn begins(beginning: &Beginning<'_>) -> (Self, Told) {
        let Beginning {
            image, from, total, ..
        } = beginning;
        let mut note = format!("pulling image {image} from {from}");
        if let Some(total) = total {
            note.push_str(&format!(" ({})", short_size(*total)));
        }
        if beginning.before > 0 {
            let before = short_size(beginning.before);
            note.push_str(&format!(", of which {before} are here"));
        }
        let story = Self {
            image: (*image).to_owned(),
            total: *total,
            come: beginning.before,
            next: FIRST,
        };
        let reason = PULLING;
        (story, Told { reason, note })
    }

    /// So much more has come, so long after the beginning. Each time it is told
    /// twice as late as before: a pull of a day has a dozen events.
    pub(super) fn advances(&mut self, bytes: u64, after: Duration) -> Option<Told> {
        self.come = self.come.saturating_add(bytes);
        if after < self.next {
            return None;
        }
        self.next = after.saturating_mul(2);
        let (image, come) = (&self.image, short_size(self.come));
        let how_far = match self.total.filter(|total| *total > 0) {
            Some(total) => {
                let percent = u128::from(self.come) * 100 / u128::from(total);
                format!("{come} of {} ({percent} %)", short_size(total))
            }
            None => come,
        };
        let note = format!("image {image}: {how_far} after {}", in_words(after));
        let reason = PROGRESS;
        Some(Told { reason, note })
    }

    /// It is in the store.
    pub(super) fn ends(image: &str, fact: &ImageFact, after: Duration) -> Told {
        let size = short_size(fact.size.as_bytes());
        let note = format!(
            "pulled image {image} in {}: a disk of {size}, sha256:{}",
            in_words(after),
            fact.digest
        );
        let reason = PULLED;
        Told { reason, note }
    }
}

/// Somebody else fetches the same image already.
pub(super) fn waits(image: &str) -> Told {
    Told {
        reason: PULLING,
        note: format!("image {image} is on its way for another VM of this node: waiting for it"),
    }
}

/// An image that is not there, and why.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::agent) enum Missing {
    /// Somebody has to change something for it to come.
    Refused(String),
    /// It may come later.
    Failed(String),
}

impl Missing {
    /// Why it does not come.
    pub(in crate::agent) fn in_words(self) -> String {
        match self {
            Self::Refused(why) | Self::Failed(why) => why,
        }
    }

    /// In one word.
    pub(in crate::agent) fn reason(&self) -> &'static str {
        match self {
            Self::Refused(_) => REFUSED,
            Self::Failed(_) => FAILED,
        }
    }
}

/// Why an image did not come, and what to do about it.
pub(in crate::agent) fn missing(error: &PullError) -> Missing {
    let mut why = with_causes(error);
    if let Some(remedy) = remedy(error) {
        why.push_str(&format!("\n  help: {remedy}"));
    }
    match is_final(error.kind()) {
        true => Missing::Refused(why),
        false => Missing::Failed(why),
    }
}

/// Whether it would be the same again unless somebody changes something.
fn is_final(kind: PullErrorKind) -> bool {
    matches!(
        kind,
        PullErrorKind::Nowhere
            | PullErrorKind::NotHere
            | PullErrorKind::Settings
            | PullErrorKind::NotFound
            | PullErrorKind::NotAFile
            | PullErrorKind::Page
            | PullErrorKind::Denied
            | PullErrorKind::Closed
            | PullErrorKind::Redirect
            | PullErrorKind::TooLarge
            | PullErrorKind::Store(StoreErrorKind::Refused | StoreErrorKind::Digest)
    )
}

/// What somebody can do who has a pod and no command line on the node.
fn remedy(error: &PullError) -> Option<&str> {
    match error.kind() {
        PullErrorKind::Nowhere => Some(
            "an administrator maps the name to an address with a VirtletImageMapping, see docs/formats/image-mapping.md; or use a name that begins with a host, which is asked by https",
        ),
        PullErrorKind::NotFound => Some("check the image's name, and where it is mapped to"),
        PullErrorKind::Page | PullErrorKind::Denied => Some(
            "if the server wants a login, give it with imagePullSecrets of the pod, see docs/formats/image-mapping.md",
        ),
        PullErrorKind::Protocol => Some(
            "a digest in the image's name (@sha256:…) helps if the server does not say how long the file is",
        ),
        PullErrorKind::TooLarge => Some("use an image with a smaller disk"),
        PullErrorKind::Lost | PullErrorKind::Changed | PullErrorKind::WrongPart => {
            Some("it is tried again when the pod is started again")
        }
        _ => error.remedy(),
    }
}

fn in_words(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use disklet::progress::ProgressForm;
    use disklet::pull::{Order, Teller, ensure};
    use disklet_core::config::Config;
    use disklet_core::names::{ImageName, Sha256};
    use disklet_core::units::ByteSize;

    use super::*;

    fn begun(total: Option<u64>, before: u64) -> (Story, Told) {
        Story::begins(&Beginning {
            image: "host.example/x.img",
            from: "https://host.example/x.img?…",
            total,
            before,
        })
    }

    #[test]
    fn the_beginning_says_what_comes_from_where() {
        let (_, told) = begun(Some(21 << 20), 0);
        assert_eq!(told.reason, "Pulling");
        assert_eq!(
            told.note,
            "pulling image host.example/x.img from https://host.example/x.img?… (21.0 MiB)"
        );
        let (_, told) = begun(None, 1 << 20);
        assert!(told.note.ends_with(", of which 1.0 MiB are here"));
    }

    #[test]
    fn a_quick_pull_tells_no_progress() {
        let (mut story, _) = begun(Some(100), 0);
        assert_eq!(story.advances(50, Duration::from_secs(1)), None);
        assert_eq!(story.advances(50, Duration::from_millis(29_999)), None);
    }

    #[test]
    fn progress_is_told_ever_more_seldom() {
        let (mut story, _) = begun(Some(100_000), 0);
        let mut told = Vec::new();
        for second in 1..=3600 {
            told.extend(story.advances(25, Duration::from_secs(second)));
        }
        let notes: Vec<_> = told.iter().map(|it| it.note.as_str()).collect();
        assert_eq!(notes.len(), 7, "{notes:#?}");
        assert_eq!(
            notes[1],
            "image host.example/x.img: 1.4 KiB of 97.6 KiB (1 %) after 60 s"
        );
        assert!(notes[6].ends_with("46.8 KiB of 97.6 KiB (48 %) after 32 min"));
        assert!(told.iter().all(|it| it.reason == "PullProgress"));
        let (mut unknown, _) = begun(None, 0);
        let told = unknown.advances(2048, FIRST).map(|it| it.note);
        let wanted = "image host.example/x.img: 2.0 KiB after 30 s";
        assert_eq!(told.as_deref(), Some(wanted));
    }

    fn told_of(name: &str) -> Missing {
        let image = ImageName::parse(name).unwrap();
        let config = Config {
            data_dir: "/nonexistent".to_owned(),
            ..Config::default()
        };
        let observer = Teller::new(ProgressForm::None);
        missing(&ensure(&config, &Order::of(&image), &observer).unwrap_err())
    }

    #[test]
    fn whoever_has_a_pod_is_told_what_to_do() {
        let nowhere = told_of("virtlet.cloud/cirros");
        assert_eq!(nowhere.reason(), "PullRefused");
        let Missing::Refused(why) = nowhere else {
            unreachable!("it is refused");
        };
        assert!(why.starts_with("image cirros: it is not known where it comes from"));
        assert!(why.contains("\n  help: an administrator maps the name"));
        for word in ["--from", "imageTranslations"] {
            assert!(!why.contains(word), "{why}");
        }
    }

    #[test]
    fn the_end_says_how_much_and_how_long() {
        let fact = ImageFact {
            digest: Sha256::from_bytes([0xab; 32]),
            size: ByteSize::from_bytes(112 << 20),
        };
        let told = Story::ends("x", &fact, Duration::from_millis(1500));
        assert_eq!(told.reason, "Pulled");
        let wanted = "pulled image x in 1 s: a disk of 112.0 MiB, sha256:abab";
        assert!(told.note.starts_with(wanted), "{}", told.note);
    }
}
