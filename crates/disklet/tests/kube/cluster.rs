//! A namespace of a real cluster, and what a kubelet and an agent would do in it.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// There is one controller in a cluster, so there is one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// A namespace with a node of its own, which no kubelet serves.
pub(crate) struct Place {
    namespace: String,
    node: String,
    _turn: MutexGuard<'static, ()>,
}

fn run(args: &[&str], input: &str) -> Output {
    let child = Command::new("kubectl")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        panic!("there is no kubectl: eval \"$(script/kube env)\" first");
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn done(args: &[&str], input: &str) -> String {
    let output = run(args, input);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs kubectl, which must succeed; what it prints.
pub(crate) fn kubectl(args: &[&str]) -> String {
    done(args, "")
}

/// Gives kubectl something to read.
pub(crate) fn kubectl_with(args: &[&str], input: &str) -> String {
    done(args, input)
}

/// What kubectl says, and whether it has succeeded.
pub(crate) fn kubectl_says(args: &[&str], input: &str) -> (bool, String) {
    let output = run(args, input);
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// Waits for something that must come true.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(40), "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let crd = Command::new(env!("CARGO_BIN_EXE_disklet"))
            .arg("crd")
            .output()
            .unwrap();
        done(
            &["apply", "-f", "-"],
            &String::from_utf8(crd.stdout).unwrap(),
        );
        kubectl(&["wait", "--for=condition=Established", "crd/vms.disklet.io"]);
        let namespace = format!("controller-{name}-{}", std::process::id());
        let place = Self {
            node: namespace.clone(),
            namespace,
            _turn: turn,
        };
        kubectl(&["create", "namespace", &place.namespace]);
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": place.node},
            // Nothing comes here by itself.
            "spec": {"unschedulable": true},
        });
        done(&["create", "-f", "-"], &node.to_string());
        // Pods are refused until their namespace's account is there.
        eventually("the account", || {
            place.find("serviceaccount/default").is_some()
        });
        place
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        let mut all = vec!["--namespace", &self.namespace];
        all.extend(args);
        kubectl(&all)
    }

    pub(crate) fn apply(&self, objects: &str) {
        done(
            &["--namespace", &self.namespace, "apply", "-f", "-"],
            objects,
        );
    }

    /// What kubectl says to it, and whether it was taken.
    pub(crate) fn try_apply(&self, object: &str) -> (bool, String) {
        let args = ["--namespace", &self.namespace, "apply", "-f", "-"];
        kubectl_says(&args, object)
    }

    /// Without a copy in an annotation, which large objects have no room for.
    pub(crate) fn create(&self, object: &str) {
        done(
            &["--namespace", &self.namespace, "create", "-f", "-"],
            object,
        );
    }

    pub(crate) fn patch(&self, object: &str, patch: &Value) {
        self.kubectl(&["patch", object, "--type=merge", "-p", &patch.to_string()]);
    }

    pub(crate) fn find(&self, object: &str) -> Option<Value> {
        let args = ["--namespace", &self.namespace, "get", object, "-o", "json"];
        let output = run(&args, "");
        output
            .status
            .success()
            .then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(crate) fn get(&self, object: &str) -> Value {
        self.find(object).unwrap()
    }

    /// The object, as soon as this is true of it.
    pub(crate) fn eventually(&self, object: &str, is_true: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(40) {
            last = self.find(object);
            if let Some(found) = last.take_if(|found| is_true(found)) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{object} never became what it should: {last:#?}");
    }

    pub(crate) fn gone(&self, object: &str) {
        eventually(&format!("{object} is gone"), || self.find(object).is_none());
    }

    /// An event about a VM; told once.
    pub(crate) fn event(&self, vm: &str, reason: &str) {
        let fields = format!(
            "--field-selector=involvedObject.name={vm},reason={reason},involvedObject.kind=VM"
        );
        let events = || {
            let list = self.kubectl(&["get", "events", &fields, "-o", "json"]);
            let list: Value = serde_json::from_str(&list).unwrap();
            list["items"].as_array().unwrap().clone()
        };
        eventually(&format!("the event {reason} of {vm}"), || {
            !events().is_empty()
        });
        let events = events();
        assert_eq!(events.len(), 1, "{events:#?}");
        assert_eq!(events[0]["source"]["component"], "disklet-controller");
    }

    /// Lets the scheduler use the node, which says that it is well.
    pub(crate) fn open_node(&self) {
        let node = format!("node/{}", self.node);
        kubectl(&["label", &node, "extraRuntime=virtlet"]);
        kubectl(&["uncordon", &self.node]);
        let path = format!("/api/v1/nodes/{}/status", self.node);
        let resources = json!({"cpu": "64", "memory": "64Gi", "pods": "1000"});
        let mut object: Value =
            serde_json::from_str(&kubectl(&["get", &node, "-o", "json"])).unwrap();
        object["status"]["capacity"] = resources.clone();
        object["status"]["allocatable"] = resources;
        object["status"]["conditions"] = json!([{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "by hand",
        }]);
        done(&["replace", "--raw", &path, "-f", "-"], &object.to_string());
        let taints = ["get", &node, "-o", "jsonpath={.spec.taints}"];
        eventually("the node has no taints", || kubectl(&taints).is_empty());
    }

    /// What the scheduler would do.
    pub(crate) fn run_on_a_node(&self, pod: &str) {
        let path = format!("/api/v1/namespaces/{}/pods/{pod}/binding", self.namespace);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        });
        done(&["create", "--raw", &path, "-f", "-"], &binding.to_string());
    }

    fn write_status(&self, kind: &str, path: &str, name: &str, change: &dyn Fn(&mut Value)) {
        let path = format!("{path}/namespaces/{}/{kind}s/{name}/status", self.namespace);
        eventually("the status is written", || {
            let mut object = self.get(&format!("{kind}/{name}"));
            change(&mut object);
            let output = run(&["replace", "--raw", &path, "-f", "-"], &object.to_string());
            let said = String::from_utf8_lossy(&output.stderr);
            let conflict = said.contains("the object has been modified");
            assert!(output.status.success() || conflict, "{said}");
            output.status.success()
        });
    }

    fn pod_status(&self, pod: &str, status: &Value) {
        self.write_status("pod", "/api/v1", pod, &|object| {
            for (key, value) in status.as_object().unwrap() {
                object["status"][key] = value.clone();
            }
        });
    }

    fn container(state: &Value, last: &Value, restarts: u32) -> Value {
        json!([{
            "name": "vm", "image": "x", "imageID": "x", "ready": false,
            "restartCount": restarts, "state": state, "lastState": last,
        }])
    }

    pub(crate) fn set_running(&self, pod: &str) {
        let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
        let containers = Self::container(&state, &json!({}), 0);
        self.pod_status(
            pod,
            &json!({"phase": "Running", "containerStatuses": containers}),
        );
    }

    /// The kubelet waits before it starts the launcher again.
    pub(crate) fn looping(&self, pod: &str, code: i32, why: &str) {
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        let last = json!({"terminated": {
            "exitCode": code, "message": why, "reason": "Error",
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:09Z",
        }});
        let containers = Self::container(&waiting, &last, 1);
        self.agent_says(pod, "Failed");
        self.pod_status(
            pod,
            &json!({"phase": "Running", "containerStatuses": containers}),
        );
    }

    pub(crate) fn ended(&self, pod: &str) {
        let state = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        let containers = Self::container(&state, &json!({}), 0);
        self.pod_status(
            pod,
            &json!({"phase": "Succeeded", "containerStatuses": containers}),
        );
        // The kubelet's last word: from now on only finalizers hold it.
        let pod = format!("pod/{pod}");
        self.kubectl(&[
            "delete",
            &pod,
            "--force",
            "--grace-period=0",
            "--wait=false",
        ]);
    }

    pub(crate) fn evicted(&self, pod: &str) {
        let now = k8s_openapi::jiff::Timestamp::now();
        let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let status = json!({
            "phase": "Failed", "reason": "Evicted", "message": "no memory",
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}],
        });
        self.pod_status(pod, &status);
    }

    /// A VM whose launcher runs, and whose agent says so; its pod.
    pub(crate) fn running(&self, name: &str) -> Value {
        let pod = self.eventually(&format!("pod/{name}"), |pod| {
            pod["metadata"]["uid"].is_string()
        });
        self.run_on_a_node(name);
        self.set_running(name);
        self.agent_says(name, "Running");
        pod
    }

    pub(crate) fn agent_says(&self, vm: &str, phase: &str) {
        self.write_status("vm", "/apis/disklet.io/v1alpha1", vm, &|object| {
            object["status"]["phase"] = json!(phase);
            object["status"]["node"] = json!("somewhere");
            let ready = json!({
                "type": "Ready", "status": "False", "reason": "Test", "message": "by hand",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let conditions = object["status"]["conditions"].as_array().cloned();
            let mut conditions = conditions.unwrap_or_default();
            conditions.retain(|condition| condition["type"] != "Ready");
            conditions.push(ready);
            object["status"]["conditions"] = json!(conditions);
        });
    }

    /// What the agent does when everything is freed.
    pub(crate) fn agent_lets_go(&self, pod: &str) {
        self.write_status("pod", "/api/v1", pod, &|object| {
            object["metadata"]["finalizers"] = json!([]);
        });
    }

    pub(crate) fn lose_node(&self) {
        kubectl(&["delete", "node", &self.node]);
    }

    pub(crate) fn claim(&self, name: &str) {
        self.apply(
            &json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
                "spec": {
                    "storageClassName": "", "accessModes": ["ReadWriteOnce"],
                    "volumeName": format!("{}-{name}", self.namespace),
                    "resources": {"requests": {"storage": "1Mi"}},
                },
            })
            .to_string(),
        );
    }

    /// A class of this place, whose claims wait for their first pod.
    pub(crate) fn class_that_waits(&self) {
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": self.namespace, "labels": {"disklet.test/place": self.namespace}},
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
        });
        done(&["apply", "-f", "-"], &class.to_string());
    }

    pub(crate) fn claim_of_class(&self, name: &str) {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {
                "storageClassName": self.namespace, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Mi"}},
            },
        });
        self.apply(&claim.to_string());
    }

    pub(crate) fn volume(&self, name: &str, mut source: Value) {
        let volume = format!("{}-{name}", self.namespace);
        let spec = source.as_object_mut().unwrap();
        spec.insert("storageClassName".to_owned(), json!(""));
        spec.insert("accessModes".to_owned(), json!(["ReadWriteOnce"]));
        spec.insert("capacity".to_owned(), json!({"storage": "1Mi"}));
        spec.insert(
            "claimRef".to_owned(),
            json!({"namespace": self.namespace, "name": name}),
        );
        let object = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": volume, "labels": {"disklet.test/place": self.namespace}},
            "spec": spec,
        });
        done(&["apply", "-f", "-"], &object.to_string());
    }
}

impl Drop for Place {
    /// Nothing stays, even of a test that has failed half-way.
    fn drop(&mut self) {
        let namespace = self.namespace.as_str();
        for kind in ["vms", "pods", "pvc"] {
            let names = run(&["-n", namespace, "get", kind, "-o", "name"], "");
            for name in String::from_utf8_lossy(&names.stdout).lines() {
                let free = r#"{"metadata":{"finalizers":null}}"#;
                run(
                    &[
                        "-n",
                        namespace,
                        "delete",
                        name,
                        "--wait=false",
                        "--grace-period=0",
                        "--force",
                    ],
                    "",
                );
                run(
                    &["-n", namespace, "patch", name, "--type=merge", "-p", free],
                    "",
                );
            }
        }
        run(&["delete", "node", &self.node, "--ignore-not-found"], "");
        let label = format!("disklet.test/place={namespace}");
        run(
            &["delete", "pv,storageclass", "-l", &label, "--wait=false"],
            "",
        );
        run(&["delete", "namespace", namespace, "--wait=false"], "");
    }
}
