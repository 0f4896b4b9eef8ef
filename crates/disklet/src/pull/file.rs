//! Files of this machine, and standard input.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::{PullError, PullErrorKind};

/// Opens a file and says how long it is. What need not end, or waits for
/// somebody, is refused unopened: that alone would do something to a device.
pub(super) fn open(path: &Path) -> Result<(File, u64), PullError> {
    let failed = |error: io::Error| unopened(path, error);
    demand_file(path, &path.metadata().map_err(failed)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(failed)?;
    // It may have become something else meanwhile.
    let meta = file.metadata().map_err(failed)?;
    demand_file(path, &meta)?;
    Ok((file, meta.len()))
}

fn unopened(path: &Path, error: io::Error) -> PullError {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => PullErrorKind::Denied,
        _ => PullErrorKind::NotFound,
    };
    let told = PullError::new(kind, format!("{}: cannot be opened", path.display())).because(error);
    match kind {
        PullErrorKind::Denied => told.help("run this as root, or have its owner let you read it"),
        _ if begins_with_host(path) => told.help("begin an address with https:// or http://"),
        _ => told,
    }
}

/// Whether somebody may have meant an address.
fn begins_with_host(path: &Path) -> bool {
    let text = path.to_string_lossy();
    let host = text.split_once('/').map_or("", |(host, _)| host);
    host.contains('.') && !host.starts_with('.') && !Path::new(host).exists()
}

fn demand_file(path: &Path, meta: &Metadata) -> Result<(), PullError> {
    if meta.is_file() {
        return Ok(());
    }
    let kind = meta.file_type();
    let what = format!("{} is {}, not a file", path.display(), in_words(kind));
    let refused = PullError::new(PullErrorKind::NotAFile, what);
    Err(if kind.is_fifo() || kind.is_block_device() {
        let help = format!(
            "read it through standard input: --from - < {}",
            path.display()
        );
        refused.help(help)
    } else {
        refused.help("name the image's file")
    })
}

/// Standard input, unless it cannot be an image's: of devices only those end
/// that have nothing in them.
pub(super) fn standard_input() -> Result<io::Stdin, PullError> {
    let input = io::stdin();
    let meta = input
        .as_fd()
        .try_clone_to_owned()
        .and_then(|owned| File::from(owned).metadata());
    match meta.map(|meta| meta.file_type()) {
        Ok(kind) if kind.is_dir() || kind.is_char_device() => {
            let what = format!("standard input is {}, not an image", in_words(kind));
            Err(PullError::new(PullErrorKind::NotAFile, what)
                .help("give it an image, as with < or a pipe"))
        }
        _ => Ok(input),
    }
}

fn in_words(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() {
        "a block device"
    } else {
        "a character device"
    }
}
