//! Handing a command over to `disklet-node`, which alone links libvirt.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const PROGRAM: &str = "disklet-node";

/// Becomes `disklet-node` with the same arguments. Returns only if that fails.
pub(crate) fn hand_over() -> ExitCode {
    let error = Command::new(program())
        .args(std::env::args_os().skip(1))
        .exec();
    let help = match error.kind() {
        io::ErrorKind::NotFound => {
            "\n  help: install it beside disklet or in a directory of PATH; it needs libvirt"
        }
        _ => "",
    };
    let _ = writeln!(
        io::stderr(),
        "error: {PROGRAM}, which runs VMs, cannot be started: {error}{help}"
    );
    ExitCode::from(1)
}

/// The one beside this program, else that of PATH.
fn program() -> PathBuf {
    std::env::current_exe()
        .ok()
        .map(|own| own.with_file_name(PROGRAM))
        .filter(|beside| beside.is_file())
        .unwrap_or_else(|| PathBuf::from(PROGRAM))
}
