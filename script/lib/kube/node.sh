# shellcheck shell=bash
# The nodes: containerd, kubelet and kube-proxy. Sourced.

# node_configure I
node_configure() {
    local etc=$DIR/node$1/etc
    [[ ! -e $etc/containerd/config.toml ]] || return 0
    node_certificates "$1"
    certificates_to "node$1" "node$1" "node$1-server" proxy
    kubeconfig "node$1" "$ETC/pki" >"$etc/kubernetes/kubelet.conf"
    kubeconfig proxy "$ETC/pki" >"$etc/kubernetes/proxy.conf"
    kubelet_configuration "$1" >"$etc/kubernetes/kubelet.yaml"
    mkdir -p "$etc/cni/net.d" "$etc/containerd"
    pod_network "$1" >"$etc/cni/net.d/10-disklet.conflist"
    containerd_configuration >"$etc/containerd/config.toml"
}

# With as many requests a second as later kubelets are given: five are used up by a few pods that
# come and go, and then a pod's end is told late.
kubelet_configuration() {
    cat <<EOT
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $ETC/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $ETC/pki/node$1-server.crt
tlsPrivateKeyFile: $ETC/pki/node$1-server.key
cgroupDriver: cgroupfs
failSwapOn: false
makeIPTablesUtilChains: false
hairpinMode: none
resolvConf: /dev/null
evictionHard: {memory.available: 50Mi}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
syncFrequency: 10s
kubeAPIQPS: 50
kubeAPIBurst: 100
EOT
}

# Every pod has a link of its own to the node: all it sends is routed, and so passes
# by the rules of kube-proxy.
pod_network() {
    cat <<EOT
{"cniVersion": "0.4.0", "name": "disklet", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "subnet": "$(node_pods "$1")", "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
EOT
}

containerd_configuration() {
    cat <<EOT
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  # Root may lack the right to lower it.
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/kube/debian/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
EOT
}

# node_start I
node_start() {
    local node=node$1
    part_start "$node" containerd containerd
    wait_for 30 "$node" containerd 'containerd answers' machine_run "$node" ctr version
    [[ -e $DIR/$node/images ]] || images_load "$node" "$KUBE_IMAGES/pause.tar" "$KUBE_IMAGES/busybox.tar"
    touch "$DIR/$node/images"
    part_start "$node" kubelet kubelet --config="$ETC/kubelet.yaml" --kubeconfig="$ETC/kubelet.conf" \
        --hostname-override="$node" --node-ip="$(node_address "$1")" --root-dir="$KUBELET_ROOT" \
        --container-runtime=remote --container-runtime-endpoint=unix:///run/containerd/containerd.sock \
        --pod-infra-container-image="$PAUSE_IMAGE" --volume-plugin-dir="$FLEXVOLUMES" --v=2
    proxy_start "$node" "$(node_address "$1")"
}

# images_load MACHINE FILE…: from this computer, as they may be anywhere.
images_load() {
    local machine=$1 file
    shift
    for file; do
        machine_run "$machine" ctr --namespace k8s.io images import - <"$file" >/dev/null ||
            die "the image in $file was not loaded on $machine"
    done
}

# node_ready I
node_ready() {
    wait_for 90 "node$1" kubelet "node$1 is ready" node_is_ready "node$1"
    proxy_ready "node$1" "$(node_address "$1")"
}
# It stays so for a while when the kubelet is gone, which therefore is asked as well.
node_is_ready() {
    kubectl get --raw "/api/v1/nodes/$1/proxy/healthz" &&
        [[ $(kubectl get node "$1" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}') == True ]]
}
