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
SUITE_PID=''
SUITE_LOG=''

# suite NAME COMMAND…: runs COMMAND quietly and prints `NAME … ok 12.3 s`. On
# failure the whole log is shown, on success only its notes.
# Returns COMMAND's exit code. The log of the last suite stays readable
# in $SUITE_LOG until the next one.
#
# COMMAND runs in a process group of its own, which `suites_abort` ends: a
# shell that waits for a foreground command would not see a signal in time.
suite() {
    local name=$1 from=$EPOCHREALTIME code=0
    shift
    SUITE_LOG=${SUITE_LOG:-$(mktemp "${TMPDIR:-/tmp}/disklet-suite.XXXXXX")}
    printf '%s … ' "$name"
    set -m
    "$@" >"$SUITE_LOG" 2>&1 </dev/null &
    SUITE_PID=$!
    set +m
    wait "$SUITE_PID" || code=$?
    SUITE_PID=''
    if ((code == 0)); then
        SUITES_PASSED=$((SUITES_PASSED + 1))
        printf '%sok%s %s s\n' "$GREEN" "$PLAIN" "$(elapsed_since "$from")"
        grep '^ *· ' "$SUITE_LOG" || true
    else
        SUITES_FAILED=$((SUITES_FAILED + 1))
        printf '%sfailed%s %s s (exit code %s)\n' "$RED" "$PLAIN" "$(elapsed_since "$from")" "$code"
        sed 's/^/    /' "$SUITE_LOG"
    fi
    return "$code"
}

# suites_guard: from here on, whatever ends this script also ends its suite.
suites_guard() {
    trap suites_abort EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

suites_abort() {
    local code=$?
    trap '' HUP INT TERM
    if [[ -n $SUITE_PID ]]; then
        printf 'interrupted\n'
        kill -TERM -- "-$SUITE_PID" 2>/dev/null || true
        wait "$SUITE_PID" || true
    fi
    [[ -z $SUITE_LOG ]] || rm -f "$SUITE_LOG"
    exit "$code"
}

# The line that sums up, alone on its line for whoever reads it by machine.
suites_summary() {
    printf '%s passed, %s failed\n' "$SUITES_PASSED" "$SUITES_FAILED"
    ((SUITES_FAILED == 0))
}
