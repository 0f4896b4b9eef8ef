//! What the kubelet is told.

use disklet_flexvolume::json_text;

/// The answer to a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Success,
    /// What the driver can do. Whatever it would not mention, the kubelet would
    /// take for granted.
    Capabilities,
    /// There is nothing to attach, and so it is.
    Attached,
    /// The device that was waited for.
    Device(String),
    /// It is not done, and why.
    Failure(String),
    /// There is no such call; the kubelet does without.
    NotSupported,
}

/// Longer ones are cut: the message ends up in an event, which holds no more.
const LONGEST_MESSAGE: usize = 1000;

impl Answer {
    /// One line of JSON.
    pub(crate) fn to_json(&self) -> String {
        let (status, more) = match self {
            Self::Success => ("Success", String::new()),
            Self::Capabilities => (
                "Success",
                ",\"capabilities\":{\"attach\":false,\"selinuxRelabel\":false,\
                 \"supportsMetrics\":false,\"fsGroup\":false,\"requiresFSResize\":false}"
                    .to_owned(),
            ),
            Self::Attached => ("Success", ",\"attached\":true".to_owned()),
            Self::Device(path) => ("Success", format!(",\"device\":{}", json_text(path))),
            Self::Failure(why) => {
                let message = json_text(&shortened(why));
                ("Failure", format!(",\"message\":{message}"))
            }
            Self::NotSupported => ("Not supported", String::new()),
        };
        format!("{{\"status\":\"{status}\"{more}}}\n")
    }
}

fn shortened(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(LONGEST_MESSAGE);
    format!("{}…", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_those_of_the_contract() {
        let json = |answer: Answer| answer.to_json();
        assert_eq!(json(Answer::Success), "{\"status\":\"Success\"}\n");
        assert_eq!(
            json(Answer::NotSupported),
            "{\"status\":\"Not supported\"}\n"
        );
        assert_eq!(
            json(Answer::Device("/dev/\"x\"".to_owned())),
            "{\"status\":\"Success\",\"device\":\"/dev/\\\"x\\\"\"}\n"
        );
        assert_eq!(
            json(Answer::Attached),
            "{\"status\":\"Success\",\"attached\":true}\n"
        );
    }

    #[test]
    fn a_message_is_one_line_of_json_and_not_too_long() {
        let json = Answer::Failure("a\n\"b\"".to_owned()).to_json();
        let expected = "{\"status\":\"Failure\",\"message\":\"a\\n\\\"b\\\"\"}\n";
        assert_eq!(json, expected);
        let long = Answer::Failure("é".repeat(10_000)).to_json();
        assert!(long.len() < LONGEST_MESSAGE + 100);
        assert!(long.ends_with("é…\"}\n"), "{long}");
    }
}
