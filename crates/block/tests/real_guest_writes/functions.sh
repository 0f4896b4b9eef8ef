
# device_of DISK: which of the devices has this name as its serial number.
device_of() {
    for serial in /sys/block/vd*/serial; do
        device=${serial#/sys/block/}
        [ "$(cat "$serial")" != "$1" ] || echo "/dev/${device%/serial}"
    done
}

# tell WHEN DISK FIRST COUNT: the digest of some sectors.
tell() {
    digest=$(dd if="$(device_of "$2")" bs=512 skip="$3" count="$4" 2>/dev/null | sha256sum)
    echo "TOLD $1 $2 $3 $4 ${digest%% *}"
}

# put FILE SKIPPED DISK FIRST COUNT: sectors of a file, durable before the next.
put() {
    dd if="$1" bs=512 skip="$2" of="$(device_of "$3")" seek="$4" count="$5" conv=notrunc,fsync 2>/dev/null ||
        echo "FAILED put $*"
}

