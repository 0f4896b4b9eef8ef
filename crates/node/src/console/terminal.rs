//! The user's terminal, which passes every key on while a console is attached.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::failure::{Failure, Result};

/// A terminal that passes every key on; it is what it was when this is dropped.
pub(super) struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    pub(super) fn enter(name: &str) -> Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self { before: None });
        }
        let failed =
            |error: rustix::io::Errno| Failure::new("the terminal cannot be used").because(error);
        let before = tcgetattr(&stdin).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Flush, &raw).map_err(failed)?;
        // Only now: what is typed before is not heard. Lines have both ends here.
        let _ = write!(
            io::stderr(),
            "Console of {name}. Enter may be needed to see anything; Ctrl-] detaches.\r\n"
        );
        Ok(Self {
            before: Some(before),
        })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
            let _ = writeln!(io::stderr());
        }
    }
}
