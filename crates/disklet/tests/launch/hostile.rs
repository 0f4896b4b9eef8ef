//! Whoever connects and is not the agent, or has lost its mind.

use std::io::Write;

use crate::launched::Launched;

const OFF: &str = r#"{"type":"ended","how":"off"}"#;

#[test]
fn wrong_lines_end_the_connection_and_nothing_else() {
    let launched = Launched::alone();
    let wrong: [&[u8]; 7] = [
        b"\n",
        b"GET / HTTP/1.1\r\n",
        b"{\"type\":\"ended\",\"how\":\"well\"}\n",
        b"{\"type\":\"ended\",\"how\":\"off\"\n",
        b"\xff\xfe\x00\n",
        b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n",
        &[b'x'; 16 << 10],
    ];
    for bytes in wrong {
        let mut agent = launched.greeted();
        agent.stream.write_all(bytes).unwrap();
        assert_eq!(agent.hear(), "", "{:?}", &bytes[..bytes.len().min(40)]);
    }
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
}

#[test]
fn who_does_not_say_hello_first_is_not_heard() {
    let launched = Launched::alone();
    for bytes in [OFF.as_bytes(), b"{\"type\":\"running\"}", b"x"] {
        let mut agent = launched.agent();
        agent.stream.write_all(bytes).unwrap();
        agent.stream.write_all(b"\n").unwrap();
        assert_eq!(agent.hear(), "");
    }
    launched.greeted().say(OFF);
    assert_eq!(launched.end().code, Some(0));
}

#[test]
fn a_crowd_of_strangers_does_not_keep_the_agent_away() {
    let launched = Launched::alone();
    let crowd: Vec<_> = (0..200).map(|_| launched.connect("agent")).collect();
    let start = std::time::Instant::now();
    // They have five seconds; then there is room.
    let mut greeted = false;
    while !greeted {
        assert!(start.elapsed().as_secs() < 30);
        let mut agent = launched.agent();
        let said = agent
            .stream
            .write_all(b"{\"type\":\"hello\",\"version\":1}\n");
        greeted = said.is_ok() && !agent.hear().is_empty();
        if greeted {
            agent.say(OFF);
        }
    }
    drop(crowd);
    assert_eq!(launched.end().code, Some(0));
}

#[test]
fn what_a_newer_agent_says_is_left_out() {
    let launched = Launched::alone();
    let mut agent = launched.agent();
    agent.say(r#"{"type":"weather"}"#);
    agent.say(r#"{"type":"hello","version":7,"name":"x"}"#);
    assert_eq!(agent.hear(), r#"{"type":"hello","version":1}"#);
    agent.say(r#"{"type":"migrating","to":"elsewhere"}"#);
    agent.say(OFF);
    assert_eq!(launched.end().code, Some(0));
}

#[test]
fn a_flood_of_news_is_no_harm() {
    let launched = Launched::alone();
    let mut agent = launched.greeted();
    let line = format!(r#"{{"type":"working","what":"{}"}}"#, "x".repeat(8000));
    for _ in 0..2000 {
        agent.say(&line);
    }
    agent.say(OFF);
    assert_eq!(launched.end().code, Some(0));
}
