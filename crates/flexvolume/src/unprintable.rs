//! Characters that deceive a reader.

/// Whether a character would not show, or would change how others show: control
/// characters, those that turn the direction of writing, and those without
/// width. (XML can hold no noncharacters either.)
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{fffe}'
                | '\u{ffff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_show_is_told_from_what_does() {
        for c in [
            '\0',
            '\n',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200f}',
            '\u{2028}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{ffff}',
            '\u{e0041}',
        ] {
            assert!(is_unprintable(c), "{c:?}");
        }
        for c in [' ', '~', 'é', '\u{a0}', '日', '\u{301}', '🦀', '‐', '…'] {
            assert!(!is_unprintable(c), "{c:?}");
        }
    }
}
