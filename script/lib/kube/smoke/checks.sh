#!/usr/bin/env bash
# The parts of script/lib/kube/smoke.sh, which says what they are for.
#
#   script/lib/kube/smoke/checks.sh PART    with the environment of `script/kube env`
set -euo pipefail
shopt -s inherit_errexit
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../common.sh"
help_wanted "${1:---help}"
PATH=$PATH:/usr/sbin:/sbin
PARTS=$ROOT/script/lib/kube/smoke

# shellcheck source=script/lib/kube/smoke/ends.sh
source "$PARTS/ends.sh"

kube() { "$ROOT/script/kube" "$@"; }

# expect WHAT WANTED GOT
expect() { [[ $3 == "$2" ]] || die "$1: expected '$2', got '$3'"; }

# shortly COMMAND…: tries for some seconds.
shortly() {
    local end=$((SECONDS + 30))
    until "$@"; do
        ((SECONDS < end)) || die "waited in vain for: $*"
        sleep 0.2
    done
}

ready() { kubectl wait --for=condition=Ready --timeout=60s "$@"; }
pod_address() { kubectl get pod "$1" -o jsonpath='{.status.podIP}'; }
container() { kubectl get pod "$1" -o jsonpath='{.status.containerStatuses[0].containerID}'; }

up_again() {
    local before after
    before=$(cat "$DISKLET_KUBE_DIR"/*/*.pid)
    kube up
    after=$(cat "$DISKLET_KUBE_DIR"/*/*.pid)
    expect 'processes after a second up' "$before" "$after"
    kube status
}

pods() {
    kubectl apply -f "$PARTS/pods.yaml"
    ready pod/talk pod/serve
    shortly logged talk 'I am talk'
    expect exec hello "$(kubectl exec talk -- echo hello)"
    # `attach` goes on until the container ends, so it is cut off.
    (echo word && sleep 2) | timeout 3 kubectl attach -i talk || true
    shortly logged talk 'told: word'
}
logged() { kubectl logs "$1" | grep -qxF "$2"; }

# An image of two layers, of which the upper one counts.
images() {
    local own=$DISKLET_KUBE_DIR/image
    mkdir -p "$own"/{lower,upper}/etc "$own/lower/bin"
    cp "$(command -v busybox)" "$own/lower/bin/busybox"
    ln -s busybox "$own/lower/bin/cat"
    echo lower >"$own/lower/etc/word"
    echo upper >"$own/upper/etc/word"
    "$ROOT/script/lib/kube/image.py" --name disklet.test/smoke:1 --gzip --entrypoint cat --cmd /etc/word \
        --env PATH=/bin --user 1000 --output "$own/image.tar" "$own/lower" "$own/upper"
    kube load "$own/image.tar"
    kubectl run image --image=disklet.test/smoke:1 --restart=Never
    shortly logged image upper
}

# From pods, from nodes, from where the API server is, and from here.
services() {
    local service pod machine
    service=$(kubectl get service serve -o jsonpath='{.spec.clusterIP}')
    pod=$(pod_address serve)
    shortly serves "$service" 80
    expect 'the pod from here' serve "$(fetch "$pod" 8080)"
    expect 'the Service from a pod' serve "$(fetch_in talk "$service" 80)"
    expect 'the Service from itself' serve "$(fetch_in serve "$service" 80)"
    for machine in control-plane node1 node2; do
        expect "the Service from $machine" serve "$(kube exec "$machine" timeout 5 bash -c "$FETCH" "$service" 80)"
    done
    # It speaks TLS, and says so in plain words to who does not.
    expect 'the API server from a pod' 'Client sent an HTTP request to an HTTPS server.' \
        "$(fetch_in talk "$(kubectl get service kubernetes -o jsonpath='{.spec.clusterIP}')" 443)"
    forwarded
}
# shellcheck disable=SC2016 # the inner shell's
FETCH='exec 3<>"/dev/tcp/$0/$1" && printf "GET / HTTP/1.0\r\n\r\n" >&3 && tail -n 1 <&3'
# Debian's static busybox has a wget that faults.
fetch_in() { printf 'GET / HTTP/1.0\r\n\r\n' | kubectl exec -i "$1" -- nc -w 3 "$2" "$3" | tail -n 1; }
fetch() { timeout 5 bash -c "$FETCH" "$@"; }
serves() { [[ $(fetch "$@") == serve ]]; }

forwarded() {
    local port pid
    kubectl port-forward pod/serve :8080 >"$DISKLET_KUBE_DIR/forward" &
    pid=$!
    shortly grep -q '^Forwarding' "$DISKLET_KUBE_DIR/forward"
    port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\).*/\1/p' "$DISKLET_KUBE_DIR/forward")
    expect 'the pod through port-forward' serve "$(fetch 127.0.0.1 "$port")"
    kill "$pid"
}

# A Pod's token is known as that Pod's, and may do nothing by itself.
tokens() {
    local review
    review=$(kubectl exec talk -- cat /var/run/secrets/kubernetes.io/serviceaccount/token |
        jq -R '{apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", spec: {token: .}}' |
        kubectl create -o json -f -)
    expect 'the name in the token' talk "$(jq -r '.status.user.extra["authentication.kubernetes.io/pod-name"][0]' <<<"$review")"
    expect 'may a Pod read Secrets' no \
        "$(kubectl auth can-i get secrets --as=system:serviceaccount:default:default || true)"
}

volumes() {
    local device flex=$DISKLET_KUBE_DIR/node1/flexvolume/smoke~driver
    local calls=$DISKLET_KUBE_DIR/node1/var/smoke-calls
    mkdir -p "$flex"
    # Under another name first: the kubelet takes a driver as soon as it is there.
    install "$PARTS/driver" "$flex/.driver" && mv "$flex/.driver" "$flex/driver"
    truncate -s 8M "$DISKLET_KUBE_DIR/shared/disk"
    echo 'I am a device' | dd of="$DISKLET_KUBE_DIR/shared/disk" conv=notrunc status=none
    device=$(losetup --find --show "$DISKLET_KUBE_DIR/shared/disk")
    volumes_manifest "$device" | kubectl apply -f -
    shortly bound
    ready pod/volumes
    shortly logged volumes 'I am a device'
    shortly logged volumes flexible
    expect 'a file in the claim' written "$(cat "$DISKLET_KUBE_DIR/node1/var/smoke/file")"
    kubectl delete --wait pod/volumes
    shortly grep -q '^unmount ' "$calls"
    expect 'calls of the driver' 'init mount unmount' "$(cut -d ' ' -f 1 "$calls" | uniq | paste -sd ' ')"
    # The cluster is to be ended while it has all of them in use.
    volumes_manifest "$device" | kubectl apply -f -
    ready pod/volumes
}
volumes_manifest() { sed "s#@DEVICE@#$1#" "$PARTS/volumes.yaml"; }
bound() { [[ $(kubectl get pvc -o 'jsonpath={.items[*].status.phase}') == 'Bound Bound' ]]; }

# Mounts cross over in both directions; the node's processes and cgroups are seen.
privileged() {
    kubectl apply -f "$PARTS/privileged.yaml"
    ready pod/privileged
    kube exec node1 sh -c 'mkdir -p /var/smoke-mounts/one && mount -t tmpfs one /var/smoke-mounts/one && touch /var/smoke-mounts/one/seen'
    kubectl exec privileged -- ls /in/one/seen
    kubectl exec privileged -- sh -c 'mkdir -p /both/two && mount -t tmpfs two /both/two && touch /both/two/seen'
    kube exec node1 ls /var/smoke-mounts/two/seen
    mkdir "$DISKLET_KUBE_DIR/shared/three"
    mount -t tmpfs three "$DISKLET_KUBE_DIR/shared/three"
    touch "$DISKLET_KUBE_DIR/shared/three/seen"
    kube exec node2 ls "$DISKLET_KUBE_DIR/shared/three/seen"
    kubectl exec privileged -- pidof kubelet
    moved_between_cgroups
}

# A process can be moved into the cgroups of another pod, from inside a pod.
moved_between_cgroups() {
    local uid
    uid=$(kubectl get pod talk -o jsonpath='{.metadata.uid}')
    # shellcheck disable=SC2016 # the inner shell's
    kubectl exec privileged -- sh -c '
        target=$(grep -ls "$0" /proc/[0-9]*/cgroup | cut -d / -f 3 | head -n 1)
        sleep 30 </dev/null >/dev/null 2>&1 & stray=$!
        while IFS=: read -r _ name path; do
            top=/cgroup/${name#name=}
            if [ -z "$name" ] && [ -d /cgroup/unified ]; then top=/cgroup/unified; fi
            if [ -d "$top$path" ]; then echo $stray >"$top$path/cgroup.procs" || exit 1; fi
        done </proc/$target/cgroup
        cat /proc/$stray/cgroup
        [ "$(cat /proc/$target/cgroup)" = "$(cat /proc/$stray/cgroup)" ]
        code=$?
        kill $stray
        exit $code' "$uid"
}

webhook() {
    local own=$DISKLET_KUBE_DIR/webhook
    mkdir "$own"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=webhook \
        -addext subjectAltName=DNS:webhook.default.svc -keyout "$own/tls.key" -out "$own/tls.crt"
    kubectl create secret generic webhook --from-file="$own/tls.key" --from-file="$own/tls.crt" --from-file="$PARTS/hook.py"
    kubectl label namespace default smoke=yes
    sed "s#@CA@#$(base64 -w 0 "$own/tls.crt")#" "$PARTS/webhook.yaml" | kubectl apply -f -
    ready pod/webhook
    shortly kubectl create configmap allowed
    if kubectl create configmap forbidden 2>"$own/said"; then die 'the webhook was not asked'; fi
    grep -q 'the hook says no' "$own/said"
    kubectl delete validatingwebhookconfiguration smoke
}

"$1"
