//! From manifests to plans that can be carried out: images that are missing are
//! fetched, but only for manifests that are right, and between the two the
//! caller can see whether anything could be run at all.

use std::io::{self, Write};

use disklet::disks::AttachArgs;
use disklet::manifests::{DiagnosticsFormat, Given, look};
use disklet::progress::ProgressForm;
use disklet::pull::{Beginning, Observer, Order, PullError, Teller, ensure};
use disklet::report::{report, with_causes};
use disklet::store::{Reliance, Store, StoreError};
use disklet::vms::UpArgs;
use disklet_core::config::{Config, HypervisorChoice};
use disklet_core::diag::{Diagnostics, Remedy};
use disklet_core::domain::Hypervisor;
use disklet_core::facts::{Fact, Facts, Questions};
use disklet_core::live::RunningVm;
use disklet_core::names::ImageName;
use disklet_core::plan::{Plan, Source};
use disklet_core::resolve::resolve;

use crate::executor::demand_supported;
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

/// VMs that are asked for, by manifests that are right as far as that can be
/// told without images.
pub(crate) struct Request {
    diagnostics: DiagnosticsFormat,
    connect: Option<String>,
    given: Given,
    questions: Questions,
    facts: Facts,
    diags: Diagnostics,
}

impl Request {
    pub(crate) fn read(args: &UpArgs) -> Result<Self> {
        let mut diags = Diagnostics::default();
        let format = args.manifests.diagnostics;
        let Some(given) = args.manifests.read_for_this_machine(&mut diags) else {
            tell(format, diags);
            return Err(Failure::misused());
        };
        Self::of(given, diags, format, args.libvirt.connect.as_deref())
    }

    /// A disk for a VM that runs.
    pub(crate) fn read_disk(args: &AttachArgs, vm: RunningVm) -> Result<Self> {
        let mut diags = Diagnostics::default();
        let manifests = args.manifests(vm.namespace.as_str());
        let Some(mut given) = manifests.read_disks(args.disk().as_ref(), &mut diags) else {
            tell(args.diagnostics, diags);
            return Err(Failure::misused());
        };
        given.objects.attach_to(vm, &mut diags);
        // How the VM is run was decided when it was started.
        given.config.hypervisor = HypervisorChoice::Fixed(Hypervisor::Qemu);
        let connect = args.vm.libvirt.connect.as_deref();
        Self::of(given, diags, args.diagnostics, connect)
    }

    fn of(
        given: Given,
        diags: Diagnostics,
        diagnostics: DiagnosticsFormat,
        connect: Option<&str>,
    ) -> Result<Self> {
        let questions = Questions::of(&given.objects, &given.config);
        let facts = look(&questions, &given.config);
        let mut request = Self {
            diagnostics,
            connect: connect.map(str::to_owned),
            given,
            questions,
            facts,
            diags,
        };
        let Some(plans) = request.first_plans() else {
            // The images that are there may give more to tell.
            request.resolve().map(drop)?;
            return Ok(request);
        };
        for plan in &plans {
            demand_supported(plan).map_err(|failure| failure.of(&plan.full_name()))?;
        }
        Ok(request)
    }

    /// The plans as far as they are known without images; nothing if something
    /// is wrong, which it is with them as well.
    fn first_plans(&self) -> Option<Vec<Plan>> {
        let mut first = Diagnostics::default();
        let Given {
            objects, config, ..
        } = &self.given;
        let plans = resolve(objects, config, &self.facts, &mut first);
        let is_right = self.diags.errors() + first.errors() == 0 && objects.has_vms();
        is_right.then_some(plans)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.given.config
    }

    /// Fetches the images that are missing, and plans with them.
    pub(crate) fn plan(mut self) -> Result<Planned> {
        trial::decide(&mut self.given.config, self.connect.as_deref())?;
        self.fetch_missing()?;
        let (plans, images) = self.resolve()?;
        tell_unknown(&plans);
        Ok(Planned {
            config: self.given.config,
            plans,
            images,
        })
    }

    fn fetch_missing(&self) -> Result<()> {
        let Given {
            objects, config, ..
        } = &self.given;
        let mut known = self.facts.clone();
        Store::configured(config)
            .answer(&self.questions, &mut known)
            .map_err(unread)?;
        for image in objects.images() {
            if known.image(image) != Fact::Unknown {
                continue;
            }
            let observer = UntilInterrupted {
                teller: Teller::new(ProgressForm::Auto),
            };
            let outcome = ensure(config, &Order::of(image), &observer);
            observer.teller.end();
            if interrupt::asked() {
                return Err(Failure::cancelled());
            }
            outcome.map_err(|error| {
                let failure = not_fetched(image, &error);
                match self.first_disk_of(image) {
                    Some(disk) => failure.of(&disk),
                    None => failure,
                }
            })?;
        }
        Ok(())
    }

    /// The first disk that an image is for.
    fn first_disk_of(&self, wanted: &ImageName) -> Option<String> {
        let plans = self.first_plans()?;
        plans.iter().find_map(|plan| {
            let disk = plan.disks.iter().find(|disk| match &disk.source {
                Source::Image { image, .. } | Source::PersistentRoot { image, .. } => {
                    image == wanted
                }
                _ => false,
            })?;
            Some(format!("{}: disk {}", plan.full_name(), disk.name))
        })
    }

    /// Plans with the images that are there. All that is wrong is told.
    fn resolve(&mut self) -> Result<(Vec<Plan>, Reliance)> {
        let store = Store::configured(&self.given.config);
        let images = store.rely().map_err(unread)?;
        store
            .answer(&self.questions, &mut self.facts)
            .map_err(unread)?;
        store.borrow_images(&self.facts).map_err(unread)?;
        let mut diags = std::mem::take(&mut self.diags);
        let Given {
            objects, config, ..
        } = &self.given;
        let plans = resolve(objects, config, &self.facts, &mut diags);
        tell_other_hosts(&plans, objects, &mut diags);
        self.given.demand_a_vm(&mut diags);
        let errors = diags.errors();
        tell(self.diagnostics, diags);
        match errors {
            0 => Ok((plans, images)),
            _ => Err(Failure::already_told()),
        }
    }
}

fn tell(format: DiagnosticsFormat, diags: Diagnostics) {
    let errors = diags.errors();
    let told = diags.into_sorted().into_iter();
    let told: Vec<_> = told.map(|told| told.in_words_of(flag_for)).collect();
    report(&told, errors, format, "changed");
}

/// VMs are run on this machine, as it is.
fn flag_for(remedy: Remedy) -> Option<&'static str> {
    match remedy {
        Remedy::AsManifest => Some("give manifests with -f"),
        Remedy::OtherNode | Remedy::AsFacts => None,
    }
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

fn unread(error: StoreError) -> Failure {
    let remedy = error.remedy().map(str::to_owned);
    let failure = Failure::new("the image store cannot be used").because(error);
    match remedy {
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
}

fn is_of_a_pull(remedy: &str) -> bool {
    let has = |words: &str| remedy.contains(words);
    (has("--from") || has("--max-size")) && !has("disklet images pull")
}

/// Why an image did not come, in words of `up`.
fn not_fetched(image: &ImageName, error: &PullError) -> Failure {
    let failure = Failure::new(with_causes(error));
    match error.remedy() {
        // Its flags are those of a pull.
        Some(remedy) if is_of_a_pull(remedy) => {
            let name = image.name();
            failure.help(format!("use disklet images pull {name}: {remedy}"))
        }
        Some(remedy) => failure.help(remedy),
        None => failure,
    }
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
