# shellcheck shell=bash
# A cluster as a whole: its settings, how it comes and how it goes. Sourced by
# script/kube, which sets DIR.

# shellcheck source=script/lib/kube/programs.sh
source "$ROOT/script/lib/kube/programs.sh"
# shellcheck source=script/lib/kube/cgroups.sh
source "$KUBE_LIB/cgroups.sh"
# shellcheck source=script/lib/kube/machine.sh
source "$KUBE_LIB/machine.sh"
# shellcheck source=script/lib/kube/network.sh
source "$KUBE_LIB/network.sh"
# shellcheck source=script/lib/kube/certificates.sh
source "$KUBE_LIB/certificates.sh"
# shellcheck source=script/lib/kube/control_plane.sh
source "$KUBE_LIB/control_plane.sh"
# shellcheck source=script/lib/kube/node.sh
source "$KUBE_LIB/node.sh"

# Where kubelets look for drivers; DIR/nodeI/flexvolume out here.
FLEXVOLUMES=/usr/libexec/kubernetes/kubelet-plugins/volume/exec
# Read by the first process of a machine.
export DIR KUBELET_ROOT CGROUP FLEXVOLUMES KUBE_BUILT KUBE_DEBIAN KUBE_IMAGES
NUMBER='' NODES='' KUBELET_ROOT='' CGROUP=''
KUBE_LOCK=''

# cluster_lock: one command at a time changes a cluster.
cluster_lock() {
    while true; do
        mkdir -p "$DIR"
        chmod 0711 "$DIR"
        exec {KUBE_LOCK}<"$DIR"
        flock "$KUBE_LOCK"
        # Somebody may have ended the cluster while we waited.
        [[ ! $DIR -ef /proc/self/fd/$KUBE_LOCK ]] || return 0
        close_lock
    done
}
# What we start must not hold it.
close_lock() { [[ -z $KUBE_LOCK ]] || exec {KUBE_LOCK}<&-; }

cluster_exists() { [[ -s $DIR/settings ]]; }

cluster_load() {
    cluster_exists || die "there is no cluster in $DIR: script/kube up makes one"
    # shellcheck disable=SC1091 # written below
    source "$DIR/settings"
    network_names
}

cluster_save() {
    printf '%s=%q\n' NUMBER "$NUMBER" NODES "$NODES" KUBELET_ROOT "$KUBELET_ROOT" CGROUP "$CGROUP" >"$DIR/settings.new"
    mv "$DIR/settings.new" "$DIR/settings"
}

# cluster_up NODES KUBELET-ROOT, each of which may be empty: starts what does not run.
# Settings of a cluster that is there stay, except that it can get more nodes.
cluster_up() {
    local i from=$EPOCHREALTIME
    if cluster_exists; then
        cluster_load
        [[ ${2:-$KUBELET_ROOT} == "$KUBELET_ROOT" ]] ||
            die "the cluster in $DIR has the kubelet root $KUBELET_ROOT: script/kube down ends it"
        if ((${1:-0} > NODES)); then NODES=$1; fi
    else
        [[ -z $(ls -A "$DIR") ]] || die "$DIR is neither empty nor a cluster: name another directory"
        NODES=${1:-1} KUBELET_ROOT=${2:-/var/lib/kubelet} CGROUP=$(cgroup_version)
        network_claim
        network_names
    fi
    cluster_save
    shared_directory
    mkdir -p "$DIR/bin"
    kubectl_wrapper >"$DIR/bin/kubectl"
    chmod +x "$DIR/bin/kubectl"
    certificates
    control_plane_configure
    machine_start "$CONTROL_PLANE"
    network_control_plane
    for ((i = 1; i <= NODES; i++)); do
        node_configure "$i"
        machine_start "node$i"
        network_node "$i"
    done
    network_routes
    control_plane_start
    say "  control plane: $(elapsed_since "$from") s"
    for ((i = 1; i <= NODES; i++)); do node_start "$i"; done
    control_plane_ready
    for ((i = 1; i <= NODES; i++)); do
        node_ready "$i"
        say "  node$i: $(elapsed_since "$from") s"
    done
}

# What is mounted there later reaches the machines only if it is a mount by itself.
shared_directory() {
    mkdir -p "$DIR/shared"
    if ! mountpoint -q "$DIR/shared"; then
        mount --bind "$DIR/shared" "$DIR/shared"
        mount --make-private "$DIR/shared"
        mount --make-shared "$DIR/shared"
    fi
}

# The one in PATH keeps what it learns of the API below DIR, or a later cluster would
# be taken for this one. Plugins cannot have the option before their name.
kubectl_wrapper() {
    cat <<EOT
#!/bin/sh
if [ \$# -gt 0 ] && command -v "kubectl-\$1" >/dev/null; then
    exec '$KUBE_BUILT/bin/kubectl' "\$@"
fi
exec '$KUBE_BUILT/bin/kubectl' --cache-dir='$DIR/cache' "\$@"
EOT
}
kubectl() { KUBECONFIG=$DIR/kubeconfig "$DIR/bin/kubectl" --request-timeout=20s "$@"; }

# wait_for SECONDS MACHINE PART WHAT COMMAND…: until COMMAND succeeds. PART's log tells
# why it does not.
wait_for() {
    local end=$((SECONDS + $1)) machine=$2 part=$3 what=$4
    shift 4
    until "$@" >"$DIR/waiting" 2>&1; do
        if ((SECONDS >= end)) || ! part_lives "$machine" "$part"; then
            # What ends a part of Kubernetes is a line with F, before a long trace.
            grep '^F[0-9]' "$DIR/$machine/log/$part.log" | tail -n 3 >&2 || true
            tail -n 15 "$DIR/$machine/log/$part.log" "$DIR/waiting" >&2
            die "waited in vain until $what; the log is $DIR/$machine/log/$part.log, script/kube down ends the cluster"
        fi
        sleep 0.1
    done
}

# cluster_down: returns when nothing is left.
cluster_down() {
    local machine
    cluster_load
    for machine in $(machines); do machine_end "$machine"; done
    ip link delete "$HOST_LINK" 2>/dev/null || true
    cgroups_remove
    # What tests have left: loop devices first, which are not found by name once their
    # file has no path. One that is mounted goes with its mount.
    losetup --list --noheadings --output NAME,BACK-FILE | awk -v top="$DIR/" 'index($2, top) == 1 { print $1 }' |
        xargs -r losetup --detach
    findmnt -rno TARGET | awk -v top="$DIR/" 'index($0, top) == 1' | sort -r | while read -r mount; do
        umount -l "$mount"
    done
    rm -rf --one-file-system "$DIR"
}

# machine_end MACHINE: as machine_stop, and takes back its loop devices: those belong to
# the whole computer and would outlive it.
machine_end() {
    local loops=''
    # It alone makes new ones.
    ! part_lives "$1" kubelet || part_kill "$1" kubelet KILL
    ! machine_lives "$1" || loops=$(machine_loops "$1")
    machine_stop "$1"
    xargs -r losetup --detach <<<"$loops"
}

# Those of other machines are listed there, too, with names as these see them: its own
# are those whose files exist there, since the kubelet names them after pods' UIDs.
machine_loops() {
    # shellcheck disable=SC2016 # the inner shell's
    machine_run "$1" sh -c 'losetup --list --noheadings --output NAME,BACK-FILE | while read -r loop file; do
            case $file in "$1"/*) [ ! -e "$file" ] || echo "$loop" ;; esac
        done' - "$KUBELET_ROOT"
}
