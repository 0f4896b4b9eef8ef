//! Nodes without machines, for `script/bench kube`: their kubelet is this program.
//!
//! It registers the nodes, and for each launcher pod that the scheduler gives them
//! does what the kubelet and the launcher would: makes its directory and its
//! sockets, speaks with the node's agent, and writes the pod's status. Agents,
//! controller, scheduler and API server are the real ones.
//!
//! Lines on standard input say what to do, and each is answered by a line of JSON:
//!
//! ```text
//! run COUNT NAMESPACE    makes so many VMs, and waits until all are ready
//! delete NAMESPACE       deletes them, and waits until they are gone
//! ```

mod launcher;
mod node;
mod pods;
mod vms;

use std::path::PathBuf;

use clap::Parser;
use disklet::cluster::client;

type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Parser)]
struct Args {
    /// How many nodes
    #[arg(long, default_value_t = 10)]
    nodes: usize,
    /// Each node's kubelet has its directory here, by the node's name
    #[arg(long)]
    root: PathBuf,
    /// The image of the VMs' one disk
    #[arg(long)]
    image: String,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Error> {
    let args = Args::parse();
    let client = client::connect("hollow").await?;
    for number in 1..=args.nodes {
        let name = format!("hollow-{number}");
        node::register(&client, &name).await?;
        tokio::spawn(node::stay_alive(client.clone(), name));
    }
    tokio::spawn(pods::serve(client.clone(), args.root));
    answer("ready");
    // Everything else is on threads of its own.
    for line in std::io::stdin().lines() {
        let line = line?;
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["run", count, namespace] => {
                let seconds = vms::run(&client, namespace, count.parse()?, &args.image).await?;
                answer(serde_json::json!({"seconds": seconds}));
            }
            ["delete", namespace] => {
                let seconds = vms::delete(&client, namespace).await?;
                answer(serde_json::json!({"seconds": seconds}));
            }
            _ => return Err(format!("what is {line:?}?").into()),
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "this is how it answers")]
fn answer(what: impl std::fmt::Display) {
    println!("{what}");
}
