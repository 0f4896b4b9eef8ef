# Mounts an image as a CD-ROM and as a disk, by each of its three names, and
# says what is in it.
for device in sr0 vda; do
    wait_for $device
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
