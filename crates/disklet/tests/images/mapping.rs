//! Names that a mapping leads somewhere.

use crate::scratch::{Scratch, digest, noise};
use crate::server::{Reply, Server};

#[test]
fn names_lead_where_the_mapping_says() {
    let scratch = Scratch::new("mapping");
    let server = Server::start(|request| match request.path.as_str() {
        "/cirros.img" => Reply::whole(&noise(1, 1 << 20)),
        "/centos-7/01.img" => Reply::whole(&noise(2, 1 << 20)),
        _ => Reply::status(404),
    });
    let base = server.url("");
    // A directory of files, one of them as the cluster has it.
    scratch.write(
        "images/a.yaml",
        format!("translations: [{{name: cirros, url: \"{base}/cirros.img\"}}]\n"),
    );
    scratch.write(
        "images/b.yaml",
        format!(
            "apiVersion: virtlet.k8s/v1\nkind: VirtletImageMapping\nmetadata: {{name: b}}\nspec:\n  \
             prefix: mirror\n  translations:\n  - regexp: 'centos/(\\d+)-(\\d+)'\n    \
             url: \"{base}/centos-$1/$2.img\"\n"
        ),
    );
    scratch.write("images/README", "not a mapping");
    let directory = scratch.path("images");
    scratch.configure(&format!("imageTranslations: {}\n", directory.display()));
    scratch.succeeds(&["pull", "virtlet.cloud/cirros"]);
    assert!(scratch.disk("cirros") == noise(1, 1 << 20));
    scratch.succeeds(&["pull", "mirror/centos/7-01"]);
    assert!(scratch.disk("mirror/centos/7-01") == noise(2, 1 << 20));
    let told = scratch.fails(&["pull", "mirror/centos/8-02"]);
    assert!(
        told.contains("/centos-8/02.img: the server does not have it"),
        "{told}"
    );
    let named = "help: check the image's name, or say with --from";
    let told = scratch.fails(&["pull", "mirror/centos/8-02.img"]);
    assert!(told.contains(named), "{told}");
    // Which is how images in registries are called.
    let told = scratch.fails(&["pull", "mirror/centos/8-02:latest"]);
    assert!(
        told.contains("help: if it is an image in a registry, its name here is docker://mirror/centos/8-02:latest"),
        "{told}"
    );
    let told = scratch.fails(&["pull", "fedora"]);
    assert!(
        told.contains("image fedora: it is not known where it comes from"),
        "{told}"
    );
}

#[test]
fn the_digests_of_name_and_mapping_must_both_be_met() {
    let scratch = Scratch::new("mapping-digest");
    let bytes = noise(1, 1 << 20);
    let right = digest(&bytes);
    let server = Server::start(move |request| Reply::file(request, &bytes, "\"1\""));
    let map = |digest: &str| {
        let url = server.url("/x");
        scratch.map(&format!(
            "translations: [{{name: one, url: \"{url}\", digest: \"sha256:{digest}\"}}]\n"
        ));
    };
    let wrong = "a".repeat(64);
    map(&wrong);
    let told = scratch.fails(&["pull", "one"]);
    assert!(
        told.contains(&format!("not sha256:{wrong} as demanded")),
        "{told}"
    );
    let told = scratch.fails(&["pull", &format!("one@sha256:{right}")]);
    assert!(told.contains("the mapping has the digest"), "{told}");
    assert_eq!(server.seen().len(), 1);
    map(&right);
    scratch.succeeds(&["pull", &format!("one@sha256:{right}")]);
    assert_eq!(server.seen().len(), 2);
    // What is there is not fetched again, whatever it is called.
    scratch.succeeds(&["pull", &format!("host.invalid/two@sha256:{right}")]);
    scratch.succeeds(&["pull", "one"]);
    assert_eq!(server.seen().len(), 2);
    assert_eq!(scratch.listed().len(), 2);
}

/// A manifest asks for a digest, and the store has another under that name.
#[test]
fn another_digest_in_the_store_is_told_and_how_to_have_the_right_one() {
    let scratch = Scratch::new("mapping-other");
    scratch.write("disk.raw", noise(1, 1 << 20));
    scratch.succeeds(&["pull", "one", "--from", "disk.raw"]);
    let (there, wanted) = (digest(&noise(1, 1 << 20)), "b".repeat(64));
    let name = format!("virtlet.cloud/one@sha256:{wanted}");
    let words = format!(
        "error: image one: the store has sha256:{there} under this name, not sha256:{wanted} as demanded, and it is not known where it comes from"
    );
    let help = format!("help: to have it: disklet images pull one@sha256:{wanted} --from ");
    let told = scratch.fails(&["pull", &name]);
    assert!(told.contains(&words) && told.contains(&help), "{told}");

    let server = Server::start(|_| Reply::whole(&noise(2, 1 << 20)));
    scratch.map(&format!(
        "translations: [{{name: one, url: \"{}\"}}]\n",
        server.url("/x")
    ));
    let told = scratch.fails(&["pull", &name]);
    let words = format!("as demanded; the store has sha256:{there} under this name\n  {help}");
    assert!(told.contains(&words), "{told}");
    // What it has stays.
    assert_eq!(scratch.listed().len(), 1);
}

#[test]
fn slips_in_a_mapping_are_all_told() {
    let scratch = Scratch::new("mapping-slips");
    scratch.map("translatons: []\ntransports: {a: {proxy: 'user:hunter2@x'}}\n");
    let outcome = scratch.images(&["pull", "one"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    for wanted in [
        "mapping.yaml:1:1: translations: is required but missing",
        "unknown field \"translatons\"",
        "did you mean \"translations\"?",
        "transports.a.proxy: the proxy's address does not begin with",
        "error: image one: the mapping ",
    ] {
        assert!(
            outcome.stderr.contains(wanted),
            "{wanted}: {}",
            outcome.stderr
        );
    }
    assert!(!outcome.stderr.contains("hunter2"), "{}", outcome.stderr);
    scratch.configure("imageTranslations: /no/such/mapping\n");
    let outcome = scratch.images(&["pull", "one"]);
    assert!(
        outcome.stderr.contains("/no/such/mapping: cannot be read"),
        "{outcome:?}"
    );
    scratch.configure("imageTranslation: /no/such/mapping\n");
    let outcome = scratch.images(&["pull", "one"]);
    assert!(
        outcome
            .stderr
            .contains("did you mean \"imageTranslations\"?"),
        "{outcome:?}"
    );
}
