#!/bin/sh
# A command of the small guest, in its /bin as `disks`: says which disks it has,
#
#   DISK name=sda size=BYTES ro=0|1 serial=SERIAL bus=scsi|virtio path=SYSFS
#
# and links each, with its partitions, to /dev/disk-by-serial/SERIAL[-partN].
# SERIAL is empty if there is none; blanks and slashes in it become `_`. SYSFS is
# below /sys/devices and has the disk's address in it.

links=/dev/disk-by-serial
# Read-only afterwards: what is written to a disk that is not there shall fail, and
# not end in a file of its name.
if [ -d "$links" ]; then
    mount -o remount,rw "$links"
    rm -f "$links"/*
else
    mkdir "$links"
    mount -t tmpfs tmpfs "$links"
fi

for disk in /sys/block/*; do
    name=${disk##*/}
    case $name in '*' | loop* | ram* | zram*) continue ;; esac
    if [ -e "$disk/serial" ]; then
        serial=$(cat "$disk/serial")
    else
        # Page 0x80 of the Vital Product Data has a header of four bytes.
        serial=$(tail -c +5 "$disk/device/vpd_pg80" 2>/dev/null | tr -d '\000')
    fi
    serial=$(echo "$serial" | sed 's/^ *//; s/ *$//' | tr ' /' '__')
    bus=$(readlink -f "$disk/device/subsystem")
    path=$(readlink -f "$disk/device")
    echo "DISK name=$name size=$(($(cat "$disk/size") * 512)) ro=$(cat "$disk/ro")" \
        "serial=$serial bus=${bus##*/} path=${path#/sys/devices/}"
    [ -n "$serial" ] || continue
    ln -s "../$name" "$links/$serial"
    for part in "$disk/$name"*/partition; do
        [ -e "$part" ] || continue
        number=$(cat "$part")
        part=${part%/partition}
        ln -s "../${part##*/}" "$links/$serial-part$number"
    done
done
mount -o remount,ro "$links"
