is_mounted() {
    if command -v mountpoint >/dev/null 2>&1; then
        mountpoint -q "$1"
    else
        # The kernel writes a space as \040 there, and a backslash as \134.
        cut -d ' ' -f 2 /proc/mounts |
            grep -qxF -e "$(printf '%s\n' "$1" | sed 's/\\/\\134/g; s/ /\\040/g')"
    fi
}

# mount_disk PATH rw|ro DISK...
mount_disk() {
    path=$1
    mode=$2
    shift 2
    if is_mounted "$path"; then
        :
    elif ! find_disk "$@"; then
        echo "disklet: found no disk $1; nothing is mounted on $path" >&2
    elif ! { mkdir -p "$path" && mount -o "$mode" "$disk" "$path"; }; then
        echo "disklet: cannot mount $disk on $path" >&2
    fi
}
