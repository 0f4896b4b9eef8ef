#!/usr/bin/env bash
# Runs a command beside a real cluster in which Disklet is installed, for tests that want one.
#
#   script/lib/kube/installed.sh [--nodes N] [--images DIR] COMMAND…
#
# The images are built from this clone (script/images), unless somebody has done that and has
# put them into DIR. COMMAND finds kubectl in PATH, and
# the cluster in KUBECONFIG and DISKLET_KUBE_DIR, also for `script/kube exec` and its like.
# DISKLET_KUBE_DIR/shared/disklet is a program for nodes; `virsh -c qemu:///system` reaches
# our libvirtd there.
#
# When COMMAND has succeeded, Disklet is uninstalled, of which nothing may remain; then
# the cluster ends. The exit code is COMMAND's, or 1 if something remains. Needs root.
set -euo pipefail
shopt -s inherit_errexit
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
cd "$ROOT"

# Whatever ends this script ends the cluster, too.
end() {
    local code=$?
    trap '' HUP INT TERM
    ((code == 0)) || show || true
    script/kube down
    rm -rf --one-file-system "$scratch"
    exit "$code"
}

install_disklet() {
    local node component
    "$disklet" install --replicas "$nodes" | kubectl apply -f - >/dev/null
    cp "$disklet" "$DISKLET_KUBE_DIR/shared/disklet"
    for node in $(kubectl get nodes -o name); do
        script/kube exec "${node#node/}" ln -sfn /run/disklet/libvirt /run/libvirt
    done
    for component in libvirt agent controller; do await "$component"; done
    # No node is the only one that has a controller.
    (($(controllers | sort -u | wc -l) == nodes)) || die "controllers are on $(controllers | xargs)"
}

controllers() {
    kubectl get pods -n disklet -l disklet.io/component=controller -o 'jsonpath={range .items[*]}{.spec.nodeName}{"\n"}{end}'
}

# `rollout status` knows nothing of pods that are replaced by hand.
await() {
    local pods=(pods -n disklet -l "disklet.io/component=$1") wanted=$nodes
    until (($(kubectl get "${pods[@]}" -o name | wc -l) == wanted)); do sleep 0.2; done
    kubectl wait --for=condition=Ready --timeout=180s "${pods[@]}"
}

# What was not told by a test may be told by these.
show() {
    local pod
    kubectl -n disklet get pods -o wide || return 0
    for pod in $(kubectl -n disklet get pods -o name || true); do
        heading "$pod"
        kubectl -n disklet logs --all-containers --tail=40 "$pod" || true
    done
}

of_tests() {
    kubectl get vms --all-namespaces -o name
    kubectl get pods --all-namespaces -l disklet.io/vm -o name
}

uninstall_disklet() {
    local left end=$((SECONDS + 120))
    # Namespaces of tests are still going, and VMs without a pod in them as well.
    until [[ -z $(of_tests) ]]; do
        ((SECONDS < end)) || die "left by tests: $(of_tests)"
        sleep 0.5
    done
    "$disklet" uninstall
    left=$(kubectl get "$OURS" --all-namespaces -l app.kubernetes.io/part-of=disklet -o name)
    left+=$(kubectl get nodes -l extraRuntime -o name)
    [[ -z $left ]] || die "left after uninstall: $left"
}
OURS=namespaces,customresourcedefinitions,clusterroles,clusterrolebindings,validatingwebhookconfigurations
OURS+=,mutatingwebhookconfigurations,runtimeclasses
OURS+=,deployments,daemonsets,pods,services,configmaps,serviceaccounts,roles,rolebindings

help_wanted "${1:---help}"
nodes=1 made=''
while [[ ${1:-} == --* ]]; do
    (($# >= 2)) || bad_usage "$1 lacks its value"
    case $1 in
        --nodes) nodes=$2 ;;
        --images) made=$2 ;;
        *) bad_usage "unknown argument $1" ;;
    esac
    shift 2
done
(($# > 0)) || bad_usage 'a command is wanted'
((EUID == 0)) || die 'a cluster needs root'
disklet=$CARGO_TARGET_DIR/debug/disklet
# A short path: sockets are below it.
scratch=$(mktemp -d /tmp/disklet-kube.XXXXXX)
export DISKLET_KUBE_DIR=$scratch/kube
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
if [[ -n $made ]]; then
    images=("$made"/disklet.tar "$made"/disklet-node.tar)
else
    mapfile -t images < <(script/images --output "$scratch")
    ((${#images[@]} == 2)) || die 'the images were not built'
fi
script/kube up --nodes "$nodes"
eval "$(script/kube env)"
script/kube load "${images[@]}"
install_disklet
"$@"
uninstall_disklet
