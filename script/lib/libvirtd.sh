#!/usr/bin/env bash
# Runs a command with a private libvirtd beside it, for tests that want the real one.
#
#   script/lib/libvirtd.sh COMMAND…
#   script/lib/libvirtd.sh --none COMMAND…    without a daemon; what COMMAND starts ends with it
#
# COMMAND finds the daemon's address in DISKLET_TEST_LIBVIRT_URI, and in
# DISKLET_TEST_RUN_DIR a directory whose mounts the daemon sees, too. It runs in
# a mount namespace of its own, so that no mount of a test outlives it. Its exit
# code is passed on. Scripts may source this file instead and call
# `libvirtd_start` and `libvirtd_stop`; several daemons can run at once.
#
# The daemon is Debian's own libvirtd with its compiled-in paths, yet it shares
# nothing with one that the system runs: it lives in mount, pid, network and ipc
# namespaces of its own, where tmpfs covers every directory that libvirt writes
# to or reads its configuration from. Only the directory of its sockets is also
# visible outside. Its state is in memory and all its processes end with the
# first process of the namespace, so nothing remains, however the test ends
# (after a kill -9 of the test itself: one directory in /tmp).
#
# Its network is its own too, and empty: enough to define domains. A VM started
# here reaches neither the machine's network nor its loopback.
#
# LIBVIRTD_QEMU_USER=NAME has QEMU run as that user instead of root.
# LIBVIRTD_NBD_TLS=DIR has QEMU take its certificates for NBD from there; DIR has
# to exist by now, they may come later.
# LIBVIRTD_AGAIN=yes starts libvirtd again when somebody kills it; the one that
# COMMAND finds in LIBVIRTD_PID is an ancestor of it.
#
# Needs root: in a user namespace libvirtd runs, but cannot start QEMU.
set -euo pipefail

# libvirtd_start: sets LIBVIRTD_PID and LIBVIRTD_DIR, exports
# DISKLET_TEST_LIBVIRT_URI and DISKLET_TEST_RUN_DIR, and returns when the daemon answers. Not to be
# called in a subshell: the daemon ends with the process that called this.
libvirtd_start() {
    local self=${BASH_SOURCE[0]} i
    if ((EUID != 0)); then
        printf 'a private libvirtd needs root\n' >&2
        return 1
    fi
    # A short path: a socket's may not exceed 107 bytes.
    LIBVIRTD_DIR=$(mktemp -d /tmp/disklet-libvirtd.XXXXXX)
    # QEMU's user passes through to the shared part; the sockets are root's.
    chmod 0711 "$LIBVIRTD_DIR"
    mkdir -m 0700 "$LIBVIRTD_DIR/run"
    mkdir "$LIBVIRTD_DIR/shared"
    mount -t tmpfs -o mode=0755 tmpfs "$LIBVIRTD_DIR/shared"
    mount --make-shared "$LIBVIRTD_DIR/shared"
    export DISKLET_TEST_RUN_DIR=$LIBVIRTD_DIR/shared
    # A session of its own, so that Ctrl-C on a terminal leaves the end to us.
    setpriv --pdeathsig KILL \
        setsid unshare --mount --pid --net --ipc --kill-child --mount-proc --propagation slave \
        bash "$self" --inside "$LIBVIRTD_DIR/run" >"$LIBVIRTD_DIR/log" 2>&1 </dev/null &
    LIBVIRTD_PID=$!
    export LIBVIRTD_PID
    export DISKLET_TEST_LIBVIRT_URI="qemu+unix:///system?socket=$LIBVIRTD_DIR/run/libvirt-sock"
    for ((i = 0; i < 600; i++)); do
        if [[ -S $LIBVIRTD_DIR/run/libvirt-sock ]] &&
            virsh -q -c "$DISKLET_TEST_LIBVIRT_URI" version >/dev/null 2>&1; then
            return 0
        fi
        kill -0 "$LIBVIRTD_PID" 2>/dev/null || break
        sleep 0.1
    done
    printf 'the private libvirtd does not answer:\n' >&2
    tail -n 20 "$LIBVIRTD_DIR/log" >&2
    libvirtd_stop
    return 1
}

# libvirtd_stop: returns when every process, mount and file of it is gone. May
# be called twice, and without a start.
libvirtd_stop() {
    local first=''
    if [[ -n ${LIBVIRTD_PID:-} ]]; then
        # Killing the namespace's first process rather than `unshare` makes the
        # kernel end all others before `unshare` can return.
        read -r first _ 2>/dev/null <"/proc/$LIBVIRTD_PID/task/$LIBVIRTD_PID/children" || true
        kill -KILL "${first:-$LIBVIRTD_PID}" 2>/dev/null || true
        wait "$LIBVIRTD_PID" 2>/dev/null || true
    fi
    if [[ -n ${LIBVIRTD_DIR:-} ]]; then
        umount -l "$LIBVIRTD_DIR/shared" 2>/dev/null || true
        rm -rf --one-file-system "$LIBVIRTD_DIR"
    fi
    LIBVIRTD_PID='' LIBVIRTD_DIR=''
    unset DISKLET_TEST_LIBVIRT_URI DISKLET_TEST_RUN_DIR
}

# Covers every directory of libvirt's, and all of /run.
libvirtd_cover() {
    local dir
    for dir in /etc/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt; do
        mount -t tmpfs -o mode=0755 tmpfs "$dir"
    done
    # All of /run, so that no D-Bus, udev or machined of the system is in reach.
    mount -t tmpfs -o mode=0755 tmpfs /run
    mkdir /run/libvirt /run/lock
    # Whoever reaches the socket may use it; its directory is its owner's alone.
    printf '%s\n' 'auth_unix_rw = "none"' 'auth_unix_ro = "none"' 'unix_sock_group = "root"' \
        'unix_sock_rw_perms = "0700"' >/etc/libvirt/libvirtd.conf
    # No AppArmor profile or SELinux label of the system is loaded or changed.
    # QEMU as root: libvirt probes QEMU as root, and where QEMU's own user may
    # not open /dev/kvm it finds the answer wrong and asks again, for seconds,
    # at every single call.
    local user=${LIBVIRTD_QEMU_USER:-root}
    printf '%s\n' 'security_driver = "none"' "user = \"$user\"" "group = \"$(id -gn "$user")\"" >/etc/libvirt/qemu.conf
    if [[ -n ${LIBVIRTD_NBD_TLS:-} ]]; then
        printf 'nbd_tls_x509_cert_dir = "%s"\n' "$LIBVIRTD_NBD_TLS" >>/etc/libvirt/qemu.conf
    fi
    # For another user, a node of our own, which that user may open.
    if [[ $user != root && -e /dev/kvm ]]; then
        mkdir /run/nodes
        mount -t tmpfs -o mode=0755,dev tmpfs /run/nodes
        mknod -m 0666 /run/nodes/kvm c 10 232
        mount --bind /run/nodes/kvm /dev/kvm
    fi
    : >/etc/libvirt/virtlogd.conf
}

# The first process inside the namespaces; $1 is the directory for the sockets.
libvirtd_inside() {
    libvirtd_cover
    mount --bind "$1" /run/libvirt
    virtlogd -p /run/virtlogd.pid &
    if [[ ${LIBVIRTD_AGAIN:-} == yes ]]; then
        while true; do libvirtd -p /run/libvirtd.pid || true; done &
    else
        libvirtd -p /run/libvirtd.pid &
    fi
    # Both are needed: when one ends, so does this shell and with it the other.
    wait -n
}

# Sourced: only the functions above.
[[ ${BASH_SOURCE[0]} == "$0" ]] || return 0

case ${1:---help} in
    --inside) libvirtd_inside "$2" ;;
    --none)
        shift
        exec unshare --mount --pid --net --ipc --kill-child --mount-proc --propagation private \
            bash "$0" --covered "$@"
        ;;
    --covered)
        shift
        libvirtd_cover
        # The first process of a namespace: all others end with it.
        "$@"
        ;;
    -h | --help) awk 'NR == 1 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0" ;;
    *)
        if [[ -z ${LIBVIRTD_OWN_MOUNTS:-} ]]; then
            LIBVIRTD_OWN_MOUNTS=yes exec unshare --mount --propagation private bash "$0" "$@"
        fi
        trap libvirtd_stop EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM HUP
        libvirtd_start
        "$@"
        ;;
esac
