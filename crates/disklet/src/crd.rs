//! `disklet crd`: the definitions of our kinds.

use std::process::ExitCode;

use clap::{Args as ClapArgs, ValueEnum};
use disklet::report;
use disklet_core::crd;

/// Print the definitions of our kinds for a cluster's API.
///
/// A definition (`CustomResourceDefinition`) is what makes `kind: VM` known to
/// an API server: the names, the columns of `kubectl get vms`, and for each field
/// its type and what `kubectl explain vm.spec` says of it. The other kind is
/// `VirtletImageMapping`, which says where images come from.
///
/// `disklet install` prints them as well. Apply them alone to look at VM objects
/// in a cluster that runs none, such as one for tests. Existing objects stay as
/// they are when a newer definition is applied.
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_long_help = EXAMPLES)]
pub(crate) struct CrdArgs {
    /// How to print them
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One document for each
    Yaml,
    /// A list
    Json,
}

const EXAMPLES: &str = "\
Examples:
  disklet crd | kubectl apply -f -        make VM objects known
  kubectl explain vm.spec.domain          what can be said of a VM
  disklet crd -o json | jq '.items[].metadata.name'";

pub(crate) fn run(args: &CrdArgs) -> ExitCode {
    let text = match args.output {
        Output::Yaml => documents().join("---\n"),
        Output::Json => {
            let items = crd::definitions();
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
            format!("{list:#}\n")
        }
    };
    report::print(text.as_bytes(), "the definitions")
}

/// Each definition as a document.
pub(crate) fn documents() -> Vec<String> {
    let definitions = crd::definitions();
    definitions
        .iter()
        .map(|definition| serde_saphyr::to_string(definition).unwrap_or_default())
        .collect()
}
