#!/usr/bin/env bash
# The first process of a machine, inside its namespaces: makes a root of its own, and
# then only waits. Started by machine.sh, with the cluster's settings in the environment.
#
#   /usr, /etc     this computer's; what is written there is the machine's alone
#   /var           the machine's own, and so is the kubelet's root wherever it is
#   /run, /tmp     in memory
#   /dev           this computer's
#   /opt/kube      the programs of the cluster
#   DIR/shared     of this computer and all machines, under the same path
#
# No other mount of this computer is in it: a file system that somebody unmounts
# outside must not live on in here.
set -euo pipefail
NAME=$1
OWN=$DIR/$NAME
NEW=$OWN/root

# bind SOURCE TARGET [OPTION]
bind() {
    mkdir -p "$NEW$2"
    mount --bind "$1" "$NEW$2"
    [[ -z ${3:-} ]] || mount -o "remount,bind,$3" "$NEW$2"
}

# layer NAME: the directory /NAME with changes of its own.
layer() {
    mkdir -p "$NEW/$1"
    mount -t overlay overlay -o "lowerdir=/$1,upperdir=$OWN/$1,workdir=$OWN/$1.work" "$NEW/$1"
}

system_directories() {
    local path
    layer usr
    layer etc
    # Links into /usr, on a machine of today.
    for path in /bin /sbin /lib /lib32 /lib64 /libx32; do
        if [[ -L $path ]]; then
            cp -P "$path" "$NEW$path"
        elif [[ -d $path ]]; then
            bind "$path" "$path" ro
        fi
    done
    mkdir -p "$NEW"/{proc,sys,dev,run,tmp,home,mnt,srv,root,boot}
    mount -t proc proc "$NEW/proc"
    mount -t sysfs sysfs "$NEW/sys"
    mount --rbind /dev "$NEW/dev"
    mount -t tmpfs -o mode=0755 tmpfs "$NEW/run"
    mount -t tmpfs -o mode=1777 tmpfs "$NEW/tmp"
}

own_directories() {
    bind "$OWN/var" /var
    [[ $KUBELET_ROOT == /var/* ]] || bind "$OWN$KUBELET_ROOT" "$KUBELET_ROOT"
    bind "$OWN/flexvolume" "$FLEXVOLUMES"
    bind "$KUBE_BUILT" /opt/kube/kubernetes ro
    bind "$KUBE_DEBIAN" /opt/kube/debian ro
    bind "$KUBE_IMAGES" /opt/kube/images ro
    mkdir -p "$NEW$DIR/shared"
    # Mounts that this computer makes there arrive here.
    mount --rbind "$DIR/shared" "$NEW$DIR/shared"
}

# The hierarchies that this process is in, each with that as its root.
cgroups() {
    local controllers options top=$NEW/sys/fs/cgroup
    if [[ $CGROUP == 2 ]]; then
        mount -t cgroup2 cgroup2 "$top"
        return 0
    fi
    mount -t tmpfs -o mode=0755 tmpfs "$top"
    while IFS=: read -r _ controllers _; do
        options=$controllers
        [[ $controllers != name=* ]] || options=none,$controllers
        if [[ -z $controllers ]]; then
            [[ -d /sys/fs/cgroup/unified ]] || continue
            mkdir "$top/unified"
            mount -t cgroup2 cgroup2 "$top/unified"
        else
            mkdir "$top/${controllers#name=}"
            mount -t cgroup -o "$options" cgroup "$top/${controllers#name=}"
        fi
    done </proc/self/cgroup
}

# The kubelet sets these, but here they are everybody's: it gets files to write to.
harmless_sysctls() {
    local sysctl copy=$NEW/run/sysctl
    mkdir -p "$copy"
    for sysctl in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
        kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
        [[ -e /proc/sys/$sysctl ]] || continue
        cat "/proc/sys/$sysctl" >"$copy/${sysctl//\//.}"
        mount --bind "$copy/${sysctl//\//.}" "$NEW/proc/sys/$sysctl"
    done
}

mount -t tmpfs -o mode=0755 tmpfs "$NEW"
system_directories
own_directories
cgroups
harmless_sysctls
hostname "$NAME"
ip link set lo up

mkdir "$NEW/old"
cd "$NEW"
pivot_root . old
umount -l /old
rmdir /old
# What the kubelet mounts reaches the containers that ask for it, and theirs the kubelet.
mount --make-rshared /
touch /opt/kube/ready
exec /opt/kube/images/pause
