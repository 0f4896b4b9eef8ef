//! The FlexVolume driver: the program that the kubelet starts for every volume of
//! ours that it mounts or unmounts.

mod driver;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use driver::answer::Answer;
use driver::{calls, install};

const HELP: &str = "\
The FlexVolume driver of Disklet. The kubelet calls it; people only install it:

  disklet-flexvolume install DIRECTORY      install or upgrade it, for both of its names, below the
                                            kubelet's directory of volume plugins; mostly
                                            /usr/libexec/kubernetes/kubelet-plugins/volume/exec
  disklet-flexvolume uninstall DIRECTORY    remove it from there
  disklet-flexvolume version

Any other argument is a call of the kubelet's: init, mount DIRECTORY JSON, unmount DIRECTORY and
so on. The answer is JSON on standard output. The exit code is 0 whatever the answer is, since the
kubelet would log the arguments of a call that ends with another, and with them keys.
";

/// Found in an installed driver, and tells its version.
const VERSION: &str = concat!(
    "disklet-flexvolume version ",
    env!("CARGO_PKG_VERSION"),
    "\n"
);

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let texts: Vec<_> = arguments.iter().map(|argument| argument.to_str()).collect();
    match texts[..] {
        [Some("install"), Some(directory)] => done(install::install(directory.as_ref())),
        [Some("uninstall"), Some(directory)] => done(install::uninstall(directory.as_ref())),
        [Some("version" | "--version")] => done(Ok(VERSION.to_owned())),
        [Some("help" | "--help" | "-h")] => done(Ok(HELP.to_owned())),
        [Some("install" | "uninstall"), ..] => {
            done(Err("one directory is wanted (see --help)".to_owned()))
        }
        _ => {
            answer_even_if_we_panic();
            say(&calls::answer(&arguments).to_json());
            ExitCode::SUCCESS
        }
    }
}

/// For people: what was done on standard output, what went wrong on standard error.
fn done(result: Result<String, String>) -> ExitCode {
    match result {
        Ok(text) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(why) => {
            // Nobody is left to tell if this fails.
            let _ = writeln!(io::stderr(), "disklet-flexvolume: {why}");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) {
    // Whoever asked is gone if this fails, and will ask again.
    let _ = io::stdout().write_all(text.as_bytes());
}

/// The kubelet reads standard error along with the answer, and logs the arguments
/// of a call that ends with another exit code than 0: neither may happen.
fn answer_even_if_we_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let why = format!("a mistake in the driver, at {place}: please report it");
        say(&Answer::Failure(why).to_json());
        #[expect(clippy::exit, reason = "unwinding would end with another exit code")]
        std::process::exit(0);
    }));
}
