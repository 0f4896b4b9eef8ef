# One disk's failure must not stop the others, not even in a script with -e.
set +e -u

# How many seconds all disks together may take to appear.
patience=10

# find_disk BY_ID BY_PATH SYSFS PARTITION: sets $disk. Without udev there are
# no links, and the disk is where sysfs has its address.
find_disk() {
    while :; do
        for disk in "$1" "$2"; do
            [ -b "$disk" ] && return 0
        done
        for disk in $3; do
            disk=/dev/${disk##*/}$4
            [ -b "$disk" ] && return 0
        done
        [ "$patience" -gt 0 ] || return 1
        patience=$((patience - 1))
        sleep 1
    done
}
