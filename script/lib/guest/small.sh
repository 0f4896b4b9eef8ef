# shellcheck shell=sh
# What the small guest does, and all that it does, after begin.sh; what it prints is
# described in guest_image.sh.

export HOME=/ TERM=vt100 PS1='guest# '
exec </dev/null >/dev/ttyS0 2>&1
# From here on the kernel shall not write into our lines.
echo 1 >/proc/sys/kernel/printk
# Its handler is /etc/acpi/PWRF/00000080.
acpid -l /dev/null

# All disks should be there. Still, wait until there has been one and nothing has
# come for some time, but not for ever.
settle() {
    seen='' quiet=0 round=0
    while [ "$quiet" -lt 3 ] && [ "$round" -lt 50 ]; do
        now=$(ls /sys/class/block)
        if [ -n "$now" ] && [ "$now" = "$seen" ]; then quiet=$((quiet + 1)); else quiet=0; fi
        seen=$now round=$((round + 1))
        usleep 100000
    done
}

# Prints the device that has the image for cloud-init. An ISO 9660 volume has its
# descriptor in sector 16, where its label is from byte 40 on.
find_seed() {
    for device in /sys/block/*; do
        device=/dev/${device##*/}
        [ "$(dd if="$device" bs=1 skip=32769 count=5 2>/dev/null)" = CD001 ] || continue
        case $(dd if="$device" bs=1 skip=32808 count=32 2>/dev/null) in
            cidata* | CIDATA* | config-2* | CONFIG-2*) echo "$device" && return ;;
        esac
    done
}

# Prints what follows `#guest: ` in the user data.
commands() {
    seed=$(find_seed)
    [ -n "$seed" ] || return
    mount -t iso9660 -o ro "$seed" /seed
    for file in /seed/user-data /seed/openstack/latest/user_data; do
        [ ! -f "$file" ] || sed -n 's/\r$//; s/^[[:blank:]]*#guest: //p' "$file"
    done
    # Whatever the commands do with that disk, this shall not be in their way.
    umount /seed
}

settle
disks
commands >/run/commands
stay=no
while IFS= read -r command <&3; do
    if [ "$command" = stay ]; then
        stay=yes
        continue
    fi
    sh -c "$command" 3<&-
    # On a line of its own, whatever the command has printed.
    printf '\nGUEST-DONE rc=%s\n' "$?"
done 3</run/commands

if [ "$stay" = yes ]; then
    echo GUEST-READY
    while :; do
        setsid cttyhack sh </dev/ttyS0
    done
fi
echo GUEST-END
off
