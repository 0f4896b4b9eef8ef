//! From manifests to plans that can be carried out: images that are missing are
//! fetched, but only for manifests that are right.

use std::io::{self, Write};

use disklet::manifests::{Given, look};
use disklet::progress::ProgressForm;
use disklet::pull::{Beginning, Observer, Teller, ensure};
use disklet::report::{report, with_causes};
use disklet::store::{Reliance, Store};
use disklet::vms::UpArgs;
use disklet_core::config::Config;
use disklet_core::diag::Diagnostics;
use disklet_core::facts::{Fact, Facts, Questions};
use disklet_core::plan::Plan;
use disklet_core::resolve::resolve;

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::placing::tell_other_hosts;
use crate::trial;

/// What is to be carried out. The images that the plans rely on stay until
/// `images` is dropped, which must not be before the records that name them are
/// durable.
pub(crate) struct Planned {
    pub(crate) config: Config,
    pub(crate) plans: Vec<Plan>,
    pub(crate) images: Reliance,
}

pub(crate) fn plans(args: &UpArgs) -> Result<Planned> {
    let mut diags = Diagnostics::default();
    let Some(mut given) = args.manifests.read_for_this_machine(&mut diags) else {
        tell(args, diags);
        return Err(Failure::misused());
    };
    let questions = Questions::of(&given.objects);
    let mut facts = look(&questions, &given.config);
    // What is wrong without the images is wrong with them: nothing is fetched.
    let mut first = Diagnostics::default();
    resolve(&given.objects, &given.config, &facts, &mut first);
    if diags.errors() + first.errors() == 0 && given.objects.has_vms() {
        trial::decide(&mut given.config, args.libvirt.connect.as_deref())?;
        fetch_missing(&given, &questions, &facts)?;
    }
    let store = Store::configured(&given.config);
    let unread = |error| Failure::new("the image store cannot be read").because(error);
    let images = store.rely().map_err(unread)?;
    store.answer(&questions, &mut facts).map_err(unread)?;
    store.borrow_images(&facts).map_err(unread)?;
    let plans = resolve(&given.objects, &given.config, &facts, &mut diags);
    tell_other_hosts(&plans, &given.objects, &mut diags);
    given.demand_a_vm(&mut diags);
    match diags.errors() {
        0 => {
            tell(args, diags);
            tell_unknown(&plans);
            Ok(Planned {
                config: given.config,
                plans,
                images,
            })
        }
        _ => Err(told(args, diags)),
    }
}

fn tell(args: &UpArgs, diags: Diagnostics) {
    let errors = diags.errors();
    let format = args.manifests.diagnostics;
    report(&diags.into_sorted(), errors, format, "changed");
}

/// What is not known now will not be known at all: there is no cluster that
/// could tell.
fn tell_unknown(plans: &[Plan]) {
    for plan in plans {
        for unknown in &plan.known_later {
            let _ = writeln!(
                io::stderr(),
                "notice: {}/{} goes without {unknown}",
                plan.namespace,
                plan.name
            );
        }
    }
}

fn told(args: &UpArgs, diags: Diagnostics) -> Failure {
    tell(args, diags);
    Failure::already_told()
}

fn fetch_missing(given: &Given, questions: &Questions, facts: &Facts) -> Result<()> {
    let mut known = facts.clone();
    Store::configured(&given.config)
        .answer(questions, &mut known)
        .map_err(|error| Failure::new("the image store cannot be read").because(error))?;
    for image in given.objects.images() {
        if known.image(image) != Fact::Unknown {
            continue;
        }
        let observer = UntilInterrupted {
            teller: Teller::new(ProgressForm::Auto),
        };
        let outcome = ensure(&given.config, image, &observer);
        observer.teller.end();
        if interrupt::asked() {
            return Err(Failure::cancelled());
        }
        outcome.map_err(|error| {
            let failure = Failure::new(with_causes(&error));
            match error.remedy() {
                Some(remedy) => failure.help(remedy),
                None => failure,
            }
        })?;
    }
    Ok(())
}

/// Tells, and stops when asked to.
struct UntilInterrupted {
    teller: Teller,
}

impl Observer for UntilInterrupted {
    fn begins(&self, beginning: &Beginning<'_>) {
        self.teller.begins(beginning);
    }

    fn advance(&self, bytes: u64) {
        Observer::advance(&self.teller, bytes);
    }

    fn notice(&self, text: &str) {
        self.teller.notice(text);
    }

    fn cancelled(&self) -> bool {
        interrupt::asked()
    }
}
