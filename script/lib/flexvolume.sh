#!/usr/bin/env bash
# Builds the FlexVolume driver as it is installed on nodes, and prints its path: one
# small static program, since it runs on whatever system the node has.
#
#   script/lib/flexvolume.sh
set -euo pipefail
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_wanted "$@"
(($# == 0)) || bad_usage "unknown argument $1"
cd "$ROOT"
# The flag is for the program alone: set for all, it would reach what cargo builds
# for itself.
cargo rustc --locked --quiet --package disklet-flexvolume --bin disklet-flexvolume --profile driver -- \
    -C target-feature=+crt-static
driver=$CARGO_TARGET_DIR/driver/disklet-flexvolume
if readelf --program-headers "$driver" | grep -q INTERP; then die "$driver is not static"; fi
say "$driver"
