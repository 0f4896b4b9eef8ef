//! The user's terminal, which passes every key on while a guest's console is
//! attached to it, however the guest is reached.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Ctrl-], as in telnet and virsh: nothing in a guest needs it.
pub const DETACH: u8 = 0x1d;

/// A terminal that passes every key on; it is what it was when this is dropped.
#[derive(Debug)]
pub struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    /// Begins, and says how to end; what is no terminal stays as it is.
    ///
    /// # Errors
    /// The terminal cannot be used.
    pub fn enter(name: &str) -> io::Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self { before: None });
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Flush, &raw)?;
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
