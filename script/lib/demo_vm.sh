#!/usr/bin/env bash
# The part of script/demo that runs a VM. Started by it, beside a private libvirtd.
#
# Takes the programs from the directory of DISKLET and the VM's image from DEMO_IMAGE.
set -euo pipefail
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"
help_wanted "$@"
: "${DISKLET:?run script/demo}" "${DEMO_IMAGE:?run script/demo}"
PATH=$PATH:/usr/sbin:/sbin
export LIBVIRT_DEFAULT_URI=$DISKLET_TEST_LIBVIRT_URI

EXAMPLE=examples/09-run-it
BEGUN=$EPOCHREALTIME
DEVICE='' CHILD=''
DIR=$(mktemp -d "${TMPDIR:-/tmp}/disklet-demo.XXXXXX")
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The VM ends with its libvirtd if it is not down by then, and then its device is free.
clean_up() {
    local code=$?
    trap '' INT TERM HUP
    if [[ -n $CHILD ]]; then
        kill -TERM "$CHILD" 2>/dev/null || true
        wait "$CHILD" 2>/dev/null || true
    fi
    if ((code != 0)) && [[ -d $DIR/data/vms ]]; then
        "$DISKLET" down demo --grace 0 --config "$DIR/config.yaml" >/dev/null 2>&1 || true
    fi
    [[ -z $DEVICE ]] || losetup --detach "$DEVICE" || true
    rm -rf --one-file-system "$DIR"
}

# show WORD…: a command, as one would type it.
show() {
    local word line=''
    for word; do
        if [[ $word == *' '* ]]; then word="'$word'"; fi
        line+=" $word"
    done
    printf '\n%s$%s%s\n' "$BOLD" "$line" "$PLAIN"
}

# run PROGRAM ARGUMENT…: shows the command and runs it. What it takes to keep the
# demo apart is added without a word, having been said once. A command that waits
# shall not keep us from hearing Ctrl-C.
run() {
    show "$@"
    if [[ $1 == disklet ]]; then set -- "$DISKLET" "${@:2}" --config "$DIR/config.yaml"; fi
    "$@" &
    CHILD=$!
    wait "$CHILD"
    CHILD=''
}

# expect WHAT PATTERN: a line of the guest's, or the demo has failed.
expect() {
    grep -qE "$2" <<<"$SEEN" || {
        "$DISKLET" logs demo --config "$DIR/config.yaml" >&2
        die "the guest does not see its $1; above is all that it wrote"
    }
    printf '  %sok%s  %s\n' "$GREEN" "$PLAIN" "$1"
}

printf 'dataDir: %s\nrunDir: %s\n' "$DIR/data" "$DISKLET_TEST_RUN_DIR/demo" >"$DIR/config.yaml"

heading 'A disk of this machine'
say 'A file of 16 MB with a filesystem becomes a block device, for the VM to have as it is.'
mkdir "$DIR/tree"
echo 'written by the host' >"$DIR/tree/from-host"
run mke2fs -q -t ext4 -d "$DIR/tree" "$DIR/archive.img" 16M
show losetup --find --show "$DIR/archive.img"
DEVICE=$(losetup --find --show "$DIR/archive.img")
say "$DEVICE"

heading 'An image for VMs to start from'
say "Every disklet command below has --config $DIR/config.yaml as well,"
say 'which keeps the data of this demo apart.'
run disklet images pull virtlet.cloud/debian-12 --from "$DEMO_IMAGE"

heading 'The VM'
say "It is $EXAMPLE, with $DEVICE for a raw device:"
say 'a root overlay, a new volume, the device, a ConfigMap and a Secret.'
sed "s|path: /dev/loop0|path: $DEVICE|" "$EXAMPLE/pod.yaml" >"$DIR/pod.yaml"
UP=$EPOCHREALTIME
run disklet up -f "$DIR/pod.yaml" -f "$EXAMPLE/objects.yaml" --wait ready --timeout 4m
say "(in $(elapsed_since "$UP") s)"
run disklet ps
run disklet describe demo

heading 'What the guest says'
say "The pod's own runcmd has looked around in the guest. This is from its serial console."
say 'Letters (sdb, sdc) are as the guest gives them; mounts go by the serials of the disks.'
printf "\n%s$ disklet logs demo | sed -n 's/.*guest: //p'%s\n" "$BOLD" "$PLAIN"
SEEN=$("$DISKLET" logs demo --config "$DIR/config.yaml" | sed -n 's/.*guest: //p' | tr -d '\r')
say "$SEEN"
say
SUM=$(sed -n 's/^  password: //p' "$EXAMPLE/objects.yaml" | tr -d '\n' | sha256sum | cut -c 1-16)
expect 'root overlay, larger than its image' '^root overlay +/dev/sd[a-z] 2G$'
expect 'new volume, mounted' '^new volume +/dev/sd[a-z]1 /srv/www ext4'
expect 'raw device, mounted' '^raw device +/dev/sd[a-z] /archive ext4'
expect 'file on it that the host wrote' '/archive/from-host: written by the host$'
expect 'ConfigMap as a file' '^ConfigMap +/opt/demo/app.conf, mode 644: colour = blue$'
expect 'Secret as a file, for root only, with the right content' \
    "^Secret +/etc/demo/password, mode 400: sha256 $SUM…\$"

heading 'And back'
say 'The VM goes, with all that was made for it. The device is as the guest left it:'
run disklet down demo
run debugfs -R 'cat /from-guest' "$DEVICE" 2>/dev/null
[[ $(debugfs -R 'cat /from-guest' "$DEVICE" 2>/dev/null) == 'written by the guest' ]] ||
    die 'what the guest wrote is not on the device'
[[ -z $(find "$DIR/data/volumes" "$DIR/data/cloud-init" -type f 2>/dev/null) ]] ||
    die 'the VM is gone, but not all of its disks'

heading 'Try next'
cat <<END
That was all of it, in $(elapsed_since "$BEGUN") s; nothing of it is left on this machine.
The program is $DISKLET

On the libvirt of this machine, with an image of yours (qcow2 or raw; Debian's "genericcloud" does):

    disklet images pull virtlet.cloud/debian-12 --from debian-12.qcow2     # or https://…
    disklet up -f examples/08-virtio --wait ready
    disklet console virtio-vm        the serial console; Ctrl-] leaves it
    disklet logs -f virtio-vm        what it writes there
    disklet down virtio-vm

And without running anything:

    script/demo plan                 plans every example, with a word on each
    disklet plan -f YOURS.yaml       plans your own VM pods; nothing is touched
    script/test                      everything that must pass
END
