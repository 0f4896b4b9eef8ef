//! `up`: manifests in, running VMs out.

use std::fmt::Write;

use disklet::manifests::look;
use disklet::report::report;
use disklet::store::Store;
use disklet::vms::UpArgs;
use disklet_core::config::Config;
use disklet_core::diag::Diagnostics;
use disklet_core::facts::Questions;
use disklet_core::plan::Plan;
use disklet_core::resolve::resolve;

use crate::cut;
use crate::executor::{Executor, demand_supported, made_by, unmake};
use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;
use crate::record::{Held, Made, Record, Records};

pub(crate) fn up(args: &UpArgs) -> Result<String> {
    let (config, plans) = plans(args)?;
    for plan in &plans {
        demand_supported(plan).map_err(|failure| failure.of(&vm_name(plan)))?;
    }
    let libvirt = Libvirt::open(args.libvirt.connect.as_deref())?;
    let records = Records::of(&config.data_dir);
    let mut text = String::new();
    for plan in &plans {
        let started =
            start(&libvirt, &records, plan).map_err(|failure| failure.of(&vm_name(plan)))?;
        let _ = writeln!(text, "{} {started}", vm_name(plan));
    }
    Ok(text)
}

fn plans(args: &UpArgs) -> Result<(Config, Vec<Plan>)> {
    let mut diags = Diagnostics::default();
    let mut planned = None;
    if let Some(given) = args.manifests.read(None, &mut diags) {
        let questions = Questions::of(&given.objects);
        let mut facts = look(&questions, &given.config);
        Store::of(&given.config.data_dir)
            .answer(&questions, &mut facts)
            .map_err(|error| Failure::new("the image store cannot be read").because(error))?;
        let plans = resolve(&given.objects, &given.config, &facts, &mut diags);
        given.demand_a_vm(&mut diags);
        planned = Some((given.config, plans));
    }
    let errors = diags.errors();
    let format = args.manifests.diagnostics;
    report(&diags.into_sorted(), errors, format, "changed");
    match planned {
        Some(planned) if errors == 0 => Ok(planned),
        _ => Err(Failure::already_told()),
    }
}

fn vm_name(plan: &Plan) -> String {
    format!("{}/{}", plan.namespace, plan.name)
}

/// Has a VM run. On failure, what this call made goes again.
fn start(libvirt: &Libvirt, records: &Records, plan: &Plan) -> Result<&'static str> {
    let held = records.hold(plan.uuid)?;
    let before = held.read()?;
    if before.is_some() && libvirt.is_running(plan.uuid)? == Some(true) {
        return Ok("is running");
    }
    if before.is_none()
        && let Err(failure) = refuse_foreign(libvirt, plan)
    {
        held.forget()?;
        return Err(failure);
    }
    let outcome = carry_out(libvirt, &held, plan);
    if let Err(failure) = outcome {
        // What an earlier run has completed stays for the next.
        if before.is_none() {
            undo(libvirt, held)?;
        }
        return Err(failure);
    }
    Ok("started")
}

/// Without a record nothing of this VM is ours, whatever it is called.
fn refuse_foreign(libvirt: &Libvirt, plan: &Plan) -> Result<()> {
    for made in plan.steps.iter().filter_map(made_by) {
        let (there, what) = match made {
            Made::File { path } => (path.symlink_metadata().is_ok(), path.display().to_string()),
            Made::Domain { uuid } => (
                libvirt.is_running(uuid)?.is_some(),
                format!("domain {uuid}"),
            ),
        };
        if there {
            return Err(Failure::new(format!(
                "{what} is there already and was not made for this VM"
            ))
            .help("remove it if nobody needs it, or give the VM another name or UUID"));
        }
    }
    Ok(())
}

fn carry_out(libvirt: &Libvirt, held: &Held, plan: &Plan) -> Result<()> {
    let made = plan.steps.iter().filter_map(made_by).collect();
    let record = Record::new(
        plan.namespace.to_string(),
        plan.name.to_string(),
        plan.uuid,
        made,
    );
    held.write(&record)?;
    let executor = Executor { libvirt, plan };
    for step in &plan.steps {
        cut::boundary();
        executor.carry_out(step)?;
    }
    cut::boundary();
    Ok(())
}

/// Removes everything that a record names, in reverse, and then the record.
pub(crate) fn undo(libvirt: &Libvirt, held: Held) -> Result<()> {
    if let Some(record) = held.read()? {
        for made in record.made.iter().rev() {
            cut::boundary();
            unmake(libvirt, made)?;
        }
    }
    cut::boundary();
    held.forget()
}
