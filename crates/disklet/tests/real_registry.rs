//! `disklet populate registry` and `disklet images pull docker://…` from Debian's
//! registry, with images that skopeo and umoci have made.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "registry/images.rs"]
mod images;
#[path = "image/scratch.rs"]
mod scratch;
#[path = "images/server.rs"]
mod server;
#[path = "images/scratch.rs"]
mod store;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use images::{Content, LAYER, tar};
use scratch::Scratch;
use serde_json::Value;

/// Two registries, which end when this is dropped.
struct Registries {
    facts: Value,
    script: Child,
}

impl Registries {
    fn start(scratch: &Scratch) -> Self {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut script = Command::new(repository.join("script/lib/servers/registry.sh"))
            .arg("run")
            .arg(scratch.path("registries"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = script.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let facts = serde_json::from_str(&line).unwrap();
        Self { facts, script }
    }

    /// The host and port of the one in the clear, or of the other.
    fn host(&self, port: &str) -> String {
        format!("127.0.0.1:{}", self.facts[port])
    }

    fn text(&self, name: &str) -> String {
        self.facts[name].as_str().unwrap().to_owned()
    }

    fn password(&self) -> String {
        fs::read_to_string(self.text("passwordFile")).unwrap()
    }
}

impl Drop for Registries {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

fn populate(scratch: &Scratch, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.args(["populate", "registry", "--replace"]);
    command.args(line.split_whitespace());
    command.current_dir(scratch.path(""));
    command.env("HOME", scratch.path("nowhere"));
    for variable in ["DOCKER_CONFIG", "REGISTRY_AUTH_FILE"] {
        command.env_remove(variable);
    }
    command.output().unwrap()
}

fn done(scratch: &Scratch, line: &str) -> String {
    let output = populate(scratch, line);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(scratch: &Scratch, line: &str) -> String {
    let output = populate(scratch, line);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{line}: {told}");
    told
}

/// Images of a disk in every format, each as an image in a local directory.
fn formats(scratch: &Scratch) -> [&'static str; 5] {
    scratch.disk("raw", 9);
    scratch.qemu("convert -f raw -O qcow2 raw qcow2");
    scratch.qemu("convert -f raw -O qcow2 -c raw packed");
    scratch.qemu("convert -f raw -O qcow2 raw grown");
    scratch.qemu("resize grown 24M");
    fs::copy(scratch.path("qcow2"), scratch.path("wrapped")).unwrap();
    scratch.tool("gzip", "wrapped");
    fs::rename(scratch.path("wrapped.gz"), scratch.path("wrapped")).unwrap();
    ["raw", "qcow2", "packed", "grown", "wrapped"]
}

/// Pushes a file as an image, whose layers are packed like this.
fn push(scratch: &Scratch, host: &str, file: &str, packing: &str, tag: &str) {
    let layout = format!("layout-{file}-{tag}");
    let mut content = Content::default();
    // skopeo packs nothing that it remembers to be there.
    let mark = format!("{host} {packing}");
    let layers = [
        tar(&[("etc/mark", mark.as_bytes()), ("disk/disk.img", b"lower")]),
        tar(&[
            ("etc/motd", mark.as_bytes()),
            ("disk/disk.img", &scratch.read(file)),
        ]),
    ];
    let named = content.image("latest", &layers);
    content.layout(&scratch.path(&layout), "latest", &named);
    let how = match packing {
        "none" => "--preserve-digests".to_owned(),
        packing => format!("--format oci --dest-compress-format {packing}"),
    };
    scratch.tool(
        "skopeo",
        &format!("copy --quiet --insecure-policy --dest-tls-verify=false {how} oci:{layout}:latest docker://{host}/vms/{file}:{tag}"),
    );
}

#[test]
#[ignore = "needs docker-registry, skopeo and qemu-img"]
fn every_packing_and_format_gives_the_same_disk() {
    let scratch = Scratch::new("real-registry-formats");
    let registries = Registries::start(&scratch);
    let host = registries.host("port");
    let files = formats(&scratch);
    let disk = scratch.read("raw");
    for packing in ["none", "gzip", "zstd", "zstd:chunked"] {
        for file in files {
            let tag = packing.replace(':', "-");
            push(&scratch, &host, file, packing, &tag);
            let image = format!("{host}/vms/{file}:{tag}");
            let manifest = scratch.tool(
                "skopeo",
                &format!("inspect --raw --tls-verify=false docker://{image}"),
            );
            let wanted = match packing {
                "none" => format!("\"{LAYER}\""),
                packing => format!("\"{LAYER}+{}\"", &packing[..4]),
            };
            assert!(manifest.contains(&wanted), "{packing}: {manifest}");
            done(
                &scratch,
                &format!("--plain-http --image {image} --target disk"),
            );
            let mut wanted = disk.clone();
            if file == "grown" {
                wanted.resize(24 << 20, 0);
            }
            assert!(scratch.read("disk") == wanted, "{packing} {file}");
        }
    }
    let left = scratch.names();
    assert!(left.contains(&"disk".to_owned()), "{left:?}");
}

/// As umoci lays layers over each other, and says what is gone.
#[test]
#[ignore = "needs docker-registry, skopeo and umoci"]
fn what_upper_layers_hide_is_hidden() {
    let scratch = Scratch::new("real-registry-layers");
    let registries = Registries::start(&scratch);
    let host = registries.host("port");
    scratch.disk("one", 3);
    scratch.disk("two", 5);
    scratch.tool("umoci", "init --layout layout");
    scratch.tool("umoci", "new --image layout:empty");
    scratch.tool(
        "umoci",
        "insert --image layout:empty --tag one one /disk/one.img",
    );
    scratch.tool("umoci", "unpack --image layout:one bundle");
    fs::remove_file(scratch.path("bundle/rootfs/disk/one.img")).unwrap();
    fs::copy(
        scratch.path("two"),
        scratch.path("bundle/rootfs/disk/two.img"),
    )
    .unwrap();
    scratch.tool("umoci", "repack --image layout:two bundle");
    scratch.tool(
        "umoci",
        "insert --image layout:two --tag both one /disk/more.img",
    );
    fs::create_dir(scratch.path("directory")).unwrap();
    fs::copy(scratch.path("two"), scratch.path("directory/only.img")).unwrap();
    scratch.tool(
        "umoci",
        "insert --image layout:one --tag opaque --opaque directory /disk",
    );
    for tag in ["one", "two", "both", "opaque"] {
        let line = format!(
            "copy --quiet --insecure-policy --dest-tls-verify=false oci:layout:{tag} docker://{host}/vms/disk:{tag}"
        );
        scratch.tool("skopeo", &line);
    }
    for (tag, more, wanted) in [
        ("one", "", "one"),
        ("two", "", "two"),
        ("opaque", "", "two"),
        ("both", "--path /disk/two.img", "two"),
        ("both", "--path /disk/more.img", "one"),
    ] {
        let image = format!("--plain-http --image {host}/vms/disk:{tag} {more}");
        done(&scratch, &format!("{image} --target disk"));
        assert!(scratch.read("disk") == scratch.read(wanted), "{tag} {more}");
    }
    let image = format!("--plain-http --image {host}/vms/disk:both --target other");
    let told = refused(&scratch, &image);
    assert!(told.contains("disk/more.img, disk/two.img"), "{told}");
    assert!(!scratch.path("other").exists());
}

#[test]
#[ignore = "needs docker-registry and skopeo"]
fn a_registry_with_tls_and_a_password_is_spoken_to() {
    let scratch = Scratch::new("real-registry-tls");
    let registries = Registries::start(&scratch);
    let (host, password) = (registries.host("tlsPort"), registries.password());
    let authority = registries.text("caFile");
    fs::create_dir(scratch.path("certs")).unwrap();
    fs::copy(&authority, scratch.path("certs/ca.crt")).unwrap();
    scratch.disk("raw", 3);
    scratch.tool(
        "skopeo",
        &format!("login --authfile auth.json --cert-dir certs -u reader -p {password} {host}"),
    );
    let mut content = Content::default();
    let named = content.image("latest", &[tar(&[("disk/a", &scratch.read("raw"))])]);
    content.layout(&scratch.path("layout"), "latest", &named);
    scratch.tool(
        "skopeo",
        &format!("copy --quiet --insecure-policy --dest-cert-dir certs --dest-authfile auth.json oci:layout:latest docker://{host}/vms/disk"),
    );
    let image = format!("--image {host}/vms/disk --target disk");
    let safe = format!("{image} --ca-file {authority}");
    done(&scratch, &format!("{safe} --auth-file auth.json"));
    assert!(scratch.read("disk") == scratch.read("raw"));

    let told = refused(&scratch, &format!("{image} --auth-file auth.json"));
    assert!(told.contains("the connection is not safe"), "{told}");
    let told = refused(&scratch, &safe);
    assert!(told.contains("status 401"), "{told}");
    let auth = fs::read_to_string(scratch.path("auth.json")).unwrap();
    let auth: Value = serde_json::from_str(&auth).unwrap();
    let words = auth["auths"][&host]["auth"].as_str().unwrap();
    let wrong = auth.to_string().replace(words, "cmVhZGVyOndyb25n");
    fs::write(scratch.path("wrong.json"), wrong).unwrap();
    let told = refused(&scratch, &format!("{safe} --auth-file wrong.json"));
    assert!(
        told.contains("status 401") && !told.contains("wrong\""),
        "{told}"
    );
    let told = refused(&scratch, &format!("{image} --plain-http"));
    assert!(told.contains("status 400"), "{told}");
}

#[test]
#[ignore = "needs docker-registry and skopeo"]
fn the_disk_of_an_image_comes_into_the_store() {
    let scratch = Scratch::new("real-registry-store");
    let store = store::Scratch::new("real-registry-store");
    let registries = Registries::start(&scratch);
    let host = registries.host("port");
    formats(&scratch);
    push(&scratch, &host, "packed", "zstd", "zstd");
    let name = format!("docker://{host}/vms/packed:zstd");
    let told = store.succeeds(&["pull", &name, "--plain-http"]);
    assert!(told.starts_with(&format!("{name} has sha256:")), "{told}");
    assert!(store.disk(&name) == scratch.read("raw"));
    store.succeeds(&[
        "pull",
        "virtlet.cloud/mine",
        "--plain-http",
        "--from",
        &name,
    ]);
    assert!(store.disk("mine") == scratch.read("raw"));
    let told = store.fails(&["pull", &name]);
    assert!(told.contains("https://"), "{told}");
    let told = store.fails(&["pull", "mine", "--plain-http", "--from", "file"]);
    assert!(told.contains("this is no image in a registry"), "{told}");
}
