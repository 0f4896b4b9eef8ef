# shellcheck shell=sh
# What the cloud guest does after begin.sh: finds the root file system, wherever its
# disk is, and hands over to the systemd on it.

round=0
until root=$(findfs LABEL=guest-root 2>/dev/null); do
    round=$((round + 1))
    if [ "$round" -gt 100 ]; then
        echo 'no disk has the root file system'
        poweroff -f
    fi
    usleep 100000
done
mount -t ext4 "$root" /mnt
for place in dev proc sys; do
    mount -o move "/$place" "/mnt/$place"
done
exec switch_root /mnt /sbin/init
