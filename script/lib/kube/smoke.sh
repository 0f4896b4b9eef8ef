#!/usr/bin/env bash
# Shows that script/kube gives a real cluster and takes all of it away: starts one of
# two nodes in a directory of its own, asks of it what the cluster tests rely on, and
# ends it. Prints the time of each part. As root.
#
#   script/lib/kube/smoke.sh [OPTION…]    options of `script/kube up`
set -euo pipefail
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
help_wanted "$@"
((EUID == 0)) || die 'a cluster needs root'

CHECKS=(up_again pods images services tokens volumes privileged webhook killed_parts killed_node audit down)
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/disklet-smoke.XXXXXX")
export DISKLET_KUBE_DIR=$SCRATCH/cluster
kube=$ROOT/script/kube

# Whatever ends this script ends the cluster, too; what holds its lock goes first.
clean_up() {
    local code=$?
    trap '' HUP INT TERM
    suites_kill
    "$kube" down || true
    rm -rf --one-file-system "$SCRATCH"
    (exit "$code")
    suites_abort
}

suites_guard
trap clean_up EXIT
suite build "$kube" build || exit 1
suite up "$kube" up --nodes 2 "$@" || exit 1
eval "$("$kube" env)"
for check in "${CHECKS[@]}"; do
    suite "${check//_/ }" "$ROOT/script/lib/kube/smoke/checks.sh" "$check" || true
done
suites_summary
