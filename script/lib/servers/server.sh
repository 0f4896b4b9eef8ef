# shellcheck shell=bash
# What the storage servers of the tests share: how they start, say where they
# are, and end. Sourced by each server's script, which defines `server_up` and
# then calls `server_main "$@"`.
#
#   SERVER start DIR    returns when the server answers; its facts are in DIR/facts.json
#   SERVER stop DIR     returns when nothing of it is left
#   SERVER run DIR      start, print the facts on one line, stop when stdin ends
#
# All state is below DIR, which `start` makes and `stop` removes. The server
# lives in pid and mount namespaces of its own: whatever it forks or mounts ends
# with the first process there, and no process is ever looked for by name. It
# listens on the loopback of its network: that of the caller, or that of
# SERVER_NETWORK, such as /proc/PID/ns/net of a private libvirtd. Needs root.
#
# SERVER_AGAIN=yes has a part that somebody kills come again, where it was and as it
# was, as soon as there is no DIR/away.

set -euo pipefail
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
PATH=$PATH:/usr/sbin:/sbin

# Set by a server that cannot live on somebody else's loopback.
SERVER_OWN_NETWORK=no

# server_main COMMAND DIR
server_main() {
    help_wanted "$@"
    (($# == 2)) || bad_usage 'expected start, stop or run, and a directory'
    ((EUID == 0)) || die 'a storage server for tests needs root'
    case $1 in
        start) server_start "$2" ;;
        stop) server_stop "$2" ;;
        run) server_until_stdin_ends "$2" ;;
        inside) server_inside "$2" ;;
        *) bad_usage "unknown command $1" ;;
    esac
}

server_start() {
    local dir=$1 pid enter=() network=()
    mkdir -p "$dir"
    dir=$(cd -P "$dir" && pwd)
    [[ -z $(ls -A "$dir") ]] || die "$dir is not empty: stop the server there, or name another directory"
    # Servers and QEMU may run as users of their own.
    chmod 0755 "$dir"
    if [[ -n ${SERVER_NETWORK:-} ]]; then
        enter=(nsenter "--net=$SERVER_NETWORK")
    elif [[ $SERVER_OWN_NETWORK == yes ]]; then
        network=(--net)
    fi
    "${enter[@]}" "${SERVER_TIED[@]}" setsid \
        unshare --mount --pid "${network[@]}" --kill-child --mount-proc --propagation private \
        bash "$0" inside "$dir" >"$dir/log" 2>&1 </dev/null &
    pid=$!
    process_mark "$pid" >"$dir/pid"
    while [[ ! -e $dir/facts.json ]]; do
        if ! server_lives "$dir"; then
            tail -n 20 "$dir"/*log >&2
            server_stop "$dir"
            die "${0##*/} did not come up"
        fi
        sleep 0.05
    done
}

# What makes the server end with its caller, however that ends; see `run`.
SERVER_TIED=()

server_until_stdin_ends() {
    local dir=$1
    SERVER_TIED=(setpriv --pdeathsig KILL)
    # shellcheck disable=SC2064 # the directory as it is now
    trap "server_stop '$dir'" EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    server_start "$dir"
    jq -c . "$dir/facts.json"
    cat >/dev/null
}

server_lives() { process_lives "$1/pid"; }

server_stop() {
    local dir=$1 pid first='' i
    [[ -d $dir ]] || return 0
    if server_lives "$dir"; then
        read -r pid _ <"$dir/pid"
        # The first process in the namespace: with it the kernel ends all others.
        read -r first _ 2>/dev/null <"/proc/$pid/task/$pid/children" || true
        kill -KILL "${first:-$pid}" 2>/dev/null || true
        for ((i = 0; i < 200; i++)); do
            server_lives "$dir" || break
            sleep 0.05
        done
        ! server_lives "$dir" || die "process $pid of ${0##*/} does not end"
    fi
    rm -rf --one-file-system "$dir"
}

# The first process of the namespaces.
server_inside() {
    DIR=$1
    export HOME=$DIR
    ip link set lo up
    server_up
    # A server whose parts do not all run is none.
    wait -n
    say 'a part of the server has ended'
}

# part NAME COMMAND…: runs a part of the server, with a log of its own.
part() {
    local name=$1
    shift
    if [[ ${SERVER_AGAIN:-} == yes ]]; then
        again "$@" >"$DIR/$name.log" 2>&1 &
    else
        "$@" >"$DIR/$name.log" 2>&1 &
    fi
}
again() {
    while true; do
        "$@" || true
        while [[ -e $DIR/away ]]; do sleep 0.1; done
    done
}

# until_true SECONDS COMMAND…: tries again and again.
until_true() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || die "waited in vain for: $*"
        sleep 0.05
    done
}

# until_listening PORT…
until_listening() {
    local port
    for port; do until_true 20 listening "$port"; done
}
# In a subshell, which closes the connection.
listening() { (: <"/dev/tcp/127.0.0.1/$1"); }

# free_ports COUNT: prints ports that nobody uses, below those that the kernel
# gives to whoever connects.
free_ports() {
    python3 - "$1" <<'PYTHON'
import random, socket, sys
held = []
while len(held) < int(sys.argv[1]):
    s = socket.socket()
    try:
        # On no address: some servers take all of them.
        s.bind(("0.0.0.0", random.randrange(20000, 30000)))
        held.append(s)
    except OSError:
        pass
ports = [s.getsockname()[1] for s in held]
# Whoever reads the line takes them at once, while this process may still be ending.
for s in held:
    s.close()
print(*ports)
PYTHON
}

# make_disk FILE TEXT: a raw disk whose first and last sector say who it is.
make_disk() {
    local sectors=$((DISK_BYTES / 512))
    truncate -s "$DISK_BYTES" "$1"
    printf '%s\n' "$2" | dd of="$1" conv=notrunc status=none
    printf '%s\n' "$2" | dd of="$1" conv=notrunc status=none bs=512 seek=$((sectors - 1))
}
DISK_BYTES=$((4 << 20))

# secret_file NAME VALUE: prints the path of a file that only root may read.
secret_file() {
    (umask 077 && printf '%s' "$2" >"$DIR/$1")
    echo "$DIR/$1"
}

# facts JQ-ARGUMENTS…: says what the server is; the last thing `server_up` does.
facts() {
    jq -n --arg dir "$DIR" --argjson bytes "$DISK_BYTES" "$@" >"$DIR/facts.new"
    mv "$DIR/facts.new" "$DIR/facts.json"
}
