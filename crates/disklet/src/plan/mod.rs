//! `disklet plan`: manifests in, plans out, nothing touched.

mod people;
mod programs;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use disklet::manifests::{Given, look, own_data_dir};
use disklet::report::{finish, report, with_causes};
use disklet::store::Store;
use disklet::style::Style;
use disklet_core::config::{Config, command_line_place};
use disklet_core::diag::{Diagnostic, Diagnostics, Remedy};
use disklet_core::facts::{Facts, Questions};
use disklet_core::plan::Plan;
use disklet_core::resolve::resolve;
use disklet_core::text::Reveal;

use crate::args::{Output, PlanArgs};

/// Plans and prints.
pub(crate) fn run(args: &PlanArgs) -> ExitCode {
    let mut diags = Diagnostics::default();
    let given = args.manifests.read(args.facts.as_deref(), &mut diags);
    let plans = given.map(|given| plan(args, given, &mut diags));
    let errors = diags.errors();
    let format = args.manifests.diagnostics;
    let told = diags.into_sorted().into_iter();
    let told: Vec<_> = told
        .map(|told| told.in_words_of(|remedy| Some(flag_for(remedy))))
        .collect();
    report(&told, errors, format, "planned");
    match plans {
        None => ExitCode::from(2),
        Some(_) if errors > 0 => ExitCode::from(1),
        Some(plans) => {
            let reveal = match args.show_secrets {
                true => Reveal::Show,
                false => Reveal::Redact,
            };
            let printed = print(args.output, reveal, &plans);
            leave_to_the_end(plans);
            finish(printed, "the plan")
        }
    }
}

/// The program ends soon. To give back each of many small pieces by itself takes a tenth of
/// the time that planning does.
fn leave_to_the_end<T>(whole: T) {
    std::mem::forget(whole);
}

/// What this command has flags for.
fn flag_for(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::OtherNode => "to plan for another node use --facts FILE, or --offline",
        Remedy::AsFacts => "give facts with --facts",
        Remedy::AsManifest => "give manifests with -f",
    }
}

fn plan(args: &PlanArgs, mut given: Given, diags: &mut Diagnostics) -> Vec<Plan> {
    let Some(facts) = facts(args, &mut given, diags) else {
        return Vec::new();
    };
    let plans = resolve(&given.objects, &given.config, &facts, diags);
    given.demand_a_vm(diags);
    leave_to_the_end(given);
    plans
}

fn facts(args: &PlanArgs, given: &mut Given, diags: &mut Diagnostics) -> Option<Facts> {
    match &args.facts {
        Some(path) => given.read_facts(path, diags),
        None if args.offline => Some(Facts::default()),
        None => {
            let questions = Questions::of(&given.objects, &given.config);
            let mut facts = look(&questions, &given.config);
            look_into_stores(&given.config, &questions, &mut facts, diags);
            Some(facts)
        }
    }
}

/// Images that are there already, read and not touched: those of the data
/// directory that is planned for, but the user's own before them.
fn look_into_stores(
    config: &Config,
    questions: &Questions,
    facts: &mut Facts,
    diags: &mut Diagnostics,
) {
    let is_usual = config.data_dir == Config::default().data_dir;
    let own = own_data_dir().filter(|_| is_usual);
    let stores = [Some(config.data_dir.clone()), own];
    for directory in stores.into_iter().flatten() {
        if let Err(error) = Store::of(&directory).answer(questions, facts) {
            let place = command_line_place("--config");
            let what = format!("the image store is not looked at: {}", with_causes(&error));
            diags.push(Diagnostic::notice(&place, what));
        }
    }
}

/// Prints plans, however they were made.
pub(crate) fn print(output: Output, reveal: Reveal, plans: &[Plan]) -> io::Result<()> {
    let stdout = io::stdout();
    let style = Style::of(&stdout);
    // Standard output by itself would look for the end of a line in all that passes.
    let plain = File::from(stdout.as_fd().try_clone_to_owned()?);
    let mut out = BufWriter::with_capacity(256 << 10, plain);
    match output {
        Output::Table => people::table(&mut out, style, plans)?,
        Output::Tree => people::tree(&mut out, style, plans)?,
        Output::Json => programs::json(&mut out, plans, reveal)?,
        Output::Yaml => programs::yaml(&mut out, plans, reveal)?,
        Output::Xml => {
            tell_unknowns(plans);
            programs::xml(&mut out, plans)?;
        }
    }
    out.flush()
}

/// The XML has no place for what is not known: it would pass for the truth.
fn tell_unknowns(plans: &[Plan]) {
    let mut err = io::stderr().lock();
    for plan in plans {
        for unknown in &plan.known_later {
            let _ = writeln!(err, "notice: {}/{}: {unknown}", plan.namespace, plan.name);
        }
    }
}
