# shellcheck shell=bash
# What every script here shares: where the repository and the build cache are,
# the `--help` text, logging, and suites with their times. Sourced, never run.

# shellcheck disable=SC2034 # used by those who source this
# The physical path, so that it is the same whatever link led here.
ROOT=$(cd -P "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Builds go to a cache outside the clone, so that a fresh clone builds warm.
# Two clones may share it: the dependencies are built once, and cargo takes turns.
# A build that is cut off half way must not leave pieces that do not fit together.
export CARGO_INCREMENTAL=0
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/disklet/target}

# build_for_this_clone: before tests are run. Cargo takes what another clone has built for
# ours if it is newer than our files, but tests know at which path their clone was. So what
# is ours is built anew.
build_for_this_clone() {
    local mark=$CARGO_TARGET_DIR/clone
    [[ $(cat "$mark" 2>/dev/null) != "$ROOT" ]] || return 0
    mkdir -p "$CARGO_TARGET_DIR"
    rm -rf "$CARGO_TARGET_DIR"/{*,*/*}/.fingerprint/disklet*
    echo "$ROOT" >"$mark"
}

# Where script/bootstrap unpacks the kernel that the tests' guests boot.
export GUEST_KERNEL=${XDG_CACHE_HOME:-$HOME/.cache}/disklet/kernel
export DISKLET_TEST_KERNEL=$GUEST_KERNEL
# Where script/lib/guest_image.sh keeps the disks that it has made.
export GUEST_IMAGES=${XDG_CACHE_HOME:-$HOME/.cache}/disklet/guests

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
    BOLD=$'\e[1m' RED=$'\e[31m' GREEN=$'\e[32m' PLAIN=$'\e[0m'
else
    BOLD='' RED='' GREEN='' PLAIN=''
fi

# usage: prints the comment at the head of the running script.
usage() {
    awk 'NR == 1 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"
}

# help_wanted "$@": prints the usage and ends the script if asked for it.
help_wanted() {
    case ${1:-} in -h | --help) usage && exit 0 ;; esac
}

say() { printf '%s\n' "$*"; }
# A remark that is shown even if all is well; see `suite`.
note() { printf '  · %s\n' "$*"; }
heading() { printf '\n%s%s%s\n' "$BOLD" "$*" "$PLAIN"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    warn "$@"
    exit 1
}

# bad_usage MESSAGE: a wrong command line; exit code 2, as for any program.
bad_usage() {
    warn "$1 (see --help)"
    exit 2
}

# Seconds since T (a value of EPOCHREALTIME), with one decimal.
elapsed_since() {
    awk -v from="${1/,/.}" -v to="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%.1f", to - from }'
}

# A process by id and start time, so that a later one with its id is not it.
process_mark() {
    local stat
    stat=$(cat "/proc/$1/stat")
    # The name, in parentheses, may hold spaces.
    read -ra stat <<<"${stat##*) }"
    echo "$1 ${stat[19]} ${stat[0]}"
}

# process_lives FILE: whether the process runs whose mark is in FILE.
process_lives() {
    local pid start now_start state
    read -r pid start _ 2>/dev/null <"$1" || return 1
    read -r _ now_start state < <(process_mark "$pid" 2>/dev/null) || return 1
    [[ $now_start == "$start" && $state != Z ]]
}

SUITES_PASSED=0
SUITES_FAILED=0
# The log of the last suite, readable until the next one.
SUITE_LOG=''
# By name, of those that run: process group, log, and when it began.
declare -A SUITE_PIDS=() SUITE_LOGS=() SUITE_BEGAN=()

# suite NAME COMMAND…: runs COMMAND quietly and prints `NAME … ok 12.3 s`. On
# failure the whole log is shown, on success only its notes.
# Returns COMMAND's exit code.
suite() {
    suite_begin "$@"
    suite_end "$1"
}

# suite_begin NAME COMMAND…: the same, in two parts: others can run meanwhile.
#
# COMMAND runs in a process group of its own, which `suites_abort` ends: a
# shell that waits for a foreground command would not see a signal in time.
suite_begin() {
    local name=$1
    shift
    SUITE_LOGS[$name]=$(mktemp "${TMPDIR:-/tmp}/disklet-suite.XXXXXX")
    SUITE_BEGAN[$name]=$EPOCHREALTIME
    set -m
    (
        # It may end while nobody waits for it.
        trap 'echo "$EPOCHREALTIME" >"${SUITE_LOGS[$name]}.end"' EXIT
        "$@"
    ) >"${SUITE_LOGS[$name]}" 2>&1 </dev/null &
    SUITE_PIDS[$name]=$!
    set +m
}

# suite_end NAME: waits for it, and says how it was.
suite_end() {
    local name=$1 code=0
    printf '%s … ' "$name"
    wait "${SUITE_PIDS[$name]}" || code=$?
    unset "SUITE_PIDS[$name]"
    [[ -z $SUITE_LOG ]] || rm -f "$SUITE_LOG"
    SUITE_LOG=${SUITE_LOGS[$name]}
    if ((code == 0)); then
        SUITES_PASSED=$((SUITES_PASSED + 1))
        printf '%sok%s %s s\n' "$GREEN" "$PLAIN" "$(suite_took "$name")"
        grep '^ *· ' "$SUITE_LOG" || true
    else
        SUITES_FAILED=$((SUITES_FAILED + 1))
        printf '%sfailed%s %s s (exit code %s)\n' "$RED" "$PLAIN" "$(suite_took "$name")" "$code"
        sed 's/^/    /' "$SUITE_LOG"
    fi
    return "$code"
}

# Until it ended; what was killed has not said when.
suite_took() {
    local from=${SUITE_BEGAN[$1]} to=$EPOCHREALTIME
    read -r to 2>/dev/null <"${SUITE_LOGS[$1]}.end" || true
    rm -f "${SUITE_LOGS[$1]}.end"
    awk -v from="${from/,/.}" -v to="${to/,/.}" 'BEGIN { printf "%.1f", to - from }'
}

# suites_guard: from here on, whatever ends this script also ends its suite.
suites_guard() {
    trap suites_abort EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

suites_abort() {
    local code=$? name
    trap '' HUP INT TERM
    if ((${#SUITE_PIDS[@]} > 0)); then printf 'interrupted\n'; fi
    suites_kill
    for name in "${!SUITE_PIDS[@]}"; do wait "${SUITE_PIDS[$name]}" || true; done
    rm -f "${SUITE_LOGS[@]}" "${SUITE_LOGS[@]/%/.end}"
    exit "$code"
}

# suites_kill: ends those that run, without waiting for it.
suites_kill() {
    local pid
    for pid in "${SUITE_PIDS[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
}

# The line that sums up, alone on its line for whoever reads it by machine.
suites_summary() {
    printf '%s passed, %s failed\n' "$SUITES_PASSED" "$SUITES_FAILED"
    ((SUITES_FAILED == 0))
}
