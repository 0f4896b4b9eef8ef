//! Plans for programs.

use std::io::{self, Write};

use disklet_core::plan::Plan;
use disklet_core::text::Reveal;
use serde::Serializer;

pub(super) fn json(out: &mut impl Write, plans: &[Plan], reveal: Reveal) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::pretty(&mut *out);
    // One view at a time: the documents of a thousand VMs need not be in
    // memory together.
    serializer
        .collect_seq(plans.iter().map(|plan| plan.view(reveal)))
        .map_err(io::Error::from)?;
    writeln!(out)
}

pub(super) fn yaml(out: &mut impl Write, plans: &[Plan], reveal: Reveal) -> io::Result<()> {
    for plan in plans {
        let text = serde_saphyr::to_string(&[plan.view(reveal)]).map_err(io::Error::other)?;
        out.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// One document is written as it is. Several have a comment before each, so
/// that they can be told apart and cut there: together they are no XML.
pub(super) fn xml(out: &mut impl Write, plans: &[Plan]) -> io::Result<()> {
    for plan in plans {
        if plans.len() > 1 {
            let name = format!("{}/{}", plan.namespace, plan.name);
            // A comment ends at two hyphens, and names may have them.
            writeln!(out, "<!-- VM {} -->", name.replace("--", "%2D%2D"))?;
        }
        out.write_all(plan.domain.to_xml().as_bytes())?;
    }
    Ok(())
}
