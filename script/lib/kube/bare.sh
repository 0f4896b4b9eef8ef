#!/usr/bin/env bash
# Runs a command beside a real cluster without nodes and without Disklet, for tests that
# bring what they want.
#
#   script/lib/kube/bare.sh COMMAND…
#
# COMMAND finds kubectl in PATH, and the cluster in KUBECONFIG and DISKLET_KUBE_DIR. The exit
# code is COMMAND's. Needs root.
set -euo pipefail
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
help_wanted "${1:---help}"
((EUID == 0)) || die 'a cluster needs root'
cd "$ROOT"

# Whatever ends this script ends the cluster, too.
end() {
    local code=$?
    trap '' HUP INT TERM
    script/kube down
    rm -rf --one-file-system "$scratch"
    exit "$code"
}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/disklet-kube.XXXXXX")
export DISKLET_KUBE_DIR=$scratch/kube
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
script/kube up --nodes 0
eval "$(script/kube env)"
"$@"
