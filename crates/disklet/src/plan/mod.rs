//! `disklet plan`: manifests in, plans out, nothing touched.

mod input;
mod look;
mod people;
mod programs;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;

use disklet_core::config::{Config, RawDeviceGlob, command_line_place, parse_host_path};
use disklet_core::diag::{Diagnostic, Diagnostics};
use disklet_core::facts::{Facts, Questions};
use disklet_core::manifest::Objects;
use disklet_core::names::Namespace;
use disklet_core::plan::Plan;
use disklet_core::resolve::resolve;
use disklet_core::text::Reveal;

use crate::args::{Output, PlanArgs};
use crate::report::{finish, report};
use crate::style::Style;

/// Plans and prints.
pub(crate) fn run(args: &PlanArgs) -> ExitCode {
    let mut diags = Diagnostics::default();
    let plans = plan(args, &mut diags);
    let errors = diags.errors();
    report(&diags.into_sorted(), errors, args.diagnostics);
    if errors > 0 {
        return ExitCode::from(1);
    }
    finish(print(args, &plans), "the plan")
}

fn plan(args: &PlanArgs, diags: &mut Diagnostics) -> Vec<Plan> {
    let config = configuration(args, diags);
    let namespace = match Namespace::parse(&args.namespace) {
        Ok(namespace) => namespace,
        Err(rule) => {
            diags.push(
                Diagnostic::error(&command_line_place("--namespace"), "not a namespace")
                    .found(format!("{:?}", args.namespace))
                    .allowed(rule.allowed),
            );
            return Vec::new();
        }
    };
    let mut objects = Objects::default();
    input::read_all(args, diags, |input, diags| {
        objects.read(&input, &namespace, diags);
    });
    let Some(facts) = facts(args, &config, &objects, diags) else {
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

fn configuration(args: &PlanArgs, diags: &mut Diagnostics) -> Config {
    let mut config = match &args.config {
        None => Config::default(),
        Some(path) => match input::read_file(path, diags) {
            Some(input) => Config::read(&input, diags),
            None => Config::default(),
        },
    };
    // An empty variable is as good as none.
    if let Some(globs) = args
        .raw_devices
        .as_ref()
        .filter(|globs| !globs.trim().is_empty())
    {
        match RawDeviceGlob::parse_list(globs) {
            Ok(globs) => config.raw_devices = globs,
            Err(why) => diags.push(
                Diagnostic::error(
                    &command_line_place("--raw-devices"),
                    format!("the glob {why}"),
                )
                .allowed("comma-separated globs relative to /dev, such as loop*,mapper/vm_pool-*"),
            ),
        }
    }
    if let Some(root) = &args.kubelet_root {
        match parse_host_path(root) {
            Ok(root) => config.kubelet_root = root,
            Err(why) => diags.push(
                Diagnostic::error(&command_line_place("--kubelet-root"), why)
                    .found(format!("{root:?}")),
            ),
        }
    }
    config
}

fn facts(
    args: &PlanArgs,
    config: &Config,
    objects: &Objects,
    diags: &mut Diagnostics,
) -> Option<Facts> {
    match &args.facts {
        Some(path) => Some(Facts::read(&input::read_file(path, diags)?, diags)),
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
