# shellcheck shell=bash
# The programs of a cluster: where they are kept, and how they get there. Sourced.
#
# Kubernetes is built from Debian's source package, since Debian has no packages of
# its servers that run. Beside it are Debian's etcd, containerd, runc and network
# plugins, unpacked and not installed. Each is made in a directory that is moved to
# its place when it is complete: whatever interrupts that leaves nothing half made.

KUBE_LIB=$ROOT/script/lib/kube
KUBE_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/disklet/kube
KUBE_VERSION=1.20.2
KUBE_COMMIT=faecb196815e248d3ecfb03c680a4507229c2a56
KUBE_PROGRAMS=(kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl)
KUBE_PACKAGES=(etcd-server containerd runc containernetworking-plugins)
GO_PACKAGES=(golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev)

# kube_programs: sets KUBE_BUILT, KUBE_DEBIAN and KUBE_IMAGES; makes what lacks.
kube_programs() {
    kube_kept KUBE_BUILT "kubernetes-$KUBE_VERSION" make_kubernetes \
        "$KUBE_LIB/build.sh" "$KUBE_LIB/fetch.sh"
    kube_kept KUBE_DEBIAN debian make_debian "$KUBE_LIB/fetch.sh"
    kube_kept KUBE_IMAGES images make_images \
        "$KUBE_LIB/image.py" "$KUBE_LIB/pause.c" "$(command -v busybox || die 'no busybox: run script/bootstrap')"
}

# kube_built: whether Kubernetes need not be built first, which takes minutes.
kube_built() { [[ -d $(kube_place "kubernetes-$KUBE_VERSION" "$KUBE_LIB/build.sh" "$KUBE_LIB/fetch.sh") ]]; }

# kube_place NAME FILE…: the directory of the cache for what is made of these files.
kube_place() { echo "$KUBE_CACHE/$1-$(kube_ingredients "${@:2}" | sha256sum | cut -c 1-16)"; }

# kube_kept VARIABLE NAME COMMAND FILE…: the directory NAME-HASH of the cache, filled
# by `COMMAND DIRECTORY` unless it is there. The hash is of the files, and of what is
# named above. Those that nobody wanted for two weeks go when a new one comes.
kube_kept() {
    local -n kept=$1
    local name=$2 make=$3 lock from=$EPOCHREALTIME
    shift 3
    kept=$(kube_place "$name" "$@")
    # Whoever removes old ones shall see that this is in use.
    touch -c "$kept"
    [[ ! -d $kept ]] || return 0
    mkdir -p "$KUBE_CACHE"
    # One at a time. Whoever waited finds what the other has made.
    exec {lock}>"$KUBE_CACHE/$name.lock"
    flock "$lock"
    if [[ ! -d $kept ]]; then
        find "$KUBE_CACHE" -mindepth 1 -maxdepth 1 -type d -name "$name-*" -mtime +14 -exec rm -rf {} +
        # In a shell of its own, which also removes what is left of one that was killed.
        # Its exit code is asked for in this way because errexit stays on in it.
        set +e
        (set -e && kube_make "$KUBE_CACHE/$name.making" "$make" "$kept")
        local code=$?
        set -e
        ((code == 0)) || die "$name was not made; what was begun is removed"
        say "$name is kept in $kept ($(elapsed_since "$from") s)" >&2
    fi
    exec {lock}>&-
}

# kube_make SCRATCH COMMAND PLACE
kube_make() {
    # shellcheck disable=SC2064 # the directory as it is now
    trap "trap '' INT TERM HUP; rm -rf --one-file-system '$1'" EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    rm -rf --one-file-system "$1"
    mkdir "$1" "$1/made"
    cd "$1"
    "$2" "$1/made" >&2
    mv "$1/made" "$3"
}

kube_ingredients() {
    local file
    echo "$KUBE_VERSION ${KUBE_PROGRAMS[*]} ${KUBE_PACKAGES[*]} ${GO_PACKAGES[*]}"
    for file; do
        # A comment changes nothing.
        if [[ $file == *.sh || $file == *.py ]]; then grep -v '^ *#' "$file"; else sha256sum <"$file"; fi
    done
}

# What follows makes one of them each: in the working directory, for `$1`.

make_debian() {
    say 'fetching etcd, containerd, runc and network plugins (170 MB unpacked, some seconds)'
    "$KUBE_LIB/fetch.sh" unpack "$1" "${KUBE_PACKAGES[@]}"
}

make_kubernetes() {
    say "building Kubernetes $KUBE_VERSION from Debian's source: 4 minutes on two idle cores, 25 on busy ones"
    "$KUBE_LIB/fetch.sh" unpack go "${GO_PACKAGES[@]}"
    "$KUBE_LIB/fetch.sh" source gopath/src/k8s.io/kubernetes kubernetes
    "$KUBE_LIB/build.sh" "$1" "$KUBE_VERSION" "$KUBE_COMMIT" "${KUBE_PROGRAMS[@]}"
}

# `pause` is what a pod's first container runs, and the first process of our machines.
make_images() {
    local applet
    say 'making the images pause and busybox (seconds)'
    gcc -static -Os -s -o "$1/pause" "$KUBE_LIB/pause.c"
    install -D "$1/pause" pause/pause
    "$KUBE_LIB/image.py" --name "$PAUSE_IMAGE" --entrypoint /pause --output "$1/pause.tar" pause
    mkdir -p busybox/{bin,tmp,etc,root,var}
    cp "$(command -v busybox)" busybox/bin/busybox
    for applet in $(busybox --list); do
        [[ $applet == busybox ]] || ln -s busybox "busybox/bin/$applet"
    done
    "$KUBE_LIB/image.py" --name "$BUSYBOX_IMAGE" --cmd sh --env PATH=/bin --output "$1/busybox.tar" busybox
}
PAUSE_IMAGE=disklet.test/pause:1
BUSYBOX_IMAGE=disklet.test/busybox:1
