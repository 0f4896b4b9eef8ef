//! Colour, on terminals only.

use std::io::IsTerminal;

/// Whether to colour what goes to a stream.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    colour: bool,
}

/// What a piece of text is.
#[derive(Debug, Clone, Copy)]
pub enum Tone {
    /// Headings.
    Bold,
    /// What matters less.
    Dim,
    /// All is well.
    Good,
    /// Something is wrong.
    Bad,
    /// Not known, or only a remark.
    Unsure,
}

impl Style {
    /// Colours for a terminal, none for anything else.
    #[must_use]
    pub fn of(stream: &impl IsTerminal) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            colour: wanted && !dumb && stream.is_terminal(),
        }
    }

    /// The text in a tone.
    #[must_use]
    pub fn paint(self, tone: Tone, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Bold => "1",
            Tone::Dim => "2",
            Tone::Good => "32",
            Tone::Bad => "1;31",
            Tone::Unsure => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
