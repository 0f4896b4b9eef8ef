# shellcheck shell=bash
# The control plane: etcd, API server, controller manager, scheduler, and a kube-proxy
# by which the API server reaches webhooks at their Services. Sourced.

ETC=/etc/kubernetes

control_plane_configure() {
    local own=$DIR/$CONTROL_PLANE/etc/kubernetes name
    [[ ! -e $own/audit.yaml ]] || return 0
    certificates_to "$CONTROL_PLANE" ca sa tokens apiserver apiserver-kubelet controller-manager scheduler proxy
    for name in controller-manager scheduler proxy; do
        kubeconfig "$name" "$ETC/pki" >"$own/$name.conf"
    done
    mkdir -p "$DIR/$CONTROL_PLANE/var/log/kubernetes" "$DIR/$CONTROL_PLANE/log"
    ln -sfn "../var/log/kubernetes/audit.log" "$DIR/$CONTROL_PLANE/log/audit.log"
    audit_policy >"$own/audit.yaml"
}

# Every write, whoever it is by, and what Pods read. What the cluster's own parts read
# would only fill the disk. One line per request, when it is answered.
audit_policy() {
    cat <<'EOT'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
- {level: None}
EOT
}

control_plane_start() {
    local pki=$ETC/pki
    part_start "$CONTROL_PLANE" etcd etcd --name=etcd --data-dir=/var/lib/etcd --unsafe-no-fsync=true \
        --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
        --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
        --initial-cluster=etcd=http://127.0.0.1:2380
    part_start "$CONTROL_PLANE" apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
        --advertise-address="$MASTER_ADDRESS" --secure-port=6443 --service-cluster-ip-range="$SERVICES" \
        --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
        --client-ca-file="$pki/ca.crt" --token-auth-file="$pki/tokens.csv" \
        --authorization-mode=Node,RBAC --allow-privileged=true \
        --enable-admission-plugins=NodeRestriction,MutatingAdmissionWebhook,ValidatingAdmissionWebhook \
        --feature-gates="$GATES" --service-account-issuer=https://kubernetes.default.svc \
        --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
        --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
        --kubelet-client-certificate="$pki/apiserver-kubelet.crt" --kubelet-client-key="$pki/apiserver-kubelet.key" \
        --audit-policy-file="$ETC/audit.yaml" --audit-log-path=/var/log/kubernetes/audit.log
    wait_for 60 "$CONTROL_PLANE" apiserver 'the API server answers' kubectl get --raw /readyz
    # A claim binds within a second instead of fifteen.
    part_start "$CONTROL_PLANE" controller-manager kube-controller-manager "${CALLER[@]}" --secure-port=10257 \
        --kubeconfig="$ETC/controller-manager.conf" --authentication-kubeconfig="$ETC/controller-manager.conf" \
        --authorization-kubeconfig="$ETC/controller-manager.conf" --feature-gates="$GATES" \
        --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" \
        --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
        --use-service-account-credentials=true --controllers='*' --pvclaimbinder-sync-period=1s \
        --flex-volume-plugin-dir="$FLEXVOLUMES"
    part_start "$CONTROL_PLANE" scheduler kube-scheduler "${CALLER[@]}" --secure-port=10259 \
        --kubeconfig="$ETC/scheduler.conf" --authentication-kubeconfig="$ETC/scheduler.conf" \
        --authorization-kubeconfig="$ETC/scheduler.conf"
    # What this computer sends to a Service comes back through here, too.
    proxy_start "$CONTROL_PLANE" "$MASTER_ADDRESS" --masquerade-all
}
# Tokens of Pods are for that Pod and expire, as on clusters of today.
GATES=BoundServiceAccountTokenVolume=true
CALLER=(--leader-elect=false --bind-address=127.0.0.1 --port=0 --kube-api-qps=100 --kube-api-burst=200)

# proxy_start MACHINE ADDRESS [OPTION…]: without its address it would look for a Node of
# that name, for half a minute if there is none. The limits of connection tracking are
# left alone; they are the whole computer's.
proxy_start() {
    local machine=$1 address=$2
    shift 2
    part_start "$machine" proxy kube-proxy --kubeconfig="$ETC/proxy.conf" --hostname-override="$machine" \
        --bind-address="$address" --proxy-mode=iptables --cluster-cidr="$CLUSTER_CIDR" --conntrack-max-per-core=0 \
        --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
        --iptables-min-sync-period=0s --metrics-bind-address=127.0.0.1 "$@"
}

# proxy_ready MACHINE ADDRESS: it has written its rules.
proxy_ready() { wait_for 60 "$1" proxy "kube-proxy on $1 is ready" proxy_is_ready "$2"; }
# In a shell of its own, which closes the connection.
proxy_is_ready() (
    exec 3<>"/dev/tcp/$1/10256" && printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3 && grep -q '200 OK' <&3
)

# Namespaces get an account from the controller manager; without it no Pod is let in.
# Custom resources go through code that built-in kinds do not.
control_plane_ready() {
    wait_for 60 "$CONTROL_PLANE" controller-manager 'the default account is there' kubectl get serviceaccount default
    proxy_ready "$CONTROL_PLANE" "$MASTER_ADDRESS"
    [[ ! -e $DIR/probed ]] || return 0
    kubectl apply -f "$KUBE_LIB/probe.yaml" >/dev/null
    wait_for 30 "$CONTROL_PLANE" apiserver 'a custom resource is taken' probe_create
    [[ $(kubectl get probe probe -o jsonpath='{.spec.any[1]}') == x ]] ||
        die 'the API server does not keep a custom resource as it was written'
    kubectl delete -f "$KUBE_LIB/probe.yaml" --wait=false >/dev/null
    touch "$DIR/probed"
}
probe_create() {
    kubectl apply -f - <<<'{"apiVersion": "disklet.test/v1", "kind": "Probe", "metadata": {"name": "probe"},
        "spec": {"any": [1, "x"]}}'
}
