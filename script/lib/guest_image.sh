#!/usr/bin/env bash
# Prints the path of a disk that a VM boots from, and makes it first if need be.
#
#   script/lib/guest_image.sh small    Linux with busybox; made in seconds
#   script/lib/guest_image.sh cloud    Debian with systemd and cloud-init; made in
#                                      minutes, as root, from the mirror that apt uses
#
# Both are raw and sparse, boot by BIOS from a virtio or SCSI disk, and have their
# console on the first serial port. Do not write to them: put an overlay on top.
#
# small looks at its disks, prints a line for each, and links each by its serial:
#
#   DISK name=sda size=BYTES ro=0|1 serial=SERIAL bus=scsi|virtio path=SYSFS
#   /dev/disk-by-serial/SERIAL, /dev/disk-by-serial/SERIAL-part1
#
# (A CD has no serial there. `disks`, a command, does that again.) Then it looks for
# user data on a volume with the label cidata or config-2, and for lines in it that
# begin with `#guest: `, maybe after blanks. The rest of each is run by busybox's sh,
# and followed by an empty line and `GUEST-DONE rc=N`. At the end the guest prints
# GUEST-END and turns itself off; with a line `#guest: stay` it prints GUEST-READY
# instead and has a shell on the console. The power button turns it off at any time.
# (Disklet keeps such lines in a script, and in the content of a file in write_files;
# comments of a cloud-config are lost.)
#
# cloud has root without a password on the console, and its network is not set up.
# cloud-init reads NoCloud and ConfigDrive, and says last that it has finished. The
# power button shuts it down.
#
# What was made is kept, under a name that changes with these scripts and with the
# packages that are used, and removed once it was not asked for in two weeks.
set -euo pipefail
shopt -s inherit_errexit
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
PATH=$PATH:/usr/sbin:/sbin

PARTS=$ROOT/script/lib/guest
TOOLS=(dosfstools e2fsprogs fdisk mtools syslinux)
ARGUMENTS='console=ttyS0 no_timer_check panic=-1 mitigations=off'
# What is needed to find disks, and to read a volume on them.
MODULES=(sd_mod sr_mod virtio_pci virtio_blk virtio_scsi isofs nls_utf8)
# For the power button; for the disk's own boot partition; for a network.
SMALL_MODULES=(button evdev vfat nls_cp437 nls_ascii virtio_net)
CLOUD_PACKAGES=(systemd-sysv udev kmod acpid mount e2fsprogs cloud-init)
CLOUD_SIZE=1024 # MiB
# Services that only cost time: nothing here is there for long.
CLOUD_MASKED=(
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service
    fstrim.timer getty@tty1.service getty-static.service networking.service
    proc-sys-fs-binfmt_misc.automount sys-kernel-debug.mount sys-kernel-tracing.mount
    systemd-binfmt.service systemd-logind.service systemd-networkd-wait-online.service
    systemd-pstore.service systemd-timesyncd.service systemd-update-utmp-runlevel.service
)
# The boot partition's first sector. There is room before it for a partition table.
BOOT_START=64

# What the image is made from, to the last version; its hash names the image.
ingredients() {
    # All but the comments.
    grep -v '^ *#' "$0" | sha256sum
    cat "$PARTS/begin.sh" "$PARTS/$KIND".*
    [[ $KIND != small ]] || cat "$PARTS/disks.sh" "$PARTS/off.sh"
    sha256sum <"$KERNEL"
    sha256sum <"$BUSYBOX"
    # shellcheck disable=SC2016 # dpkg-query replaces these, not the shell
    dpkg-query -W -f '${Package} ${Version}\n' "${TOOLS[@]}" || true
    [[ $KIND != cloud ]] || cloud_candidates
}

cloud_candidates() {
    local found
    found=$(apt-cache policy "${CLOUD_PACKAGES[@]}" | grep -E '^[a-z]|Candidate:' || true)
    if [[ -z $found || $found == *'(none)'* ]]; then
        apt-get -qq update >&2
        found=$(apt-cache policy "${CLOUD_PACKAGES[@]}" | grep -E '^[a-z]|Candidate:')
    fi
    printf '%s\n' "$RELEASE" "$found"
}

# The lines by which apt gets this machine's own release. Without its lists, apt
# tells of no source.
cloud_sources() {
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    # shellcheck disable=SC2016 # apt-get replaces these, not the shell
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v name="$RELEASE" -v keys="$keys" '
            $3 == "main" && ($2 == name || $2 == name "-updates" || $2 == name "-security") {
                print "deb [signed-by=" keys "] " $0
            }'
}

# initramfs FILE MODULE…: busybox, these modules with what they need, in the order
# of their needs, and the first process.
initramfs() {
    local file=$1 tree=$SCRATCH/initramfs module needs path applet options
    shift
    mkdir -p "$tree"/{bin,dev,proc,sys,run,mnt,seed,var/run,lib/modules,etc/acpi/PWRF}
    cp "$BUSYBOX" "$tree/bin/busybox"
    for applet in $("$BUSYBOX" --list); do
        [[ $applet == busybox ]] || ln -s busybox "$tree/bin/$applet"
    done
    for module; do
        needs=$(modprobe -C /dev/null -d "$SCRATCH/kernel" -S "$KERNEL_VERSION" --show-depends "$module") ||
            die "the guests' kernel has no module $module"
        while read -r path; do
            [[ ! -e $tree/lib/modules/${path##*/} ]] || continue
            cp "$path" "$tree/lib/modules/"
            # It is begin.sh that looks for SCSI disks.
            if [[ ${path##*/} == scsi_mod.ko ]]; then options=' scan=manual'; else options=''; fi
            echo "${path##*/}$options" >>"$tree/lib/modules/order"
        done < <(awk '$1 == "insmod" { print $2 }' <<<"$needs")
    done
    cat "$PARTS/begin.sh" "$PARTS/$KIND.sh" >"$tree/init"
    chmod +x "$tree/init"
    if [[ $KIND == small ]]; then
        install "$PARTS/disks.sh" "$tree/bin/disks"
        install "$PARTS/off.sh" "$tree/bin/off"
        # Where busybox's acpid looks for what the power button does.
        ln -s /bin/off "$tree/etc/acpi/PWRF/00000080"
    fi
    (cd "$tree" && find . -mindepth 1 | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) | zstd -q -19 -o "$file"
}

# boot_disk FILE INITRAMFS MIB: a disk with the boot partition. With MIB it has
# that size and a second partition, from sector ROOT_START on.
boot_disk() {
    local file=$1 initrd=$2 mib=$3 kib fat=$SCRATCH/fat second=''
    # 512 KiB for the loader, the file system's own and the rounding.
    kib=$((($(stat -c %s "$KERNEL") + $(stat -c %s "$initrd")) / 1024 + 512))
    # Together with what is before it, a whole number of 64 KiB.
    kib=$(((kib + BOOT_START / 2 + 63) / 64 * 64 - BOOT_START / 2))
    truncate -s "$((kib + BOOT_START / 2))K" "$file"
    if [[ -n $mib ]]; then
        ROOT_START=$((((kib + BOOT_START / 2 + 1023) / 1024) * 2048))
        truncate -s "${mib}M" "$file"
        second="start=$ROOT_START, type=83"
    fi
    printf '%s\n' 'label: dos' "start=$BOOT_START, size=$((kib * 2)), type=e, bootable" "$second" |
        sfdisk --quiet "$file"
    dd if=/usr/lib/SYSLINUX/mbr.bin of="$file" bs=440 count=1 conv=notrunc status=none

    printf '%s\n' 'DEFAULT guest' 'PROMPT 0' 'TIMEOUT 0' 'NOESCAPE 1' 'SERIAL 0 115200' \
        'LABEL guest' 'LINUX vmlinuz' 'INITRD initrd' "APPEND $ARGUMENTS" >"$SCRATCH/syslinux.cfg"
    mkfs.fat -C -F 16 -n GUEST -h "$BOOT_START" "$fat" "$kib" >/dev/null
    syslinux --install "$fat"
    mcopy -i "$fat" "$SCRATCH/syslinux.cfg" ::syslinux.cfg
    mcopy -i "$fat" "$KERNEL" ::vmlinuz
    mcopy -i "$fat" "$initrd" ::initrd
    dd if="$fat" of="$file" bs=512 seek="$BOOT_START" conv=notrunc,sparse status=none
}

make_small() {
    initramfs "$SCRATCH/initrd" "${MODULES[@]}" "${SMALL_MODULES[@]}"
    boot_disk "$1" "$SCRATCH/initrd" ''
}

make_cloud() {
    ((EUID == 0)) || die 'the cloud image can only be made by root'
    say "making the guest image '$KIND' (some minutes)" >&2
    [[ -n $(cloud_sources) ]] || apt-get -qq update
    cloud_tree "$SCRATCH/tree"
    initramfs "$SCRATCH/initrd" "${MODULES[@]}"
    boot_disk "$1" "$SCRATCH/initrd" "$CLOUD_SIZE"
    mke2fs -q -F -t ext4 -L guest-root -J size=8 -d "$SCRATCH/tree" \
        -E "offset=$((ROOT_START * 512)),lazy_itable_init=0,lazy_journal_init=0" \
        "$1" "$((CLOUD_SIZE * 1024 - ROOT_START / 2))k"
}

# cloud_tree DIRECTORY: the root file system.
cloud_tree() {
    local tree=$1 log=$SCRATCH/log unit
    # As this machine's apt fetches: through its proxy, from an old snapshot.
    apt-config dump --format '%f "%v";%n' Acquire |
        grep -E '^Acquire::(https?::|Check-Valid-Until)' >"$SCRATCH/apt.conf" || true
    # In namespaces of its own, so that its mounts and all its processes end with it,
    # and it with us: mmdebstrap by itself does not stop when it is told to.
    setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc \
        mmdebstrap --quiet --mode=root --variant=minbase --include="$(IFS=, && echo "${CLOUD_PACKAGES[*]}")" \
        --aptopt="$SCRATCH/apt.conf" --aptopt='Apt::Install-Recommends "false"' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$RELEASE" "$tree" - < <(cloud_sources) >"$log" 2>&1 &
    CHILD=$!
    wait "$CHILD" || {
        cat "$log" >&2
        die 'the Debian of the cloud image could not be installed'
    }
    CHILD=''
    # Nothing of where it came from.
    rm -f "$tree/etc/apt/sources.list" "$tree"/etc/apt/apt.conf.d/*mmdebstrap*
    cp -a "$SCRATCH/kernel/lib/modules" "$tree/usr/lib/"
    install -m 644 "$PARTS/cloud.cfg" "$tree/etc/cloud/cloud.cfg"
    rm -f "$tree"/etc/cloud/cloud.cfg.d/*dpkg*
    echo guest >"$tree/etc/hostname"
    echo '# Only what cloud-init adds: the root is mounted before.' >"$tree/etc/fstab"
    # Every instance gets its own.
    : >"$tree/etc/machine-id"
    chroot "$tree" passwd --quiet --delete root
    printf 'event=button/power.*\naction=/sbin/poweroff\n' >"$tree/etc/acpi/events/power"
    ln -s /lib/systemd/system/serial-getty@.service \
        "$tree/etc/systemd/system/getty.target.wants/serial-getty@ttyS0.service"
    for unit in "${CLOUD_MASKED[@]}"; do
        ln -sf /dev/null "$tree/etc/systemd/system/$unit"
    done
    chroot "$tree" python3 -m compileall -q /usr/lib/python3 /usr/lib/python3.* >/dev/null || true
}

# clean_up: with the scratch directory goes whatever was not finished. It may lie
# there from somebody who was killed.
clean_up() {
    if [[ -n $CHILD ]]; then
        kill -KILL "$CHILD" 2>/dev/null || true
        wait "$CHILD" 2>/dev/null || true
    fi
    rm -rf --one-file-system "$SCRATCH"
}

help_wanted "$@"
KIND=${1:-}
[[ $# == 1 && ($KIND == small || $KIND == cloud) ]] || bad_usage 'small or cloud'
KERNEL=$(compgen -G "$GUEST_KERNEL/boot/vmlinuz-*" | head -n 1) || die 'no kernel for guests: run script/bootstrap'
KERNEL_VERSION=${KERNEL##*/vmlinuz-}
BUSYBOX=$(command -v busybox) || die 'no busybox: run script/bootstrap'
# shellcheck disable=SC1091 # another one on each machine
RELEASE=$(. /etc/os-release && echo "$VERSION_CODENAME")
SCRATCH=$GUEST_IMAGES/$KIND.making
CHILD=''

mkdir -p "$GUEST_IMAGES"
made_from=$(ingredients)
name=$KIND-$(sha256sum <<<"$made_from" | cut -c 1-16)
# Whoever removes old ones shall see that this is in use.
touch -c "$GUEST_IMAGES/$name"
if [[ ! -f $GUEST_IMAGES/$name/disk.raw ]]; then
    # One at a time. Whoever waited finds what the other has made.
    exec {lock}>"$GUEST_IMAGES/$KIND.lock"
    flock "$lock"
fi
if [[ ! -f $GUEST_IMAGES/$name/disk.raw ]]; then
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    clean_up
    find "$GUEST_IMAGES" -mindepth 1 -maxdepth 1 -type d -name "$KIND-*" -mtime +14 -exec rm -rf {} +
    mkdir -p "$SCRATCH/kernel/lib" "$SCRATCH/$name"
    cp -a "$GUEST_KERNEL/lib/modules" "$SCRATCH/kernel/lib/"
    depmod -b "$SCRATCH/kernel" "$KERNEL_VERSION"
    printf '%s\n' "$made_from" >"$SCRATCH/$name/made-from"
    "make_$KIND" "$SCRATCH/$name/disk.raw" >&2
    chmod 444 "$SCRATCH/$name/disk.raw"
    mv "$SCRATCH/$name" "$GUEST_IMAGES/"
fi
echo "$GUEST_IMAGES/$name/disk.raw"
