//! Where two texts part, in words.

/// How many lines are shown of each side.
const SHOWN: usize = 6;
/// How many lines before them.
const BEFORE: usize = 2;

/// The first lines in which two texts differ; absent if they are equal.
pub(crate) fn first_difference(expected: &str, actual: &str) -> Option<String> {
    if expected == actual {
        return None;
    }
    let sides = [expected, actual].map(|text| text.split('\n').collect::<Vec<_>>());
    let [old, new] = &sides;
    let equal = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let mut told = vec![format!("line {}:", equal + 1)];
    let context = &old[equal.saturating_sub(BEFORE)..equal];
    told.extend(context.iter().map(|line| format!("    {line}")));
    for (sign, lines) in ["-", "+"].iter().zip(&sides) {
        let rest = &lines[equal..];
        told.extend(
            rest.iter()
                .take(SHOWN)
                .map(|line| format!("  {sign} {line}")),
        );
        if rest.len() > SHOWN {
            told.push(format!("  {sign} … and {} more lines", rest.len() - SHOWN));
        }
    }
    Some(told.join("\n"))
}

#[test]
fn a_difference_shows_its_line_and_both_sides() {
    assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
    assert_eq!(
        first_difference("a\nb\n", "a\nc\n").as_deref(),
        Some("line 2:\n    a\n  - b\n  - \n  + c\n  + ")
    );
}
