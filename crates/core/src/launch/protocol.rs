//! The launcher's directory and protocol: docs/formats/launcher.md.
//!
//! Both ends are here, so that one cannot say what the other does not read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version that is spoken here.
pub const VERSION: u32 = 1;

/// A line's length, its end included.
pub const MAX_LINE: usize = 16 << 10;

/// The launcher pod's volume.
pub const VOLUME: &str = "disklet";
/// Where the launcher has it.
pub const DIRECTORY: &str = "/run/disklet";
/// The launcher listens here, and the agent connects.
pub const AGENT_SOCKET: &str = "agent";
/// The launcher listens here, and QEMU's first serial port connects.
pub const SERIAL_SOCKET: &str = "serial";
/// `passt` listens here, and QEMU's network interface connects.
pub const NET_SOCKET: &str = "net";

/// The launcher's directory as the node sees it, beneath the kubelet's root.
#[must_use]
pub fn directory_of_pod(uid: &str) -> String {
    format!("pods/{uid}/volumes/kubernetes.io~empty-dir/{VOLUME}")
}

/// What the agent says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum FromAgent {
    /// It is the agent of this node.
    Hello {
        /// The highest version that it speaks.
        version: u32,
    },
    /// For people.
    Working {
        /// What is being done for the VM now.
        what: String,
    },
    /// The guest runs.
    Running,
    /// QEMU has stopped the guest.
    Paused {
        /// An error of a disk, or somebody.
        why: String,
    },
    /// QEMU is gone and its disks are closed, or there was none.
    Ended(Ended),
}

/// What the launcher says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum FromLauncher {
    /// It is the launcher, and everything listens.
    Hello {
        /// The highest version that it speaks.
        version: u32,
    },
    /// It was told to end.
    Stop {
        /// Seconds that the guest has to switch itself off.
        grace: u32,
    },
}

/// A VM's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How it came.
    pub how: How,
    /// For people; what to change or do, if something went wrong.
    #[serde(default)]
    pub why: String,
}

/// How a VM ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// The guest switched itself off, or was asked to and did.
    Off,
    /// The guest or QEMU crashed.
    Crashed,
    /// It was ended by force.
    Killed,
    /// The plan says no.
    Refused,
    /// It could not be started.
    Failed,
}

impl How {
    /// What the launcher exits with.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Crashed => 1,
            Self::Killed => 137,
            Self::Refused => 64,
            Self::Failed => 70,
        }
    }
}

/// A message of the protocol.
pub trait Message: Serialize + DeserializeOwned {
    /// The values of `type` that this side may say.
    const TYPES: &'static [&'static str];

    /// What is for people in it, and may be cut.
    fn text_mut(&mut self) -> Option<&mut String>;

    /// Its line, with its end. Text for people that is too long for one is cut.
    fn to_line(&self) -> String
    where
        Self: Clone,
    {
        let whole = encode(self);
        if whole.len() <= MAX_LINE {
            return whole;
        }
        let mut message = self.clone();
        let text = message.text_mut().map(std::mem::take).unwrap_or_default();
        let (mut line, mut fits, mut too_long) = (String::new(), 0, text.len());
        while fits < too_long {
            let middle = fits + (too_long - fits) / 2;
            if let Some(cut) = message.text_mut() {
                *cut = format!("{}{CUT}", &text[..text.floor_char_boundary(middle)]);
            }
            let shorter = encode(&message);
            if shorter.len() <= MAX_LINE {
                (line, fits) = (shorter, middle + 1);
            } else {
                too_long = middle;
            }
        }
        line
    }
}

const CUT: &str = "…";

/// These types have no maps with foreign keys and no floats, so JSON can say
/// all of their values.
fn encode(message: &impl Serialize) -> String {
    let mut line = serde_json::to_string(message).unwrap_or_default();
    line.push('\n');
    line
}

impl Message for FromAgent {
    const TYPES: &'static [&'static str] = &["hello", "working", "running", "paused", "ended"];

    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Working { what: text }
            | Self::Paused { why: text }
            | Self::Ended(Ended { why: text, .. }) => Some(text),
            Self::Hello { .. } | Self::Running => None,
        }
    }
}

impl Message for FromLauncher {
    const TYPES: &'static [&'static str] = &["hello", "stop"];

    fn text_mut(&mut self) -> Option<&mut String> {
        None
    }
}

/// Why a connection has to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// A line is longer than [`MAX_LINE`].
    TooLong,
    /// A line is not what the protocol has.
    Line(String),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "a line is longer than {MAX_LINE} bytes"),
            Self::Line(why) => write!(f, "a line is not of the launcher's protocol: {why}"),
        }
    }
}

impl std::error::Error for Wrong {}

/// Messages out of bytes as they come.
///
/// It keeps no more than what was fed and not yet taken: whoever takes all
/// messages before feeding more holds less than a line and a feed.
#[derive(Debug)]
pub struct Inbox<M> {
    bytes: Vec<u8>,
    of: PhantomData<fn() -> M>,
}

impl<M> Default for Inbox<M> {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            of: PhantomData,
        }
    }
}

impl<M: Message> Inbox<M> {
    /// Takes what was read from the peer.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next message, if its line is complete. What a newer peer may say
    /// and this version does not know is left out.
    pub fn take(&mut self) -> Result<Option<M>, Wrong> {
        loop {
            let end = self.bytes.iter().take(MAX_LINE).position(|b| *b == b'\n');
            let Some(end) = end else {
                return if self.bytes.len() >= MAX_LINE {
                    Err(Wrong::TooLong)
                } else {
                    Ok(None)
                };
            };
            let message = read_line(&self.bytes[..end]);
            self.bytes.drain(..=end);
            if let Some(message) = message? {
                return Ok(Some(message));
            }
        }
    }
}

/// A line without its end; none if its type is unknown.
fn read_line<M: Message>(line: &[u8]) -> Result<Option<M>, Wrong> {
    let wrong = |error: serde_json::Error| Wrong::Line(error.to_string());
    let value: Value = serde_json::from_slice(line).map_err(wrong)?;
    let Some(kind) = value.get("type").and_then(Value::as_str) else {
        return Err(Wrong::Line("it has no \"type\"".to_owned()));
    };
    if !M::TYPES.contains(&kind) {
        return Ok(None);
    }
    M::deserialize(value).map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests;
