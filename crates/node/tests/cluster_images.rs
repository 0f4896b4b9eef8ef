//! Images of VMs on a real cluster: found by mappings that are objects, fetched with
//! the credentials of pods, told of by events.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use kube::guests::assert_said;
use kube::images::{Mapping, Web, mapping_object};
use kube::pods::{delete_pod, vm_pod};
use kube::{Tenant, until};

const RUNS: &str = ".status.conditions[?(@.type==\"disklet.io/running\")].status";
const WHY: &str = ".status.conditions[?(@.type==\"disklet.io/running\")].reason";

/// A VM pod with an image; nothing on its disk boots, which is nobody's concern here.
fn pod_of(name: &str, image: &str, more: &str) -> String {
    let pod = vm_pod(name, more, &["stay"]);
    pod.replace("virtlet.cloud/small", &format!("virtlet.cloud/{image}"))
        .replace(
            "terminationGracePeriodSeconds: 20",
            "terminationGracePeriodSeconds: 1",
        )
}

/// What was told of a pod, as REASON MESSAGE, one a line.
fn told(tenant: &Tenant, pod: &str) -> String {
    let about = format!("involvedObject.name={pod}");
    let lines = "jsonpath={range .items[*]}{.reason} {.message}{\"\\n\"}{end}";
    tenant.kubectl(&["get", "events", "--field-selector", &about, "-o", lines])
}

fn await_told(tenant: &Tenant, pod: &str, wanted: &str) -> String {
    until(90, wanted, || {
        let told = told(tenant, pod);
        told.contains(wanted).then_some(told)
    })
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn an_image_comes_by_a_mapping_object_and_its_way_is_told() {
    let tenant = Tenant::new("image-mapped");
    let web = Web::start(&tenant);
    let image = format!("{}/open", tenant.name);
    // Before there is a mapping.
    tenant.apply(&pod_of("early", &image, ""));
    let refused = await_told(&tenant, "early", "PullRefused");
    assert_said(
        &refused,
        &["it is not known where it comes from", "VirtletImageMapping"],
    );
    tenant.await_field(30, "pod/early", WHY, "PullRefused");
    let _mapping = web.map(&tenant);
    // Without a restart of anything it takes effect, also for who waits.
    tenant.await_field(180, "pod/early", RUNS, "True");
    let told = told(&tenant, "early");
    let url = format!("https://{}/disk.raw", web.host());
    assert_said(
        &told,
        &[
            &format!("Pulling pulling image {image} from {url}"),
            &format!("Pulled pulled image {image} in "),
        ],
    );
    // What is there is not told of again.
    tenant.apply(&pod_of("late", &image, ""));
    tenant.await_field(120, "pod/late", RUNS, "True");
    assert!(!self::told(&tenant, "late").contains("Pulling pulling"));
    delete_pod(&tenant, "early");
    delete_pod(&tenant, "late");
}

/// Whoever waits for a large image sees that it comes.
#[test]
#[ignore = "needs a cluster: script/test"]
fn it_is_told_how_far_a_slow_image_has_come() {
    let tenant = Tenant::new("image-slow");
    let web = Web::start(&tenant);
    let _mapping = web.map(&tenant);
    let image = format!("{}/slow", tenant.name);
    tenant.apply(&pod_of("patient", &image, ""));
    let pulling = format!("Pulling pulling image {image} from ");
    let told = await_told(&tenant, "patient", &pulling);
    assert_said(&told, &["slow/disk.raw (4.0 MiB)"]);
    assert!(!told.contains("PullProgress"), "{told}");
    let progress = format!("PullProgress image {image}: ");
    let told = await_told(&tenant, "patient", &progress);
    let (_, how_far) = told.split_once(&progress).expect("the event");
    let how_far = how_far.lines().next().expect("a line");
    let percent = how_far
        .split_once(" of 4.0 MiB (")
        .and_then(|(_, it)| it.split_once(" %) after 3"))
        .and_then(|(percent, _)| percent.parse().ok());
    assert!(matches!(percent, Some(10..=95)), "{how_far}");
    assert_eq!(
        tenant.field("pod/patient", RUNS),
        None,
        "the image is not there yet"
    );
    await_told(
        &tenant,
        "patient",
        &format!("Pulled pulled image {image} in "),
    );
    tenant.await_field(60, "pod/patient", RUNS, "True");
    delete_pod(&tenant, "patient");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn what_happens_again_is_counted() {
    let tenant = Tenant::new("image-missing");
    let web = Web::start(&tenant);
    let _mapping = web.map(&tenant);
    tenant.apply(&pod_of("none", &format!("{}/missing", tenant.name), ""));
    let told = await_told(&tenant, "none", "PullRefused");
    assert_said(
        &told,
        &[
            "the server does not have it (status 404)",
            "check the image's name",
        ],
    );
    let about = "involvedObject.name=none,reason=PullRefused";
    let counts = "jsonpath={.items[*].count}";
    until(120, "the same event is counted", || {
        let counts = tenant.kubectl(&["get", "events", "--field-selector", about, "-o", counts]);
        matches!(counts.parse(), Ok(2u32..)).then_some(())
    });
    delete_pod(&tenant, "none");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_wrong_mapping_is_told_to_its_author_and_breaks_no_other() {
    let tenant = Tenant::new("image-wrong");
    let web = Web::start(&tenant);
    // By its name it comes before the other.
    let wrong = Mapping::apply(
        &format!("a-{}", tenant.name),
        &format!(
            "  translations:\n  - {{name: {}/open, url: \"ftp://host/x\"}}\n",
            tenant.name
        ),
    );
    until(30, "it is refused", || {
        wrong.accepted("status").filter(|it| it == "False")
    });
    let why = wrong.accepted("message").expect("a message");
    assert_said(&why, &["spec.translations[0].url", "https://"]);
    let right = web.map(&tenant);
    until(30, "it is accepted", || {
        right.accepted("status").filter(|it| it == "True")
    });
    tenant.apply(&pod_of("twice", &format!("{}/open", tenant.name), ""));
    tenant.await_field(120, "pod/twice", RUNS, "True");
    delete_pod(&tenant, "twice");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_tenants_mapping_counts_for_nothing() {
    let tenant = Tenant::new("image-theirs");
    let web = Web::start(&tenant);
    let spec = format!(
        "  translations:\n  - {{name: {}/open, url: \"https://{}/disk.raw\"}}\n  transports: {{\"\": {{tls: {{insecure: true}}}}}}\n",
        tenant.name,
        web.host()
    );
    tenant.apply(&mapping_object("mine", &spec));
    tenant.apply(&pod_of("theirs", &format!("{}/open", tenant.name), ""));
    let told = await_told(&tenant, "theirs", "PullRefused");
    assert_said(&told, &["it is not known where it comes from"]);
    delete_pod(&tenant, "theirs");
}

/// A Secret for the server, with a password.
fn pull_secret(web: &Web, password: &str) -> String {
    let host = web.host();
    let config = format!(
        "{{\"auths\": {{\"{host}\": {{\"username\": \"reader\", \"password\": \"{password}\"}}}}}}"
    );
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: login}}\ntype: kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: '{config}'\n"
    )
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn an_image_that_came_with_a_secret_is_for_those_who_have_one() {
    let owner = Tenant::new("image-owner");
    let web = Web::start(&owner);
    let _mapping = web.map(&owner);
    let image = format!("{}/guarded", owner.name);
    let with_secret = "  imagePullSecrets: [{name: login}]";
    owner.apply(&pull_secret(&web, &web.password()));
    owner.apply(&pod_of("owned", &image, with_secret));
    owner.await_field(120, "pod/owned", RUNS, "True");
    await_told(&owner, "owned", "Pulled pulled image");
    // The image is on the node, and not for others.
    let other = Tenant::new("image-other");
    other.apply(&pod_of("without", &image, ""));
    let refused = await_told(&other, "without", "PullRefused");
    assert_said(&refused, &["status 401", "imagePullSecrets"]);
    other.apply(&pod_of("never", &image, "").replace(
        "    resources:",
        "    imagePullPolicy: Never\n    resources:",
    ));
    await_told(&other, "never", "its pull policy is Never");
    other.apply(&pull_secret(&web, "wrong"));
    other.apply(&pod_of("wrong", &image, with_secret));
    let refused = await_told(&other, "wrong", "status 401");
    assert!(!refused.contains(&web.password()), "{refused}");
    // Who has the password need not fetch it again.
    let third = Tenant::new("image-third");
    third.apply(&pull_secret(&web, &web.password()));
    third.apply(&pod_of("of-third", &image, with_secret));
    third.await_field(120, "pod/of-third", RUNS, "True");
    // The kubelet tells of the launcher's image by the same reason.
    assert!(!told(&third, "of-third").contains("Pulled pulled image"));
    for (tenant, pod) in [
        (&owner, "owned"),
        (&other, "without"),
        (&other, "never"),
        (&other, "wrong"),
        (&third, "of-third"),
    ] {
        delete_pod(tenant, pod);
    }
}
