use disklet_core::units::ByteSize;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// What is answered when VM objects are judged.
fn judged(body: &[u8]) -> Result<(Vec<u8>, Outcome), Malformed> {
    let settings = Settings {
        image: "example.com/disklet:1".to_owned(),
        pull_policy: None,
        default_memory: ByteSize::from_bytes(1 << 30),
        low_ports: false,
        seccomp_profile: None,
    };
    answer(body, Question::Valid(&settings))
}

fn vm(spec: &Value) -> Value {
    json!({
        "apiVersion": "disklet.io/v1alpha1",
        "kind": "VM",
        "metadata": {"name": "db", "namespace": "prod", "uid": "1-2", "managedFields": [{"manager": "x"}]},
        "spec": spec,
        "status": {"phase": "Running"},
    })
}

fn good() -> Value {
    vm(
        &json!({"domain": {"devices": {"disks": [{"source": {"image": {"name": "example.com/cirros"}}}]}}}),
    )
}

fn bad() -> Value {
    vm(&json!({"domain": {"memory": "1Mi", "devices": {"discs": []}}}))
}

fn review(operation: &str, object: &Value, old: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "disklet.io", "version": "v1alpha1", "kind": "VM"},
            "resource": {"group": "disklet.io", "version": "v1alpha1", "resource": "vms"},
            "name": "db",
            "namespace": "prod",
            "operation": operation,
            "userInfo": {"username": "admin"},
            "object": object,
            "oldObject": old,
            "dryRun": false,
        },
    })
}

fn answered(review: &Value) -> Value {
    let (bytes, outcome) = judged(review.to_string().as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    let allowed = answer["response"]["allowed"].as_bool().unwrap();
    assert_eq!(allowed, outcome == Outcome::Allowed);
    assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
    answer
}

fn message(answer: &Value) -> &str {
    answer["response"]["status"]["message"]
        .as_str()
        .unwrap_or("allowed")
}

#[test]
fn a_bad_vm_is_refused_with_all_that_is_wrong() {
    let answer = answered(&review("CREATE", &bad(), &Value::Null));
    let expected = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "allowed": false,
            "status": {
                "code": 400,
                "reason": "BadRequest",
                "message": "2 problems:\n\
                    spec.domain.devices.discs: unknown field \"discs\" (allowed: disks, interfaces; help: did you mean \"disks\"?)\n\
                    spec.domain.memory: too little memory for a VM (found: \"1Mi\"; allowed: 16Mi to 256Ti, as a Kubernetes quantity such as 1Gi)",
            },
        },
    });
    assert_eq!(answer, expected);
}

/// Nobody has seen the text that it was sent as.
#[test]
fn another_place_is_told_by_its_field() {
    let disk = json!({"source": {"pvc": {"claimname": "data"}}});
    let spec = json!({"domain": {"devices": {"disks": [disk, disk]}}});
    let answer = answered(&review("CREATE", &vm(&spec), &Value::Null));
    let message = message(&answer);
    assert!(
        message.contains("the first is at spec.domain.devices.disks[0]"),
        "{message}"
    );
}

/// Searching each of them among the others would take half a minute.
#[test]
fn as_many_entries_as_an_object_can_have_are_judged_soon() {
    let mut many = good();
    let entries = (0..49_900).map(|n| (format!("key-{n}"), json!("x")));
    many["spec"]["cloudInit"]["metaData"] = Value::Object(entries.collect());
    let begun = std::time::Instant::now();
    let answer = answered(&review("CREATE", &many, &Value::Null));
    assert_eq!(message(&answer), "allowed");
    let took = begun.elapsed();
    assert!(took < std::time::Duration::from_secs(8), "{took:?}");
}

#[test]
fn a_good_vm_is_allowed_without_a_word() {
    let answer = answered(&review("CREATE", &good(), &Value::Null));
    let response = &answer["response"];
    assert_eq!(response, &json!({"uid": response["uid"], "allowed": true}));
    let mut stopped = good();
    stopped["spec"]["running"] = json!(false);
    let answer = answered(&review("CREATE", &stopped, &Value::Null));
    assert!(answer["response"]["warnings"].is_null(), "{answer}");
}

/// What depends on others, or on a node, is decided at the launch.
#[test]
fn what_cannot_be_seen_is_not_refused() {
    let disks = [
        json!({"source": {"pvc": {"claimname": "data"}}}),
        json!({"source": {"pvc": {"claimname": "data", "create": true}}, "driver": {"name": "qemu"}}),
        json!({"source": {"pvc": {"claimname": "data"}}, "device": "lun"}),
        json!({"source": {"pvc": {"claimname": "data"}}, "access-mode": "read-shared", "device": "cdrom"}),
        json!({"source": {"iscsi": {"host": {"name": "10.0.0.1"}, "portal": "iqn.2001-04.com.example:a", "lun": 1, "auth": {"secretRef": "chap"}}}}),
        json!({"source": {"rbd": {"monitors": ["10.0.0.1"], "pool": "p", "image": "i", "auth": {"secretRef": "key"}}}}),
        json!({"source": {"http": {"url": "https://169.254.169.254/x.raw", "auth": {"secretRef": "web"}}}, "copy": {"mode": "clone"}}),
        json!({"source": {"nbd": {"unix": "/srv/elsewhere/nbd/a.sock", "export": "a"}}}),
        json!({"source": {"image": {"name": "cirros"}}, "copy": {"mode": "copy-on-write", "usage-type": "fast"}}),
        json!({"source": {"container": {"image": "maker", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}}}),
    ];
    for disk in disks {
        let spec = json!({"domain": {"devices": {"disks": [disk]}}, "cloudInit": {"secretRef": {"name": "user-data"}}});
        let answer = answered(&review("CREATE", &vm(&spec), &Value::Null));
        assert_eq!(message(&answer), "allowed", "{disk}");
    }
}

#[test]
fn what_the_object_alone_decides_is_refused_as_a_plan_would() {
    let image = json!({"image": {"name": "cirros"}});
    let claim = json!({"pvc": {"claimname": "a"}});
    let cases = [
        (
            json!([{"source": {"image": {"name": "a"}, "pvc": {"claimname": "b"}}}]),
            "spec.domain.devices.disks[0].source",
        ),
        (
            json!([{"source": claim}, {"source": claim}]),
            "one claim cannot be two disks",
        ),
        (
            json!([{"source": image, "access-mode": "write-exclusive"}]),
            "spec.domain.devices.disks[0].access-mode",
        ),
        (
            json!([{"source": claim, "copy": {"mode": "copy-on-write"}, "access-mode": "write-shared"}]),
            "access-mode",
        ),
        (
            json!([{"source": image, "bootOrder": 1}, {"source": image, "bootOrder": 1}]),
            "one turn to boot",
        ),
        (
            json!([{"source": image, "driver": {"name": "qemu"}}]),
            "only a claim has a driver",
        ),
        (
            json!([{"source": {"http": {"url": "https://h/a?b"}}, "access-mode": "read-only"}]),
            "an address with a query",
        ),
        (
            json!([{"source": image, "target": {"bus": "scsi", "device": "sda"}}, {"source": image, "target": {"bus": "scsi", "device": "sda"}}]),
            "sda",
        ),
    ];
    for (disks, wanted) in cases {
        let spec = json!({"domain": {"devices": {"disks": disks}}});
        let answer = answered(&review("CREATE", &vm(&spec), &Value::Null));
        assert!(message(&answer).contains(wanted), "{wanted}: {answer}");
    }
}

#[test]
fn whatever_goes_goes() {
    let mut going = bad();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut status = review("UPDATE", &bad(), &good());
    status["request"]["subResource"] = json!("status");
    let mut pod = review("CREATE", &bad(), &Value::Null);
    pod["request"]["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
    for asked in [
        review("DELETE", &Value::Null, &bad()),
        review("UPDATE", &going, &bad()),
        review("CONNECT", &bad(), &Value::Null),
        status,
        pod,
    ] {
        assert_eq!(message(&answered(&asked)), "allowed", "{asked}");
    }
}

/// Who finds a VM bad that was taken by another version, or while nobody was
/// there, can still let go of it, label it, stop it, and mend it step by step.
#[test]
fn an_update_is_refused_only_for_what_it_brings() {
    let mut labelled = bad();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    labelled["metadata"]["finalizers"] = json!([]);
    let answer = answered(&review("UPDATE", &labelled, &bad()));
    assert_eq!(message(&answer), "allowed");
    let warning = answer["response"]["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("still refused: spec.domain.devices.discs: "),
        "{warning}"
    );

    let mut stopped = bad();
    stopped["spec"]["running"] = json!(false);
    assert_eq!(
        message(&answered(&review("UPDATE", &stopped, &bad()))),
        "allowed"
    );
    let mut better = bad();
    better["spec"]["domain"]["memory"] = json!("64Mi");
    assert_eq!(
        message(&answered(&review("UPDATE", &better, &bad()))),
        "allowed"
    );
    let mut worse = bad();
    worse["spec"]["runing"] = json!(true);
    let answer = answered(&review("UPDATE", &worse, &bad()));
    assert!(message(&answer).contains("spec.runing"), "{answer}");
    let answer = answered(&review("UPDATE", &bad(), &good()));
    assert!(message(&answer).starts_with("2 problems:"), "{answer}");
}

#[test]
fn a_name_that_is_yet_to_be_made_is_no_problem() {
    let mut object = good();
    object["metadata"] = json!({"generateName": "db-"});
    let mut asked = review("CREATE", &object, &Value::Null);
    asked["request"]["name"] = Value::Null;
    assert_eq!(message(&answered(&asked)), "allowed");
}

#[test]
fn notices_are_warnings() {
    let rbd = json!({"rbd": {"monitors": ["10.0.0.1"], "pool": "p", "image": "i"}});
    let spec = json!({"domain": {"devices": {"disks": [{"source": rbd}]}}});
    let answer = answered(&review("CREATE", &vm(&spec), &Value::Null));
    let warnings = answer["response"]["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{answer}");
    let warning = warnings[0].as_str().unwrap();
    assert!(
        warning.contains("without a Secret the cluster is used without cephx"),
        "{warning}"
    );
}

#[test]
fn a_message_has_its_bounds() {
    let disks = vec![json!({}); 300];
    let spec = json!({"domain": {"devices": {"disks": disks}}});
    let answer = answered(&review("CREATE", &vm(&spec), &Value::Null));
    let told = message(&answer);
    assert!(told.len() < LONGEST_MESSAGE + 200, "{}", told.len());
    assert!(told.lines().count() <= MOST_PROBLEMS + 2, "{told}");
    assert!(told.lines().last().unwrap().starts_with("and "), "{told}");
    let long = "x".repeat(5000);
    let spec = json!({"domain": {}, long.as_str(): 1, "y": long, "cloudInit": {"userData": long}});
    let answer = answered(&review("CREATE", &vm(&spec), &Value::Null));
    assert!(message(&answer).len() < 4000, "{answer}");
}

#[test]
fn a_secret_is_in_no_message() {
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nc2VjcmV0\n-----END OPENSSH PRIVATE KEY-----";
    let spec = json!({"domain": {"memory": key, "cpu": key}, "cloudInit": {"sshKeys": [key]}});
    let told = answered(&review("CREATE", &vm(&spec), &Value::Null)).to_string();
    assert!(
        told.contains("a private key") && !told.contains("c2VjcmV0"),
        "{told}"
    );
}

#[test]
fn what_is_no_review_is_told() {
    let mut old = review("CREATE", &good(), &Value::Null);
    old["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let mut nameless = review("CREATE", &good(), &Value::Null);
    nameless["request"]["uid"] = json!("");
    let deep = format!("{{\"request\": {{\"object\": {}", "[".repeat(100_000));
    for (bytes, wanted) in [
        (
            old.to_string(),
            "AdmissionReview of admission.k8s.io/v1beta1",
        ),
        (nameless.to_string(), "no uid"),
        (String::new(), "EOF"),
        ("{}".to_owned(), "missing field"),
        (deep, "recursion limit"),
        ("\u{0}".to_owned(), "expected value"),
    ] {
        let why = judged(bytes.as_bytes()).unwrap_err().to_string();
        assert!(why.contains(wanted) && why.len() < 500, "{why}");
    }
}

/// A value of any shape.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        "(disks|source|pvc|1Gi|scsi|VM|UPDATE)".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let key =
            "(spec|domain|devices|disks|source|pvc|image|name|metadata|memory|copy|mode|.{0,6})";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = judged(&bytes);
    }

    /// An answer belongs to its request, has its bounds, and is the same twice.
    #[test]
    fn any_object_is_answered(object in any_value(), old in any_value(), operation in "(CREATE|UPDATE|DELETE|)") {
        let asked = review(&operation, &object, &old).to_string();
        let (first, outcome) = judged(asked.as_bytes()).unwrap();
        prop_assert!(first.len() < 64 << 10);
        let read: Value = serde_json::from_slice(&first).unwrap();
        prop_assert_eq!(read["response"]["status"].is_null(), outcome == Outcome::Allowed);
        prop_assert_eq!(&first, &judged(asked.as_bytes()).unwrap().0);
    }

    /// Bytes of a real request that are changed, cut or repeated.
    #[test]
    fn damaged_requests_are_answered(at in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = review("UPDATE", &bad(), &good()).to_string().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = judged(&bytes);
        let cut = cut.index(bytes.len());
        let _ = judged(&bytes[cut..]);
        bytes.truncate(cut);
        let _ = judged(&bytes);
    }
}
