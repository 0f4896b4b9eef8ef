#!/usr/bin/env bash
# Makes the lowest layer of an image: Debian packages, without anything of ours.
#
#   script/lib/images/base.sh small|node FILE.tar
#
# small  the C library, passt and the certificates of authorities
# node   a small Debian with libvirtd, QEMU and its block drivers, UEFI, ext4
#
# Packages come from the mirror that apt already uses; QEMU from its backports.
set -euo pipefail
shopt -s inherit_errexit
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
PATH=$PATH:/usr/sbin:/sbin

KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
SMALL=(libc6 libgcc-s1 passt ca-certificates)
NODE=(
    libvirt-daemon libvirt-daemon-driver-qemu libvirt-daemon-driver-storage-rbd
    libvirt-daemon-driver-storage-iscsi-direct libvirt-clients
    qemu-system-x86 qemu-utils qemu-block-extra ipxe-qemu seabios ovmf
    # What QEMU's driver for Gluster loads when it connects; no package asks for it.
    glusterfs-common
    e2fsprogs mount ca-certificates
)
BACKPORTS='qemu-system-x86 qemu-system-common qemu-system-data qemu-utils qemu-block-extra seabios'

# shellcheck disable=SC1091 # another one on each machine
codename() { (. /etc/os-release && echo "$VERSION_CODENAME"); }

# Prints apt's sources for this machine's release, and for its backports.
sources() {
    # shellcheck disable=SC2016 # apt-get replaces these, not the shell
    apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v name="$(codename)" -v keys="$KEYS" '
            $2 != "main" { next }
            $1 == name { site = $3 }
            $1 == name || $1 == name "-updates" || $1 == name "-security" || $1 == name "-backports" {
                if (!seen[$1]++) printf "deb [signed-by=%s] %s %s main\n", keys, $3, $1
            }
            END {
                if (site && !seen[name "-backports"]) printf "deb [signed-by=%s] %s %s-backports main\n", keys, site, name
            }'
}

make_small() {
    mkdir "$scratch/fetch"
    (cd "$scratch/fetch" && "$ROOT/script/lib/kube/fetch.sh" unpack "$root" "${SMALL[@]}")
    cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
    rm -rf "${root:?}"/usr/share "$root"/usr/lib/*/{gconv,audit} "$root"/etc/{apparmor.d,ca-certificates}
    mkdir -p "$root"/{proc,sys,dev,run} "$root/etc"
    mkdir -m 1777 "$root/tmp"
    printf '%s\n' 'root:x:0:0::/:/nonexistent' 'disklet:x:65532:65532::/:/nonexistent' >"$root/etc/passwd"
    printf '%s\n' 'root:x:0:' 'disklet:x:65532:' >"$root/etc/group"
    printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
}

make_node() {
    local list=$scratch/sources.list
    sources >"$list"
    [[ -s $list ]] || die "apt has no list of this machine's release: run 'apt-get update'"
    printf 'Package: %s\nPin: release n=*-backports\nPin-Priority: 600\n' "$BACKPORTS" >"$scratch/backports"
    # Packages' scripts run inside; none of them starts anything.
    mmdebstrap --quiet --variant=essential --format=directory --include="${NODE[*]}" \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --setup-hook="cp '$scratch/backports' \"\$1/etc/apt/preferences.d/backports\"" \
        "$(codename)" "$root" "$list"
    find "$root"/{etc/apt,var/lib/apt,var/cache,var/log,dev,run,tmp} -mindepth 1 -delete
    # As Debian's own package makes it, which wants systemd besides.
    grep -q '^libvirt-qemu:' "$root/etc/passwd" || {
        printf 'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin\n' >>"$root/etc/passwd"
        printf 'libvirt-qemu:x:64055:\n' >>"$root/etc/group"
    }
}

help_wanted "${1:---help}"
(($# == 2)) || bad_usage 'expected small or node, and a file'
((EUID == 0)) || die 'the layers of images have to be made by root'
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
mkdir "$root"
case $1 in
    small) make_small ;;
    node) make_node ;;
    *) bad_usage "unknown image $1" ;;
esac
# The same files give the same layer.
tar --create --file "$2.part" --directory "$root" --sort=name --format=pax --pax-option=delete=atime,delete=ctime \
    --mtime=@0 --owner=0 --group=0 --numeric-owner .
mv "$2.part" "$2"
