#!/usr/bin/env bash
# Runs each fuzz target of the block engine for a while.
#
#   script/lib/fuzz.sh SECONDS [TARGET…]
#
# The corpus grows from run to run, outside of the repository. An input that
# breaks a promise is kept beside it, and its path is printed.
set -euo pipefail
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_wanted "${1:---help}"
seconds=$1
shift
cd "$ROOT/crates/block/fuzz"
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(sed -n 's/^name = "\(.*\)"/\1/p' Cargo.toml | grep -v fuzz)

KEPT=${XDG_CACHE_HOME:-$HOME/.cache}/disklet/fuzz
export CARGO_TARGET_DIR=$KEPT/target
# The sanitizers' flags are not stable; only this build asks for them.
export RUSTC_BOOTSTRAP=1
cargo fuzz build
./corpus.sh "$KEPT/corpus"
for target in "${targets[@]}"; do
    mkdir -p "$KEPT/found/$target"
    log=$(mktemp)
    cargo fuzz run "$target" "$KEPT/corpus/$target" -- -max_total_time="$seconds" \
        -rss_limit_mb=512 -timeout=10 -max_len=65536 -artifact_prefix="$KEPT/found/$target/" >"$log" 2>&1 || {
        cat "$log"
        exit 1
    }
    note "$target: $(grep -o 'Done [0-9]* runs' "$log" || echo 'no count')"
    rm -f "$log"
done
