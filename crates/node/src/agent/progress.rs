//! Tells a launcher what is being done for its VM.

use disklet::pull::{Beginning, Observer};
use disklet_core::launch::protocol::FromAgent;

use super::link::Link;
use super::machine::Unwanted;

pub(super) struct Told<'t> {
    link: &'t Link,
    unwanted: &'t Unwanted,
}

impl<'t> Told<'t> {
    pub(super) fn new(link: &'t Link, unwanted: &'t Unwanted) -> Self {
        Self { link, unwanted }
    }

    fn say(&self, what: String) {
        // One that is gone is noticed where it is heard.
        let _ = self.link.say(&FromAgent::Working { what });
    }
}

impl Observer for Told<'_> {
    fn begins(&self, beginning: &Beginning<'_>) {
        let Beginning { image, from, .. } = beginning;
        self.say(format!("fetching image {image} from {from}"));
    }

    fn advance(&self, _bytes: u64) {}

    fn notice(&self, text: &str) {
        self.say(text.to_owned());
    }

    fn cancelled(&self) -> bool {
        self.unwanted.is_set()
    }
}
