//! Pods that others make: the templates of Deployments and their like, read as the pods
//! that will be made of them.

use crate::diag::{Diagnostics, Pos};
use crate::names::Namespace;
use crate::yaml::{Entry, Node, Value, View};

use super::{Claim, Objects, VmPod, insert_once, pod};

/// The kinds, their groups, and the way to the template.
const MAKERS: [(&str, &str, &[&str]); 7] = [
    (
        "CronJob",
        "batch",
        &["spec", "jobTemplate", "spec", "template"],
    ),
    ("DaemonSet", "apps", &["spec", "template"]),
    ("Deployment", "apps", &["spec", "template"]),
    ("Job", "batch", &["spec", "template"]),
    ("ReplicaSet", "apps", &["spec", "template"]),
    ("ReplicationController", "", &["spec", "template"]),
    ("StatefulSet", "apps", &["spec", "template"]),
];
/// What is put behind it has room in a name of 253.
const LONGEST_NAME: usize = 200;

/// The template of the VM pods that an object has others make, if it has any.
pub(crate) fn vm_template<'n>(object: &View<'n>) -> Option<View<'n>> {
    let text = |key: &str| object.node.get(key)?.as_str();
    let (kind, version) = (text("kind")?, text("apiVersion")?);
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let mut makers = MAKERS.iter();
    let (_, _, path) = makers.find(|(its, of, _)| *its == kind && *of == group)?;
    let quiet = &mut Diagnostics::default();
    let template = path
        .iter()
        .try_fold(object.clone(), |view, key| view.fields(quiet)?.get(key));
    template.filter(|template| pod::is_vm(template.node))
}

impl Objects {
    /// Objects of which the pods that others make are read, too, as pods.
    #[must_use]
    pub fn with_templates() -> Self {
        Self {
            has_templates: true,
            ..Self::default()
        }
    }

    /// Reads the VM pods that an object has others make; false if it has none.
    pub(super) fn read_template(
        &mut self,
        object: &View<'_>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) -> bool {
        let Some(template) = vm_template(object).filter(|_| self.has_templates) else {
            return false;
        };
        let meta = object.node.get("metadata");
        let text = |key: &str| meta.and_then(|meta| meta.get(key)?.as_str());
        let namespace = text("namespace")
            .and_then(|it| Namespace::parse(it).ok())
            .unwrap_or_else(|| namespace.clone());
        let kind = object
            .node
            .get("kind")
            .and_then(Node::as_str)
            .unwrap_or_default();
        let maker = text("name").or(text("generateName")).unwrap_or("made");
        let maker: String = maker.chars().take(LONGEST_NAME).collect();
        // Those of a StatefulSet are numbered. Nobody knows the others' names yet.
        let name = match kind {
            "StatefulSet" => format!("{maker}-0"),
            _ => format!("{maker}-{}", kind.to_ascii_lowercase()),
        };
        let mut node = template.node.clone();
        set(
            &mut node,
            &["metadata", "name"],
            text_node(&name, template.node.pos),
        );
        set(
            &mut node,
            &["metadata", "namespace"],
            text_node(namespace.as_str(), template.node.pos),
        );
        if kind == "StatefulSet" {
            self.read_claims(object, &name, &namespace, &mut node, diags);
        }
        let view = View {
            node: &node,
            place: template.place.clone(),
        };
        if let Some(mut made) = VmPod::read(&view, &namespace, diags) {
            made.maker = Some(format!("{kind} {namespace}/{maker}"));
            self.vm_pods.push(made);
        }
        true
    }

    /// A StatefulSet has claims made for each of its pods, and puts them into the pod.
    fn read_claims(
        &mut self,
        object: &View<'_>,
        pod: &str,
        namespace: &Namespace,
        node: &mut Node,
        diags: &mut Diagnostics,
    ) {
        let quiet = &mut Diagnostics::default();
        let spec = object
            .fields(quiet)
            .and_then(|mut it| it.fields("spec", quiet));
        let templates = spec.map(|mut spec| spec.items("volumeClaimTemplates", quiet));
        for template in templates.into_iter().flatten() {
            let name = template
                .node
                .get("metadata")
                .and_then(|meta| meta.get("name")?.as_str());
            let Some(name) = name else { continue };
            let (pos, claim) = (template.node.pos, format!("{name}-{pod}"));
            let mut made = template.node.clone();
            set(&mut made, &["metadata", "name"], text_node(&claim, pos));
            let view = View {
                node: &made,
                place: template.place.clone(),
            };
            insert_once(
                &mut self.claims,
                Claim::read(&view, namespace, diags),
                "PersistentVolumeClaim",
                diags,
            );
            let mut volume = map_node(pos);
            set(&mut volume, &["name"], text_node(name, pos));
            set(
                &mut volume,
                &["persistentVolumeClaim", "claimName"],
                text_node(&claim, pos),
            );
            put_volume(node, name, volume);
        }
    }
}

/// In the place of one that has its name.
fn put_volume(pod: &mut Node, name: &str, volume: Node) {
    let mut volumes = match pod.get("spec").and_then(|spec| spec.get("volumes")) {
        Some(Node {
            value: Value::Seq(volumes),
            ..
        }) => volumes.clone(),
        _ => Vec::new(),
    };
    let is_it = |other: &Node| other.get("name").and_then(Node::as_str) == Some(name);
    match volumes.iter().position(is_it) {
        Some(at) => volumes[at] = volume,
        None => volumes.push(volume),
    }
    let node = Node {
        value: Value::Seq(volumes),
        pos: pod.pos,
    };
    set(pod, &["spec", "volumes"], node);
}

fn text_node(text: &str, pos: Pos) -> Node {
    Node {
        value: Value::Str(text.into()),
        pos,
    }
}

fn map_node(pos: Pos) -> Node {
    Node {
        value: Value::Map(Vec::new()),
        pos,
    }
}

/// Puts a value at a path, with whatever mappings there are to be on the way.
fn set(node: &mut Node, path: &[&str], value: Node) {
    let Some((key, rest)) = path.split_first() else {
        *node = value;
        return;
    };
    let pos = node.pos;
    if !matches!(node.value, Value::Map(_)) {
        *node = map_node(pos);
    }
    let Value::Map(entries) = &mut node.value else {
        return;
    };
    let at = entries.iter().position(|entry| &*entry.key == *key);
    let at = at.unwrap_or_else(|| {
        entries.push(Entry {
            key: (*key).into(),
            key_pos: pos,
            node: map_node(pos),
        });
        entries.len() - 1
    });
    set(&mut entries[at].node, rest, value);
}
