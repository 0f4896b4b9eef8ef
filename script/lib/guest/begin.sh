#!/bin/sh
# How the first process of both guests begins: afterwards all disks are there.

export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev

# SCSI disks are looked for here rather than by the driver. That one tries 256
# targets, and the kernel needs 25 ms for each where there is but one disk or CD.
scan_scsi() {
    for host in /sys/class/scsi_host/*; do
        [ -e "$host" ] || continue
        for target in $(seq 0 31); do
            echo "0 $target -" >"$host/scan"
        done
    done
}

# The last one comes after the scan: the kernel returns from loading a module when
# all that it does by the way is done, and so are the disks.
while read -r file options; do
    # shellcheck disable=SC2086 # none, one or more
    insmod "/lib/modules/$file" $options
    [ "$file" != virtio_scsi.ko ] || scan_scsi
done </lib/modules/order

