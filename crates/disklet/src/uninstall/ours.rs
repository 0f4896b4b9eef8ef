//! What an installation consists of, in the order in which it is removed.

/// An object of ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ours {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) name: &'static str,
    pub(super) is_namespaced: bool,
}

const fn ours(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    name: &'static str,
    is_namespaced: bool,
) -> Ours {
    Ours {
        group,
        version: "v1",
        kind,
        plural,
        name,
        is_namespaced,
    }
}

pub(super) const DEFINITION: Ours = ours(
    "apiextensions.k8s.io",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "vms.disklet.io",
    false,
);

const RBAC: &str = "rbac.authorization.k8s.io";

/// Says in which namespace an installation is.
pub(super) const BINDING: Ours = ours(
    RBAC,
    "ClusterRoleBinding",
    "clusterrolebindings",
    "disklet-controller",
    false,
);

/// First whoever acts, then what it acts by. The namespace comes after all of
/// them, and is not listed: it is removed only if it is ours.
pub(super) const ALL: [Ours; 22] = [
    ours(
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "disklet-webhook",
        false,
    ),
    ours(
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "disklet-webhook",
        false,
    ),
    ours(
        "node.k8s.io",
        "RuntimeClass",
        "runtimeclasses",
        "disklet",
        false,
    ),
    ours("", "Service", "services", "disklet-webhook", true),
    ours(
        "apps",
        "Deployment",
        "deployments",
        "disklet-controller",
        true,
    ),
    ours("apps", "DaemonSet", "daemonsets", "disklet-agent", true),
    ours("apps", "DaemonSet", "daemonsets", "disklet-libvirt", true),
    ours("", "ConfigMap", "configmaps", "disklet-config", true),
    ours(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "virtletimagemappings.virtlet.k8s",
        false,
    ),
    ours("", "Secret", "secrets", "disklet-webhook", true),
    ours(
        "coordination.k8s.io",
        "Lease",
        "leases",
        "disklet-controller",
        true,
    ),
    ours(
        RBAC,
        "RoleBinding",
        "rolebindings",
        "disklet-controller",
        true,
    ),
    ours(RBAC, "RoleBinding", "rolebindings", "disklet-agent", true),
    ours(RBAC, "Role", "roles", "disklet-controller", true),
    ours(RBAC, "Role", "roles", "disklet-agent", true),
    BINDING,
    ours(
        RBAC,
        "ClusterRoleBinding",
        "clusterrolebindings",
        "disklet-agent",
        false,
    ),
    ours(
        RBAC,
        "ClusterRole",
        "clusterroles",
        "disklet-controller",
        false,
    ),
    ours(RBAC, "ClusterRole", "clusterroles", "disklet-agent", false),
    ours(
        "",
        "ServiceAccount",
        "serviceaccounts",
        "disklet-controller",
        true,
    ),
    ours(
        "",
        "ServiceAccount",
        "serviceaccounts",
        "disklet-agent",
        true,
    ),
    ours(
        "",
        "ServiceAccount",
        "serviceaccounts",
        "disklet-libvirt",
        true,
    ),
];

/// Made by the controller while it runs, without a label.
pub(super) fn is_made_at_run_time(object: &Ours) -> bool {
    matches!(object.kind, "Secret" | "Lease")
}

/// Without it nobody ends VMs of a node.
pub(super) fn is_agent(object: &Ours) -> bool {
    object.kind == "DaemonSet" && object.name == "disklet-agent"
}
