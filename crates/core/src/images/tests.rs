use super::*;
use crate::diag::Diagnostics;
use crate::manifest::Input;

fn read(text: &str) -> (ImageMapping, Vec<String>) {
    let mut mapping = ImageMapping::default();
    let mut diags = Diagnostics::default();
    let input = Input {
        name: "map.yaml".into(),
        text: text.to_owned(),
    };
    mapping.read(&input, &mut diags);
    let told = diags
        .into_sorted()
        .iter()
        .map(ToString::to_string)
        .collect();
    (mapping, told)
}

fn find(mapping: &ImageMapping, name: &str) -> Result<Address, Nowhere> {
    mapping.find(&ImageName::parse(name).unwrap())
}

fn found(mapping: &ImageMapping, name: &str) -> String {
    find(mapping, name).unwrap().url.to_string()
}

#[test]
fn without_a_mapping_the_name_is_the_address() {
    let none = ImageMapping::default();
    for (name, wanted) in [
        (
            "download.cirros-cloud.net/0.3.4/cirros-0.3.4-x86_64-disk.img",
            "https://download.cirros-cloud.net/0.3.4/cirros-0.3.4-x86_64-disk.img",
        ),
        (
            "virtlet.cloud/cloud-images.ubuntu.com/xenial/current/x.img:latest",
            "https://cloud-images.ubuntu.com/xenial/current/x.img",
        ),
        ("localhost:8443/x", "https://localhost:8443/x"),
        ("https://host.example/x", "https://host.example/x"),
    ] {
        assert_eq!(found(&none, name), wanted);
    }
    for name in ["virtlet.cloud/cirros", "cirros:latest", "library/cirros"] {
        assert_eq!(find(&none, name), Err(Nowhere::Unknown), "{name}");
    }
    let registry = find(&none, "docker://host.example/x:1");
    assert_eq!(registry, Err(Nowhere::Registry));
    let ftp = find(&none, "ftp://host.example/x");
    assert_eq!(ftp, Err(Nowhere::Scheme("ftp".to_owned())));
    let clear = find(&none, "http://host.example/x");
    assert_eq!(clear, Err(Nowhere::InTheClear));
}

#[test]
fn a_mapping_of_virtlet_is_understood() {
    let (mapping, told) = read(
        r#"
apiVersion: virtlet.k8s/v1
kind: VirtletImageMapping
metadata: {name: primary, namespace: kube-system}
spec:
  prefix: mirror
  translations:
  - {name: cirros, url: "http://user:hunter2@mirror.example/cirros.img?key=hunter2"}
  - {regexp: 'centos/(\d+)-(\d+)', url: "mirror.example/centos-$1/${2}.img", transport: slow}
  - {regexp: 'centos/.*', url: "https://other.example/x"}
  transports:
    "": {maxRedirects: 1}
    slow: {timeout: 250000, tls: {insecure: true}}
"#,
    );
    assert_eq!(told, [] as [&str; 0]);
    let cirros = find(&mapping, "virtlet.cloud/mirror/cirros:1").unwrap();
    assert_eq!(cirros.url.to_string(), "http://mirror.example/cirros.img?…");
    assert_eq!(cirros.transport.max_redirects, 1);
    assert!(!format!("{mapping:?} {cirros:?}").contains("hunter2"));
    let centos = find(&mapping, "mirror/centos/7-01").unwrap();
    assert_eq!(
        centos.url.to_string(),
        "https://mirror.example/centos-7/01.img"
    );
    assert!(centos.transport.tls.insecure);
    assert_eq!(
        found(&mapping, "mirror/centos/x"),
        "https://other.example/x"
    );
    assert_eq!(find(&mapping, "cirros"), Err(Nowhere::Unknown));
}

#[test]
fn every_slip_in_a_mapping_is_told() {
    let (_, told) = read(
        r#"
translations:
- {name: a, url: "ftp://user:hunter2@host/x"}
- {name: b, url: host.example/x, transprt: t}
- {name: b2, url: host.example/x, transport: slw}
- {regexp: '(', url: host.example/x}
- {url: host.example/x}
- {name: c, url: host.example/x, digest: "md5:12"}
- {name: d, url: host.example/x}
- {name: d, url: host.example/x}
transports:
  slow: {timeout: -1, tls: {serverName: x, certificates: [{key: k}], certFile: /x}}
"#,
    );
    let told = told.join("\n");
    for wanted in [
        "map.yaml:3:18: translations[0].url: the address does not begin with https:// or http://",
        "unknown field \"transprt\"",
        "did you mean \"transport\"?",
        "there is no such transport in this mapping\n  found: \"slw\"\n  help: did you mean \"slow\"?",
        "not a regular expression",
        "translations[4]: must have a name or a regexp, and not both",
        "translations[5].digest: not a digest",
        "this name is mapped twice",
        "transports.slow.timeout: out of range",
        "a server's other name is not supported",
        "certificates[0].cert: is required but missing",
        "certFile and keyFile must be given together",
    ] {
        assert!(told.contains(wanted), "{wanted} is missing in\n{told}");
    }
    assert!(!told.contains("hunter2"), "{told}");
    let (_, told) = read("kind: VirtletImageMaping\n");
    assert!(
        told[0].contains("did you mean \"VirtletImageMapping\"?"),
        "{told:?}"
    );
}

#[test]
fn what_a_pattern_puts_in_must_make_an_address() {
    let (mapping, told) = read("translations: [{regexp: '(.*)', url: 'https://$1/x'}]\n");
    assert_eq!(told, [] as [&str; 0]);
    assert_eq!(found(&mapping, "host.example"), "https://host.example/x");
    let told = find(&mapping, "a+b").unwrap_err().to_string();
    assert!(told.starts_with("map.yaml:1:"), "{told}");
}
