# shellcheck shell=bash
# Machines: what stands for a computer of the cluster, the control plane's or a
# node's. Sourced; DIR is the cluster's directory.
#
# A machine is a set of namespaces (processes, mounts, network, hostname, cgroups)
# whose first process does nothing. With that one the kernel ends all others and
# drops every mount and network, so nothing remains, however a test ends. The parts
# of Kubernetes are started in it one by one, and can be killed one by one.
#
# All of a machine is below DIR/MACHINE: its /var, what is written to its /usr and
# /etc (which else are this computer's own), the marks of its processes, its logs.

# Seen from inside; see machine_init.sh.
MACHINE_PATH=/opt/kube/kubernetes/bin:/opt/kube/debian/usr/bin:/opt/kube/debian/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin

# machine_start MACHINE: returns when parts can be started in it.
machine_start() {
    local own=$DIR/$1 first i
    ! machine_lives "$1" || return 0
    # Whatever is left of one that was killed.
    machine_stop "$1"
    mkdir -p "$own"/{root,usr,usr.work,etc,etc.work,flexvolume,log} \
        "$own"/var/{cache,lib,log,tmp} "$own$KUBELET_ROOT"
    ln -sfn /run "$own/var/run"
    cgroups_make "$1"
    (
        close_lock
        cgroups_join "$1"
        exec setsid unshare --mount --pid --net --ipc --uts --cgroup --kill-child --propagation slave \
            bash "$KUBE_LIB/machine_init.sh" "$1"
    ) >"$own/log/machine.log" 2>&1 </dev/null &
    process_mark "$!" >"$own/machine.pid"
    for ((i = 0; i < 200; i++)); do
        first=$(machine_pid "$1")
        if [[ -e /proc/${first}/root/opt/kube/ready ]]; then
            cgroups_settle "$1"
            return 0
        fi
        machine_lives "$1" || break
        sleep 0.05
    done
    tail -n 20 "$own/log/machine.log" >&2
    die "the machine $1 did not come up"
}

machine_lives() { process_lives "$DIR/$1/machine.pid"; }

# machine_pid MACHINE: its first process, as it is called out here.
machine_pid() { child_of "$DIR/$1/machine.pid"; }

# child_of FILE: the first child of the process whose mark is in FILE; 0 if none.
child_of() {
    local pid child=''
    read -r pid _ 2>/dev/null <"$1" || true
    read -r child _ 2>/dev/null <"/proc/${pid:-0}/task/${pid:-0}/children" || true
    echo "${child:-0}"
}

# machine_run MACHINE COMMAND…: in the machine, with this shell's input and output.
machine_run() {
    local machine=$1
    shift
    machine_lives "$machine" || die "the machine $machine does not run"
    (
        cgroups_join "$machine" init
        exec nsenter --target "$(machine_pid "$machine")" --mount --pid --net --ipc --uts --cgroup \
            env -i PATH="$MACHINE_PATH" HOME=/root TERM="${TERM:-dumb}" "$@"
    )
}

# machine_ip MACHINE ARGUMENT…: ip(8) in the machine's network.
machine_ip() {
    local machine=$1
    shift
    nsenter --net="/proc/$(machine_pid "$machine")/ns/net" ip "$@"
}

# part_start MACHINE PART COMMAND…: starts a part that does not run.
part_start() {
    local machine=$1 part=$2
    shift 2
    ! part_lives "$machine" "$part" || return 0
    # An exec of `nsenter` by `setsid`: the part itself is its only child.
    (
        close_lock
        cgroups_join "$machine" init
        exec setsid nsenter --target "$(machine_pid "$machine")" --mount --pid --net --ipc --uts --cgroup \
            env -i PATH="$MACHINE_PATH" HOME=/root "$@"
    ) >>"$DIR/$machine/log/$part.log" 2>&1 </dev/null &
    process_mark "$!" >"$DIR/$machine/$part.pid"
}

part_lives() { process_lives "$DIR/$1/$2.pid"; }

# part_kill MACHINE PART SIGNAL: returns when it has ended.
part_kill() {
    local pid i
    part_lives "$1" "$2" || die "$2 does not run on $1"
    pid=$(child_of "$DIR/$1/$2.pid")
    ((pid == 0)) || kill "-$3" "$pid"
    for ((i = 0; i < 400; i++)); do
        part_lives "$1" "$2" || return 0
        sleep 0.05
    done
    die "$2 on $1 goes on after SIG$3"
}

# parts MACHINE: the names of those that were started there, one a line.
parts() {
    local file
    for file in "$DIR/$1"/*.pid; do
        file=${file##*/}
        [[ $file == '*.pid' || $file == machine.pid ]] || echo "${file%.pid}"
    done
}

# machine_stop MACHINE: returns when nothing of it runs. Its files stay.
machine_stop() {
    local part first i
    if machine_lives "$1"; then
        first=$(machine_pid "$1")
        # With this one the kernel ends all others. What entered from out here, such as
        # the parts' parents, follows.
        ((first == 0)) || kill -KILL "$first" 2>/dev/null || true
    fi
    for ((i = 0; i < 400; i++)); do
        if ! machine_lives "$1" && cgroups_empty "$1"; then
            for part in $(parts "$1"); do rm -f "$DIR/$1/$part.pid"; done
            rm -f "$DIR/$1/machine.pid"
            cgroups_remove "$1"
            return 0
        fi
        sleep 0.05
    done
    die "processes of the machine $1 do not end: $(cgroups_processes "$1" | paste -sd ' ')"
}

# machines: the names of those that were made, one a line, the control plane first.
machines() {
    local i
    [[ ! -d $DIR/$CONTROL_PLANE ]] || echo "$CONTROL_PLANE"
    for ((i = 1; i <= NODES; i++)); do
        [[ ! -d $DIR/node$i ]] || echo "node$i"
    done
}
CONTROL_PLANE=control-plane
