//! `VirtletLibvirtCPUSetting`: the guest's CPU in libvirt's words.

use crate::diag::{Diagnostic, Diagnostics, FieldPath, Place};
use crate::yaml::{self, Fields, Limits, Spanned, View};

/// The `<cpu>` element of a domain, as far as users set it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuSetting {
    /// `mode`, such as `custom` or `host-passthrough`.
    pub mode: Option<String>,
    /// `match`, such as `exact`.
    pub matching: Option<String>,
    /// `check`, such as `partial`.
    pub check: Option<String>,
    /// The model's name.
    pub model: Option<String>,
    /// What to do if the model is unknown: `allow` or `forbid`.
    pub fallback: Option<String>,
    /// The vendor.
    pub vendor: Option<String>,
    /// Sockets, cores, threads.
    pub topology: Option<[u32; 3]>,
    /// Feature names with their policies.
    pub features: Vec<CpuFeature>,
}

/// One CPU feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuFeature {
    /// Such as `vmx`.
    pub name: String,
    /// Such as `require`, the default.
    pub policy: String,
}

const MODES: [&str; 4] = ["custom", "host-model", "host-passthrough", "maximum"];
const MATCHES: [&str; 3] = ["minimum", "exact", "strict"];
const CHECKS: [&str; 3] = ["none", "partial", "full"];
const FALLBACKS: [&str; 2] = ["allow", "forbid"];
const POLICIES: [&str; 5] = ["force", "require", "optional", "disable", "forbid"];

impl CpuSetting {
    /// Reads the annotation's YAML. Virtlet's users write libvirt's names with
    /// a capital letter; without one works as well.
    pub(super) fn read(text: &Spanned<String>, diags: &mut Diagnostics) -> Option<Self> {
        let mut documents = yaml::documents(&text.value, Limits::default());
        let root = match (documents.next(), documents.next()) {
            (Some(Ok(root)), None) => root,
            _ => {
                diags.push(
                    Diagnostic::error(&text.place, "not a CPU setting")
                        .allowed("one YAML mapping such as {Mode: host-model}"),
                );
                return None;
            }
        };
        let mut inside = Diagnostics::default();
        let setting = read_cpu(&View::root(&root, &text.place.file), &mut inside);
        let failed = inside.errors() > 0;
        for mut problem in inside.into_sorted() {
            let field = problem.place.take().map(|place| place.path);
            problem.place = Some(within(&text.place, field));
            diags.push(problem);
        }
        setting.filter(|_| !failed)
    }
}

/// The annotation's place, with the field inside its text.
fn within(place: &Place, field: Option<FieldPath>) -> Place {
    let mut place = place.clone();
    if let Some(field) = field.filter(|field| *field != FieldPath::default()) {
        place.path = place.path.key(&field.to_string());
    }
    place
}

fn read_cpu(view: &View<'_>, diags: &mut Diagnostics) -> Option<CpuSetting> {
    let mut fields = view.fields(diags)?;
    let mut cpu = CpuSetting {
        mode: word(&mut fields, "Mode", &MODES, diags),
        matching: word(&mut fields, "Match", &MATCHES, diags),
        check: word(&mut fields, "Check", &CHECKS, diags),
        ..CpuSetting::default()
    };
    if let Some(mut model) = either(&mut fields, "Model").and_then(|view| view.fields(diags)) {
        cpu.model = plain(&mut model, "Value", diags);
        cpu.fallback = word(&mut model, "Fallback", &FALLBACKS, diags);
        model.no_others(&["Value", "Fallback"], diags);
    }
    cpu.vendor = plain(&mut fields, "Vendor", diags);
    cpu.topology = either(&mut fields, "Topology").and_then(|view| topology(&view, diags));
    for item in either(&mut fields, "Features").map_or(Vec::new(), |view| view.items(diags)) {
        let Some(mut feature) = item.fields(diags) else {
            continue;
        };
        let policy = word(&mut feature, "Policy", &POLICIES, diags);
        match plain(&mut feature, "Name", diags) {
            Some(name) if name.contains(' ') => diags.push(
                Diagnostic::error(&item.place, "no feature has such a name")
                    .found(format!("{name:?}"))
                    .allowed("letters, digits, '-', '_' and '.'"),
            ),
            Some(name) => cpu.features.push(CpuFeature {
                name,
                policy: policy.unwrap_or_else(|| "require".to_owned()),
            }),
            None => diags.push(Diagnostic::error(&item.place, "a feature needs a Name")),
        }
        feature.no_others(&["Name", "Policy"], diags);
    }
    check_against_model(&cpu, view, diags);
    let known = [
        "Mode", "Match", "Check", "Model", "Vendor", "Topology", "Features",
    ];
    fields.no_others(&known, diags);
    Some(cpu)
}

/// What libvirt refuses: a vendor without a model, features of an unnamed
/// custom CPU, and a feature that stands twice.
fn check_against_model(cpu: &CpuSetting, view: &View<'_>, diags: &mut Diagnostics) {
    if cpu.vendor.is_some() && cpu.model.is_none() {
        diags.push(Diagnostic::error(&view.place, "a Vendor needs a Model"));
    }
    let unnamed = matches!(cpu.mode.as_deref(), None | Some("custom")) && cpu.model.is_none();
    if unnamed && !cpu.features.is_empty() {
        diags.push(
            Diagnostic::error(&view.place, "Features need a Model")
                .help("name a Model, or set Mode to host-model, host-passthrough or maximum"),
        );
    }
    let mut seen = std::collections::BTreeSet::new();
    for feature in &cpu.features {
        if !seen.insert(&feature.name) {
            diags.push(
                Diagnostic::error(&view.place, "a feature stands twice").found(&feature.name),
            );
        }
    }
}

fn topology(view: &View<'_>, diags: &mut Diagnostics) -> Option<[u32; 3]> {
    let mut fields = view.fields(diags)?;
    let mut count = |key: &str| {
        let view = either(&mut fields, key)?;
        let number = view.int(diags)?;
        let count = u32::try_from(number).ok().filter(|n| (1..=255).contains(n));
        if count.is_none() {
            diags.push(
                Diagnostic::error(&view.place, "not a count of CPUs")
                    .found(number)
                    .allowed("1 to 255"),
            );
        }
        count
    };
    let counts = ["Sockets", "Cores", "Threads"].map(|key| count(key).unwrap_or(1));
    fields.no_others(&["Sockets", "Cores", "Threads"], diags);
    Some(counts)
}

fn either<'n>(fields: &mut Fields<'n>, key: &str) -> Option<View<'n>> {
    fields
        .get(key)
        .or_else(|| fields.get(&key.to_ascii_lowercase()))
}

/// A name of libvirt's; it goes into XML and must not be longer than names are.
fn plain(fields: &mut Fields<'_>, key: &str, diags: &mut Diagnostics) -> Option<String> {
    let view = either(fields, key)?;
    let text = view.text(diags)?;
    let name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b' ');
    if text.is_empty() || text.len() > 64 || !text.bytes().all(name) {
        diags.push(
            Diagnostic::error(&view.place, "not a name of libvirt's")
                .found(format!("{text:?}"))
                .allowed("at most 64 letters, digits, '-', '_', '.' and blanks"),
        );
        return None;
    }
    Some(text.to_owned())
}

fn word(
    fields: &mut Fields<'_>,
    key: &str,
    words: &[&str],
    diags: &mut Diagnostics,
) -> Option<String> {
    let view = either(fields, key)?;
    let text = view.text(diags)?;
    if !words.contains(&text) {
        diags.push(
            Diagnostic::error(&view.place, format!("not a value of {key}"))
                .found(format!("{text:?}"))
                .allowed(words.join(", "))
                .did_you_mean(text, words.iter().copied()),
        );
        return None;
    }
    Some(text.to_owned())
}
