//! `disklet plan`: manifests in, plans out, nothing touched.

mod input;
mod look;
mod people;
mod programs;
mod settings;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;

use disklet_core::config::{Config, command_line_place};
use disklet_core::diag::{Diagnostic, Diagnostics};
use disklet_core::facts::{Facts, Questions};
use disklet_core::manifest::Objects;
use disklet_core::plan::Plan;
use disklet_core::resolve::resolve;
use disklet_core::text::Reveal;

use crate::args::{Output, PlanArgs};
use crate::report::{finish, report};
use crate::style::Style;
use input::Reader;
use settings::Settings;

/// Plans and prints.
pub(crate) fn run(args: &PlanArgs) -> ExitCode {
    let mut diags = Diagnostics::default();
    let settings = Settings::read(args, &mut diags);
    let plans = settings.map(|settings| plan(args, settings, &mut diags));
    let errors = diags.errors();
    report(&diags.into_sorted(), errors, args.diagnostics);
    match plans {
        None => ExitCode::from(2),
        Some(_) if errors > 0 => ExitCode::from(1),
        Some(plans) => finish(print(args, &plans), "the plan"),
    }
}

fn plan(args: &PlanArgs, settings: Settings, diags: &mut Diagnostics) -> Vec<Plan> {
    let mut reader = Reader::default();
    let namespace = settings.namespace.clone();
    let config = configuration(args, settings, &mut reader, diags);
    let mut objects = Objects::default();
    reader.read_all(args, diags, |input, diags| {
        objects.read(&input, &namespace, diags);
    });
    let Some(facts) = facts(args, &config, &objects, &mut reader, diags) else {
        return Vec::new();
    };
    let plans = resolve(&objects, &config, &facts, diags);
    if objects.vm_pods.is_empty() && diags.errors() == 0 {
        diags.push(
            Diagnostic::error(&command_line_place("--filename"), "there is no VM in the input")
                .allowed("a Pod with the annotation kubernetes.io/target-runtime: virtlet.cloud, or with runtimeClassName: disklet"),
        );
    }
    plans
}

fn configuration(
    args: &PlanArgs,
    settings: Settings,
    reader: &mut Reader,
    diags: &mut Diagnostics,
) -> Config {
    let mut config = match &args.config {
        None => Config::default(),
        Some(path) => match reader.read_file(path, diags) {
            Some(input) => Config::read(&input, diags),
            None => Config::default(),
        },
    };
    if let Some(globs) = settings.raw_devices {
        config.raw_devices = globs;
    }
    if let Some(root) = settings.kubelet_root {
        config.kubelet_root = root;
    }
    config
}

fn facts(
    args: &PlanArgs,
    config: &Config,
    objects: &Objects,
    reader: &mut Reader,
    diags: &mut Diagnostics,
) -> Option<Facts> {
    match &args.facts {
        Some(path) => Some(Facts::read(&reader.read_file(path, diags)?, diags)),
        None if args.offline => Some(Facts::default()),
        None => Some(look::look(&Questions::of(objects), config)),
    }
}

fn print(args: &PlanArgs, plans: &[Plan]) -> io::Result<()> {
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    let mut out = BufWriter::new(stdout.lock());
    let reveal = if args.show_secrets {
        Reveal::Show
    } else {
        Reveal::Redact
    };
    match args.output {
        Output::Table => people::table(&mut out, style, plans)?,
        Output::Tree => people::tree(&mut out, style, plans)?,
        Output::Json => programs::json(&mut out, plans, reveal)?,
        Output::Yaml => programs::yaml(&mut out, plans, reveal)?,
        Output::Xml => programs::xml(&mut out, plans)?,
    }
    out.flush()
}

/// A file's name as messages show it.
fn shown(path: &std::path::Path) -> Arc<str> {
    path.to_string_lossy().into()
}
