# keep_file PATH KEPT: a file that is there is kept; one that is gone comes back.
keep_file() {
    if [ -e "$1" ]; then
        (umask 077 && mkdir -p "${2%/*}/") && cp -p "$1" "$2"
    elif [ -e "$2" ]; then
        mkdir -p "${1%/*}/" && cp -p "$2" "$1"
    fi || echo "disklet: cannot keep $1" >&2
}
