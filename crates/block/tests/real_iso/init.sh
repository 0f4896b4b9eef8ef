#!/bin/busybox sh
# Mounts an image as a CD-ROM and as a disk, by each of its three names, and
# says what is in it.
/bin/busybox mkdir -p /proc /dev /mnt
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
for module in /modules/*; do
    insmod "$module"
done
for device in sr0 vda; do
    tries=0
    while [ ! -b /dev/$device ] && [ $tries -lt 100 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    for options in ro ro,norock ro,norock,nojoliet; do
        mount -t iso9660 -o $options /dev/$device /mnt || continue
        (cd /mnt && find . -mindepth 1) | while read -r path; do
            content=directory
            [ -d "/mnt/$path" ] || content=$(sha256sum <"/mnt/$path")
            echo "FOUND $device $options ${path#./} $(stat -c '%a:%u:%g:%h:%Y' "/mnt/$path") ${content% *-}"
        done
        umount /mnt
    done
done
poweroff -f
