# link_disk PATH DISK...
link_disk() {
    path=$1
    shift
    if [ -e "$path" ] && [ ! -L "$path" ]; then
        echo "disklet: $path is there already and no link; it stays as it is" >&2
    elif ! find_disk "$@"; then
        echo "disklet: found no disk $1; $path is not linked" >&2
    elif ! { mkdir -p "${path%/*}/" && ln -sfn "$disk" "$path"; }; then
        echo "disklet: cannot link $path to $disk" >&2
    fi
}
