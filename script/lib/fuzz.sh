#!/usr/bin/env bash
# Runs each fuzz target of each crate for a while.
#
#   script/lib/fuzz.sh SECONDS [TARGET…]
#
# The corpus grows from run to run, outside of the repository. An input that
# breaks a promise is kept beside it, and its path is printed.
set -euo pipefail
# shellcheck source=script/lib/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# What was freed counts towards the limit on memory as long as it is kept apart: by default
# half of that limit.
export ASAN_OPTIONS=quarantine_size_mb=64
help_wanted "${1:---help}"
seconds=$1
shift

KEPT=${XDG_CACHE_HOME:-$HOME/.cache}/disklet/fuzz
export CARGO_TARGET_DIR=$KEPT/target
# The sanitizers' flags are not stable; only this build asks for them.
export RUSTC_BOOTSTRAP=1
for crate in "$ROOT"/crates/*/fuzz; do
    cd "$crate"
    mapfile -t targets < <(sed -n 's/^name = "\(.*\)"/\1/p' Cargo.toml | grep -v fuzz)
    if (($#)); then
        mapfile -t targets < <(printf '%s\n' "${targets[@]}" | grep -xF "$(printf '%s\n' "$@")" || true)
    fi
    ((${#targets[@]})) || continue
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
done
