//! What a container asks for: its memory is the VM's.

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::units::{ByteSize, parse_quantity};
use crate::yaml::{Fields, Spanned, View};

pub(super) fn read_memory(
    fields: &mut Fields<'_>,
    diags: &mut Diagnostics,
) -> Option<Spanned<ByteSize>> {
    let mut resources = fields.fields("resources", diags)?;
    let mut amounts = |kind: &str| {
        let mut amounts = resources.fields(kind, diags)?;
        let (memory, cpu) = (amounts.get("memory"), amounts.get("cpu"));
        amounts.tell_slips(diags);
        let memory = memory
            .and_then(|view| parse_memory(view.scalar_text(diags)?, &view.place.clone(), diags));
        let cpu = cpu.and_then(|view| read_cpus(&view, diags));
        Some((memory, cpu))
    };
    let (limit, most_cpus) = amounts("limits").unwrap_or_default();
    let (request, cpus) = amounts("requests").unwrap_or_default();
    resources.tell_slips(diags);
    tell_excess("memory", request.as_ref(), limit.as_ref(), diags);
    tell_excess("cpu", cpus.as_ref(), most_cpus.as_ref(), diags);
    limit.or(request)
}

/// Kubernetes takes no such pod, whatever we say of it.
fn tell_excess<T: PartialOrd>(
    what: &str,
    request: Option<&Spanned<T>>,
    limit: Option<&Spanned<T>>,
    diags: &mut Diagnostics,
) {
    if let (Some(request), Some(limit)) = (request, limit)
        && request.value > limit.value
    {
        diags.push(
            Diagnostic::error(
                &request.place,
                format!("more {what} is requested than its limit allows"),
            )
            .help("raise the limit, or request less"),
        );
    }
}

/// In thousandths of a CPU, as fine as Kubernetes counts. What is spelled in another way is
/// left to API servers.
fn read_cpus(view: &View<'_>, diags: &mut Diagnostics) -> Option<Spanned<u64>> {
    let value = millicpus(view.scalar_text(diags)?)?;
    let place = view.place.clone();
    Some(Spanned { value, place })
}

fn millicpus(text: &str) -> Option<u64> {
    if let Some(thousandths) = text.strip_suffix('m') {
        return thousandths.parse().ok();
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || part.len() > 3 || !digits(whole) || !digits(part) {
        return None;
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<u64>().ok()?
    };
    let part = format!("{part:0<3}").parse::<u64>().ok()?;
    whole.checked_mul(1000)?.checked_add(part)
}

pub(super) fn parse_memory(
    text: &str,
    place: &Place,
    diags: &mut Diagnostics,
) -> Option<Spanned<ByteSize>> {
    /// Less boots nothing; it is a slip of the unit.
    const LEAST: u64 = 16 << 20;
    /// No machine has more, and libvirt cannot count it.
    const MOST: u64 = 256 << 40;
    let problem = match parse_quantity(text) {
        Ok(size) if (LEAST..=MOST).contains(&size.as_bytes()) => {
            return Some(Spanned {
                value: size,
                place: place.clone(),
            });
        }
        Ok(size) if size.as_bytes() > MOST => "more memory than any machine has".to_owned(),
        Ok(_) => "too little memory for a VM".to_owned(),
        Err(error) => format!("not an amount of memory: {error}"),
    };
    diags.push(
        Diagnostic::error(place, problem)
            .found(format!("{text:?}"))
            .allowed("16Mi to 256Ti, as a Kubernetes quantity such as 1Gi"),
    );
    None
}

#[cfg(test)]
mod tests {
    use super::millicpus;

    #[test]
    fn cpus_are_counted_in_thousandths() {
        for (text, thousandths) in [
            ("1", 1000),
            ("500m", 500),
            ("0.5", 500),
            (".25", 250),
            ("2.", 2000),
            ("1.001", 1001),
        ] {
            assert_eq!(millicpus(text), Some(thousandths), "{text}");
        }
        for other in ["", ".", "m", "1e3", "-1", "1k", "0.0001", "1.5m"] {
            assert_eq!(millicpus(other), None, "{other}");
        }
    }
}
