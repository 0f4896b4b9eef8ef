use proptest::prelude::*;

use super::*;

fn taken<M: Message>(bytes: &[u8]) -> Result<Vec<M>, Wrong> {
    let mut inbox = Inbox::default();
    inbox.feed(bytes);
    let mut messages = Vec::new();
    while let Some(message) = inbox.take()? {
        messages.push(message);
    }
    Ok(messages)
}

fn ended(how: How, why: &str) -> FromAgent {
    let why = why.to_owned();
    FromAgent::Ended(Ended { how, why })
}

#[test]
fn lines_are_those_of_the_page() {
    let said = [
        (
            FromAgent::Hello { version: VERSION },
            r#"{"type":"hello","version":1}"#,
        ),
        (
            FromAgent::Working {
                what: "pulling".to_owned(),
            },
            r#"{"type":"working","what":"pulling"}"#,
        ),
        (FromAgent::Running, r#"{"type":"running"}"#),
        (
            FromAgent::Paused {
                why: "no space".to_owned(),
            },
            r#"{"type":"paused","why":"no space"}"#,
        ),
        (
            ended(How::Crashed, "a\nb"),
            r#"{"type":"ended","how":"crashed","why":"a\nb"}"#,
        ),
    ];
    for (message, line) in said {
        assert_eq!(message.to_line(), format!("{line}\n"));
        assert_eq!(
            taken(format!("{line}\n").as_bytes()),
            Ok(vec![message.clone()])
        );
    }
    let stop = FromLauncher::Stop { grace: 25 };
    assert_eq!(stop.to_line(), "{\"type\":\"stop\",\"grace\":25}\n");
    assert_eq!(taken(stop.to_line().as_bytes()), Ok(vec![stop]));
}

#[test]
fn types_are_all_that_a_side_says() {
    let said = [
        FromAgent::Hello { version: 1 },
        FromAgent::Working {
            what: String::new(),
        },
        FromAgent::Running,
        FromAgent::Paused { why: String::new() },
        ended(How::Off, ""),
    ];
    let types: Vec<_> = said
        .iter()
        .filter_map(|message| {
            serde_json::to_value(message).ok()?["type"]
                .as_str()
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(types, FromAgent::TYPES);
}

#[test]
fn what_a_newer_peer_says_is_left_out() {
    let lines = concat!(
        r#"{"type":"weather","is":"fine"}"#,
        "\n",
        r#"{"type":"running","since":7}"#,
        "\n"
    );
    assert_eq!(taken(lines.as_bytes()), Ok(vec![FromAgent::Running]));
}

#[test]
fn wrong_lines_end_the_connection() {
    for line in [
        "",
        "running",
        "[]",
        "{}",
        r#"{"type":7}"#,
        r#"{"type":"stop"}"#,
        r#"{"type":"stop","grace":-1}"#,
        r#"{"type":"stop","grace":5000000000}"#,
        r#"{"type":"hello","version":"1"}"#,
        "{\"type\":\"hello\",\"version\":1}\u{0}",
    ] {
        let read = taken::<FromLauncher>(format!("{line}\n").as_bytes());
        assert!(matches!(read, Err(Wrong::Line(_))), "{line}: {read:?}");
    }
    let read = taken::<FromAgent>(b"{\"type\":\"ended\",\"how\":\"well\"}\n");
    assert!(matches!(read, Err(Wrong::Line(_))), "{read:?}");
    let read = taken::<FromAgent>(b"{\"type\":\"working\",\"what\":\"\xff\"}\n");
    assert!(matches!(read, Err(Wrong::Line(_))), "{read:?}");
}

#[test]
fn a_line_has_16_kib_and_not_a_byte_more() {
    let frame = FromAgent::Working {
        what: String::new(),
    }
    .to_line()
    .len();
    let longest = FromAgent::Working {
        what: "x".repeat(MAX_LINE - frame),
    };
    let line = longest.to_line();
    assert_eq!(line.len(), MAX_LINE);
    assert_eq!(taken(line.as_bytes()), Ok(vec![longest]));
    let longer = line.replace("xx", "xxx");
    assert_eq!(taken::<FromAgent>(longer.as_bytes()), Err(Wrong::TooLong));
    let endless = vec![b' '; MAX_LINE];
    assert_eq!(taken::<FromAgent>(&endless), Err(Wrong::TooLong));
    assert_eq!(taken::<FromAgent>(&endless[1..]), Ok(vec![]));
}

#[test]
fn exit_codes_are_those_of_the_page() {
    let codes = [
        How::Off,
        How::Crashed,
        How::Killed,
        How::Refused,
        How::Failed,
    ]
    .map(How::exit_code);
    assert_eq!(codes, [0, 1, 137, 64, 70]);
}

proptest! {
    #[test]
    fn hostile_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let _ = taken::<FromLauncher>(&bytes);
        let _ = taken::<FromAgent>(&bytes);
    }

    #[test]
    fn hostile_lines_do_not_panic(line in r#"(\{|\[|"type"|:|"stop"|"grace"|,|-?[0-9]{1,30}|\}|\]|\n|"hello"|"version"|\PC){0,60}"#) {
        let _ = taken::<FromLauncher>(line.as_bytes());
    }

    #[test]
    fn any_text_fits_a_line_and_short_text_is_whole(
        piece in r#"(\PC|[\x00-\x1f"]){0,300}"#,
        times in 1_usize..80,
    ) {
        let why = piece.repeat(times);
        let line = ended(How::Failed, &why).to_line();
        prop_assert!(line.len() <= MAX_LINE);
        let read = taken::<FromAgent>(line.as_bytes());
        let Ok([FromAgent::Ended(read)]) = read.as_deref() else {
            return Err(TestCaseError::fail(format!("{read:?}")));
        };
        if read.why != why {
            let kept = read.why.strip_suffix(CUT).map(|kept| why.starts_with(kept));
            prop_assert_eq!(kept, Some(true));
            prop_assert!(line.len() > MAX_LINE - 64, "cut too much: {}", line.len());
        }
    }

    #[test]
    fn pieces_make_no_difference(cuts in prop::collection::vec(1_usize..40, 0..40)) {
        let said = [FromAgent::Hello { version: 1 }, ended(How::Off, "ü"), FromAgent::Running];
        let bytes: Vec<u8> = said.iter().flat_map(|m| m.to_line().into_bytes()).collect();
        let mut inbox = Inbox::<FromAgent>::default();
        let mut seen = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.into_iter().chain([usize::MAX]) {
            let (piece, later) = rest.split_at(cut.min(rest.len()));
            inbox.feed(piece);
            rest = later;
            while let Some(message) = inbox.take().map_err(|e| TestCaseError::fail(e.to_string()))? {
                seen.push(message);
            }
        }
        prop_assert_eq!(seen, said.to_vec());
    }
}
