# shellcheck shell=bash
# Parts of script/lib/kube/smoke.sh in which something ends. Sourced by checks.sh.

# What was killed comes back with another `up`, and containers never noticed.
killed_parts() {
    local before
    before=$(container talk)
    kube kill node1 kubelet
    kube kill node1 containerd
    kube kill control-plane apiserver
    kube kill control-plane etcd TERM
    if kube status >/dev/null 2>&1; then die 'status is content with dead parts'; fi
    kube up
    expect 'the container after the kills' "$before" "$(container talk)"
    expect exec again "$(kubectl exec talk -- echo again)"
}

# A node that loses power comes back, and runs its pods anew.
killed_node() {
    local before
    before=$(container serve)
    kube kill node2 machine
    kube up
    shortly serves_anew "$before"
}
serves_anew() { [[ $(container serve) != "$1" ]] && serves "$(pod_address serve)" 8080; }

audit() {
    local log=$DISKLET_KUBE_DIR/control-plane/log/audit.log
    jq -es 'any(.[]; .verb == "create" and .objectRef.resource == "pods" and (.userAgent | startswith("kubectl/")))' "$log"
}

# Nothing is left of a cluster that was up.
down() {
    local number loops
    loops=$(loops_on "$DISKLET_KUBE_DIR" smoke-device)
    [[ -n $loops ]] || die 'there is no loop device that could be left'
    number=$(sed -n 's/^NUMBER=//p' "$DISKLET_KUBE_DIR/settings")
    kube down
    # From a file, or it would find itself.
    nothing processes "$(grep -lsFf <(echo "$DISKLET_KUBE_DIR") /proc/[0-9]*/cmdline || true)"
    nothing mounts "$(grep -hsF "$DISKLET_KUBE_DIR" /proc/[0-9]*/mountinfo | sort -u)"
    nothing cgroups "$(find /sys/fs/cgroup -name "disklet-kube-$number")"
    nothing links "$(ip -o link | grep -F "disklet$number" || true)"
    nothing routes "$(ip route | grep -F "10.$number." || true)"
    nothing 'loop devices' "$(loops_on . | grep -xF "$loops" || true)"
    nothing files "$(ls -d "$DISKLET_KUBE_DIR" 2>/dev/null || true)"
}
# loops_on WORD…: those whose file has such a word in its name. What is behind one is told
# by inode: the name changes when the file is gone.
loops_on() {
    losetup --list --noheadings --output NAME,BACK-INO,BACK-MAJ:MIN,BACK-FILE | grep "${@/#/-e}" |
        awk '{ print $1, $2, $3 }'
}
nothing() { [[ -z $2 ]] || die "left are $1: $2"; }
