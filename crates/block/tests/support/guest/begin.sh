#!/bin/busybox sh
# What every guest begins with; the script of the test follows.
/bin/busybox mkdir -p /proc /sys /dev /mnt
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1
for module in /modules/*; do
    insmod "$module"
done

# wait_for DEVICE…: until they are all there, or for ten seconds.
wait_for() {
    for device; do
        tries=0
        while [ ! -b "/dev/$device" ] && [ $tries -lt 100 ]; do
            sleep 0.1
            tries=$((tries + 1))
        done
    done
}
