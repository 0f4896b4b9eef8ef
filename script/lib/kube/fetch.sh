#!/usr/bin/env bash
# Fetches from the Debian mirror that apt already uses, without installing anything.
#
#   script/lib/kube/fetch.sh unpack DIRECTORY PACKAGE…   the packages' files
#   script/lib/kube/fetch.sh source DIRECTORY PACKAGE    a package's source, patched
#
# Lists and archives are private, in the working directory: neither root nor the
# system's own `apt-get update` is needed.
set -euo pipefail
shopt -s inherit_errexit
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
OWN=$PWD/apt

# Prints where this machine's own release comes from, and its name.
mirror() {
    local codename found
    # shellcheck disable=SC1091 # another one on each machine
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    [[ $codename == bookworm ]] ||
        die "this is not Debian 12 (bookworm) but '$codename'; Kubernetes is built from the packages of bookworm"
    # shellcheck disable=SC2016 # apt-get replaces these, not the shell
    found=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v name="$codename" '$1 == name && $2 == "main" && !uri { uri = $3 } END { print uri }')
    [[ -n $found ]] || die "apt has no list of $codename: run 'apt-get update'"
    echo "$found $codename"
}

# apt COMMAND…: apt-get with lists, archives and sources of its own.
apt() {
    apt-get -qq -o Dir::State="$OWN/state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$OWN/cache" \
        -o Dir::Etc::sourcelist="$OWN/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=3 "$@"
}

prepare() {
    local source
    [[ ! -e $OWN/ready ]] || return 0
    source=$(mirror)
    mkdir -p "$OWN/state/lists/partial" "$OWN/cache/archives/partial"
    printf '%s [signed-by=%s] %s main\n' deb "$KEYS" "$source" deb-src "$KEYS" "$source" >"$OWN/sources.list"
    apt update
    touch "$OWN/ready"
}

# download COMMAND…: apt-get's files, in a directory of their own.
download() {
    rm -rf "$OWN/files"
    mkdir "$OWN/files"
    (cd "$OWN/files" && apt "$@") || die "the mirror in $OWN/sources.list did not give: $*"
}

help_wanted "${1:---help}"
(($# >= 3)) || bad_usage 'expected unpack or source, a directory, and packages'
command=$1 directory=$2
shift 2
prepare
mkdir -p "$(dirname "$directory")"
case $command in
    unpack)
        download download "$@"
        for deb in "$OWN/files"/*.deb; do dpkg-deb -x "$deb" "$directory"; done
        ;;
    source)
        download source --download-only "$1"
        # apt has checked what it fetched against the signed list.
        dpkg-source --no-check -x "$OWN/files"/*.dsc "$directory" >/dev/null
        ;;
    *) bad_usage "unknown command $command" ;;
esac
rm -rf "$OWN/files"
