//! Words for a POSIX shell.

/// `text` as one word that no shell takes apart or expands.
pub(super) fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
pub(super) mod testing {
    /// Runs `script` with `sh -c`; what it wrote to stdout.
    #[expect(
        clippy::disallowed_types,
        reason = "only a shell knows what a shell makes of a word"
    )]
    pub(in crate::cloudinit) fn sh(script: &str) -> String {
        let output = std::process::Command::new("sh")
            .arg("-c")
            .arg(script)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{script}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Fails unless `script` is well-formed.
    pub(in crate::cloudinit) fn assert_parses(script: &str) {
        sh(&format!("sh -n -c {}", super::quote(script)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::sh;
    use super::*;

    #[test]
    fn plain_words_stay_readable() {
        let path = "/dev/disk/by-path/pci-0000:00:05.0-part1";
        assert_eq!(quote(path), path);
    }

    #[test]
    fn everything_else_is_quoted() {
        assert_eq!(quote(""), "''");
        assert_eq!(quote("my disk"), "'my disk'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote("~"), "'~'");
        assert_eq!(quote("dé"), "'dé'");
    }

    #[test]
    fn a_shell_gives_back_what_was_quoted() {
        let words = [
            "", " ", "a b", "it's", "''", "$HOME", "`id`", "$(id)", "\\", "a\\'b", "\"", "*",
            "/dev/*", "~", "#x", "-n", "a;b", "a&&b", "a\nb", "!1", "{a,b}", "é",
        ];
        for word in words {
            assert_eq!(sh(&format!("printf %s {}", quote(word))), word);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_text_survives(text in "[^\\x00]{0,40}") {
            prop_assert_eq!(sh(&format!("printf %s {}", quote(&text))), text);
        }
    }
}
