//! What the command line and the environment say, checked before anything is
//! read: what is wrong there is wrong usage.

use std::env;

use disklet_core::config::{RawDeviceGlob, command_line_place, parse_host_path};
use disklet_core::diag::{Diagnostic, Diagnostics};
use disklet_core::names::Namespace;

use super::ManifestArgs;

/// The variable that Virtlet's administrators know.
const RAW_DEVICES: &str = "VIRTLET_RAW_DEVICES";

/// Arguments whose values have rules.
pub(super) struct Settings {
    /// Of objects that name none.
    pub(super) namespace: Namespace,
    /// Instead of the configuration's.
    pub(super) raw_devices: Option<Vec<RawDeviceGlob>>,
    /// Instead of the configuration's.
    pub(super) kubelet_root: Option<String>,
}

impl Settings {
    /// Checks all of them; none if one is wrong.
    pub(super) fn read(args: &ManifestArgs, diags: &mut Diagnostics) -> Option<Self> {
        let namespace = namespace(&args.namespace, diags);
        let raw_devices = raw_devices(args.raw_devices.as_deref(), diags);
        let kubelet_root = args
            .kubelet_root
            .as_ref()
            .and_then(|root| kubelet_root(root, diags));
        let pipes = args.files.iter().filter(|path| path.as_os_str() == "-");
        if pipes.count() > 1 {
            diags.push(
                Diagnostic::error(
                    &command_line_place("--filename"),
                    "standard input can be read once",
                )
                .help("give -f - once"),
            );
        }
        (diags.errors() == 0).then_some(Self {
            namespace: namespace?,
            raw_devices,
            kubelet_root,
        })
    }
}

fn namespace(text: &str, diags: &mut Diagnostics) -> Option<Namespace> {
    match Namespace::parse(text) {
        Ok(namespace) => Some(namespace),
        Err(rule) => {
            diags.push(
                Diagnostic::error(&command_line_place("--namespace"), "not a namespace")
                    .found(format!("{text:?}"))
                    .allowed(rule.allowed),
            );
            None
        }
    }
}

/// What the option says, else the variable. An empty variable is as good as none: a
/// chart sets it so. An empty option is somebody's word.
pub(super) fn raw_devices(
    option: Option<&str>,
    diags: &mut Diagnostics,
) -> Option<Vec<RawDeviceGlob>> {
    let (source, globs) = match option {
        Some(globs) => ("--raw-devices", globs.to_owned()),
        None => {
            let value = env::var_os(RAW_DEVICES)?;
            let globs = value.to_string_lossy().into_owned();
            if globs.trim().is_empty() {
                return None;
            }
            (RAW_DEVICES, globs)
        }
    };
    match RawDeviceGlob::parse_list(&globs) {
        Ok(globs) => Some(globs),
        Err(why) => {
            diags.push(
                Diagnostic::error(&command_line_place(source), format!("the glob {why}")).allowed(
                    "comma-separated globs relative to /dev, such as loop*,mapper/vm_pool-*",
                ),
            );
            None
        }
    }
}

fn kubelet_root(text: &str, diags: &mut Diagnostics) -> Option<String> {
    match parse_host_path(text) {
        Ok(root) => Some(root),
        Err(why) => {
            diags.push(
                Diagnostic::error(&command_line_place("--kubelet-root"), why)
                    .found(format!("{text:?}")),
            );
            None
        }
    }
}
