//! What the user gives on the command line: manifests, a configuration, and
//! how to tell what is wrong with them. All commands that read manifests share
//! this.

mod input;
mod look;
mod settings;

use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum};
use disklet_core::config::{Config, command_line_place};
use disklet_core::diag::{Diagnostic, Diagnostics};
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects};

use input::Reader;
pub use look::{device_number, look, root_fact};
use settings::Settings;

/// Names the configuration for those who do not say `--config`.
const CONFIG: &str = "DISKLET_CONFIG";

/// Where manifests and configuration come from.
#[derive(Debug, ClapArgs)]
pub struct ManifestArgs {
    /// Manifests: a YAML or JSON file, a directory of them, or - for standard
    /// input; may be given several times
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE|DIR|-",
        required = true
    )]
    pub files: Vec<PathBuf>,

    /// Read directories with all directories below them
    #[arg(short = 'R', long)]
    pub recursive: bool,

    /// Namespace of objects that name none
    #[arg(short, long, default_value = "default")]
    pub namespace: String,

    /// Configuration of the node: pools, raw devices, emulator, domain type,
    /// memory (see docs/formats/config.md) [env: `DISKLET_CONFIG`]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Which devices pods may use: comma-separated globs below /dev, or '' for
    /// none. Without it, the variable `VIRTLET_RAW_DEVICES` counts unless that
    /// is empty, then the configuration [default: loop*]
    #[arg(long, value_name = "GLOBS")]
    pub raw_devices: Option<String>,

    /// Where the kubelet keeps its pods' volumes [default: /var/lib/kubelet]
    #[arg(long, value_name = "DIR")]
    pub kubelet_root: Option<String>,

    /// How to tell what is wrong
    #[arg(long, value_enum, default_value_t = DiagnosticsFormat::Text, value_name = "FORMAT")]
    pub diagnostics: DiagnosticsFormat,
}

/// A form of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiagnosticsFormat {
    /// For people
    Text,
    /// A list, for programs
    Json,
}

/// What was given.
#[derive(Debug)]
pub struct Given {
    /// The configuration, the command line's part of it included.
    pub config: Config,
    /// The objects of all manifests.
    pub objects: Objects,
    reader: Reader,
}

impl ManifestArgs {
    /// Reads it all, for a node as root sets it up; nothing if the command line
    /// is wrong. `facts` may lie among the manifests and is not one.
    pub fn read(&self, facts: Option<&Path>, diags: &mut Diagnostics) -> Option<Given> {
        let objects = Objects::default();
        self.read_over(Config::default(), objects, facts, diags, |input, _| input)
    }

    /// The same without facts, and with the pods that others would make; of every input
    /// that is read which `prepare` makes of it.
    pub fn read_prepared(
        &self,
        diags: &mut Diagnostics,
        prepare: impl Fn(Input, &mut Diagnostics) -> Input,
    ) -> Option<Given> {
        let objects = Objects::with_templates();
        self.read_over(Config::default(), objects, None, diags, prepare)
    }

    /// The same for whoever runs this, on this machine.
    pub fn read_for_this_machine(&self, diags: &mut Diagnostics) -> Option<Given> {
        let objects = Objects::default();
        self.read_over(own_directories(), objects, None, diags, |input, _| input)
    }

    /// The same, where disks stand by themselves; `more` is one of them.
    pub fn read_disks(&self, more: Option<&Input>, diags: &mut Diagnostics) -> Option<Given> {
        let mut objects = Objects::with_loose_disks();
        let namespace = Settings::read(self, diags)?.namespace;
        if let Some(more) = more {
            objects.read(more, &namespace, diags);
        }
        self.read_over(own_directories(), objects, None, diags, |input, _| input)
    }

    fn read_over(
        &self,
        base: Config,
        mut objects: Objects,
        facts: Option<&Path>,
        diags: &mut Diagnostics,
        prepare: impl Fn(Input, &mut Diagnostics) -> Input,
    ) -> Option<Given> {
        let settings = Settings::read(self, diags)?;
        let mut reader = Reader::default();
        let mut config = configuration(&mut reader, base, self.config.as_deref(), diags);
        if let Some(globs) = settings.raw_devices {
            config.raw_devices = globs;
        }
        if let Some(root) = settings.kubelet_root {
            config.kubelet_root = root;
        }
        reader.read_all(self, facts, diags, |input, diags| {
            let input = prepare(input, diags);
            objects.read(&input, &settings.namespace, diags);
        });
        Some(Given {
            config,
            objects,
            reader,
        })
    }
}

impl Given {
    /// Facts from a file.
    pub fn read_facts(&mut self, path: &Path, diags: &mut Diagnostics) -> Option<Facts> {
        Some(Facts::read(&self.reader.read_file(path, diags)?, diags))
    }

    /// Manifests without a VM are a mistake.
    pub fn demand_a_vm(&self, diags: &mut Diagnostics) {
        if !self.objects.has_vms() && diags.errors() == 0 {
            diags.push(
                Diagnostic::error(&command_line_place("--filename"), "there is no VM in the input")
                    .allowed("a Pod with the annotation kubernetes.io/target-runtime: virtlet.cloud, or with runtimeClassName: disklet; or a VM of disklet.io/v1alpha1"),
            );
        }
    }
}

/// The configuration of a file, or what holds without one, for commands that act
/// on this machine. What the environment says of devices comes before that.
pub fn configuration_file(path: Option<&Path>, diags: &mut Diagnostics) -> Config {
    let mut config = configuration(&mut Reader::default(), own_directories(), path, diags);
    if let Some(globs) = settings::raw_devices(None, diags) {
        config.raw_devices = globs;
    }
    config
}

/// The configuration of a file, for nodes as root sets them up, and its text.
pub fn configuration_text(path: &Path, diags: &mut Diagnostics) -> (Config, String) {
    match Reader::default().read_file(path, diags) {
        Some(input) => (Config::default().read(&input, diags), input.text),
        None => (Config::default(), String::new()),
    }
}

/// What stands in a file, or in the YAML and JSON files of a directory.
pub fn inputs(path: &Path, diags: &mut Diagnostics) -> Vec<Input> {
    let mut reader = Reader::default();
    let mut files = Vec::new();
    input::collect(path, false, true, &mut files, diags);
    let read = files.iter().map(|file| reader.read_file(file, diags));
    read.flatten().collect()
}

fn configuration(
    reader: &mut Reader,
    base: Config,
    path: Option<&Path>,
    diags: &mut Diagnostics,
) -> Config {
    // An empty variable is as good as none.
    let usual = std::env::var_os(CONFIG).filter(|path| !path.is_empty());
    let path = path.or(usual.as_deref().map(Path::new));
    match path.and_then(|path| reader.read_file(path, diags)) {
        Some(input) => base.read(&input, diags),
        None => base,
    }
}

/// Where a user who is not root keeps VMs and images without being told where.
#[must_use]
pub fn own_data_dir() -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    (!is_root).then(|| own_directories().data_dir)
}

/// Root's data is in /var/lib, that of other users where they keep theirs.
fn own_directories() -> Config {
    let config = Config::default();
    if rustix::process::geteuid().is_root() {
        return config;
    }
    let directory = |name: &str| {
        std::env::var(name)
            .ok()
            .filter(|path| path.starts_with('/'))
    };
    let home = directory("HOME").unwrap_or_else(|| "/nonexistent".to_owned());
    let data = directory("XDG_DATA_HOME").unwrap_or_else(|| format!("{home}/.local/share"));
    let run = directory("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("{data}/disklet/run"));
    config.in_directories(format!("{data}/disklet"), format!("{run}/disklet"))
}
