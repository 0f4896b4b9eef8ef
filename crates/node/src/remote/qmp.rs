//! QEMU's protocol for being told what to do: one line of JSON each.
//!
//! Knows no transport. What the other side says is not trusted to end.

use std::io::{self, BufRead, Read, Write};

use serde_json::{Value, json};

/// Somebody who does what is told.
pub(super) struct Qmp<R, W> {
    answers: R,
    orders: W,
}

/// Why it was not done.
#[derive(Debug)]
pub(super) enum NotDone {
    /// In the words of who was told.
    Refused(String),
    /// Nobody answers, or not in this protocol.
    Lost(io::Error),
}

/// No answer to what is asked here is longer.
const LONGEST: u64 = 1 << 20;

impl<R: BufRead, W: Write> Qmp<R, W> {
    /// Hears the greeting, and begins.
    pub(super) fn greet(answers: R, orders: W) -> Result<Self, NotDone> {
        let mut qmp = Self { answers, orders };
        let greeting = qmp.hear()?;
        if greeting.get("QMP").is_none() {
            return Err(strange());
        }
        qmp.tell("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Has something done, and waits until it is.
    pub(super) fn tell(&mut self, order: &str, arguments: &Value) -> Result<(), NotDone> {
        let mut line = json!({"execute": order, "arguments": arguments}).to_string();
        line.push('\n');
        let sent = self.orders.write_all(line.as_bytes());
        sent.and_then(|()| self.orders.flush())
            .map_err(NotDone::Lost)?;
        loop {
            let answer = self.hear()?;
            if answer.get("return").is_some() {
                return Ok(());
            }
            if let Some(error) = answer.get("error") {
                let words = error.get("desc").and_then(Value::as_str);
                return Err(NotDone::Refused(words.unwrap_or("no reason").to_owned()));
            }
            // Events tell of what nobody here waits for.
            if answer.get("event").is_none() {
                return Err(strange());
            }
        }
    }

    fn hear(&mut self) -> Result<Value, NotDone> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.answers).take(LONGEST);
        bounded
            .read_until(b'\n', &mut line)
            .map_err(NotDone::Lost)?;
        if line.last() != Some(&b'\n') {
            return Err(NotDone::Lost(io::ErrorKind::UnexpectedEof.into()));
        }
        serde_json::from_slice(&line).map_err(|_| strange())
    }
}

fn strange() -> NotDone {
    NotDone::Lost(io::Error::new(
        io::ErrorKind::InvalidData,
        "an answer that is none",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: &str = "{\"QMP\": {\"version\": {}}}\n{\"return\": {}}\n";

    fn after(answers: &str) -> Result<(), NotDone> {
        let text = format!("{GREETING}{answers}");
        Qmp::greet(text.as_bytes(), Vec::new())?.tell("do", &json!({"it": 1}))
    }

    #[test]
    fn what_is_told_is_one_line() {
        let text = format!("{GREETING}{{\"return\": {{}}}}\n");
        let mut sent = Vec::new();
        let mut qmp = Qmp::greet(text.as_bytes(), &mut sent).ok().unwrap();
        qmp.tell("do", &json!({"it": "a\nb"})).ok().unwrap();
        let sent = String::from_utf8(sent).unwrap();
        let last = sent.lines().last().unwrap();
        assert_eq!(last, r#"{"arguments":{"it":"a\nb"},"execute":"do"}"#);
        assert_eq!(sent.lines().count(), 2);
    }

    #[test]
    fn events_are_passed_over() {
        after("{\"event\": \"X\"}\n{\"event\": \"Y\"}\n{\"return\": {}}\n").unwrap();
    }

    #[test]
    fn a_refusal_has_its_reason() {
        let refused = after("{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n");
        assert!(matches!(refused, Err(NotDone::Refused(why)) if why == "no"));
    }

    #[test]
    fn who_ends_or_talks_nonsense_is_lost() {
        let endless = "x".repeat(usize::try_from(LONGEST).unwrap() + 1);
        for answers in ["", "{\"return\": {}}", "{}\n", "[]\n", "hello\n", &endless] {
            assert!(
                matches!(after(answers), Err(NotDone::Lost(_))),
                "{answers:.20}"
            );
        }
        assert!(matches!(
            Qmp::greet("{}\n".as_bytes(), Vec::new()),
            Err(NotDone::Lost(_))
        ));
    }
}
