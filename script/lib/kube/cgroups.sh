# shellcheck shell=bash
# The cgroups of the machines. Sourced; DIR is the cluster's directory, NUMBER its
# number and CGROUP the version that this computer has: 1 (maybe with 2 beside it) or 2.
#
# A machine sees the cgroup that it was started in as its root. That is
# `disklet-kube-NUMBER/MACHINE`: with version 1 below whatever this shell is in, so
# that its limits hold; with version 2 at the top, since only there, and nowhere
# that has processes of its own, can controllers be passed on.

CGROUP_TOP=/sys/fs/cgroup

# Prints the version that containers get on this computer.
cgroup_version() {
    if [[ $(stat -fc %T "$CGROUP_TOP") == cgroup2fs ]]; then echo 2; else echo 1; fi
}

# The directory of the cluster in each hierarchy, one a line.
cgroups_of_cluster() {
    local controllers path
    if [[ $CGROUP == 2 ]]; then
        echo "$CGROUP_TOP/disklet-kube-$NUMBER"
        return 0
    fi
    while IFS=: read -r _ controllers path; do
        [[ -n $controllers ]] || controllers=unified
        path=$CGROUP_TOP/${controllers#name=}${path%/}
        [[ ! -d $path ]] || echo "$path/disklet-kube-$NUMBER"
    done </proc/self/cgroup
}

# cgroups_make MACHINE: they may be there already, from a machine that was killed.
cgroups_make() {
    local directory
    [[ -s $DIR/cgroups ]] || cgroups_of_cluster >"$DIR/cgroups"
    while read -r directory; do
        mkdir -p "$directory/$1"
        if [[ -e $directory/cpuset.cpus && -e $directory/cpuset.mems && $CGROUP == 1 ]]; then
            cpuset_inherit "$directory"
            cpuset_inherit "$directory/$1"
        elif [[ $CGROUP == 2 ]]; then
            controllers_pass "$(dirname "$directory")"
            controllers_pass "$directory"
            mkdir -p "$directory/$1/init"
        fi
    done <"$DIR/cgroups"
}

# A new cpuset is empty and takes no process.
cpuset_inherit() {
    local file
    for file in cpuset.cpus cpuset.mems; do
        [[ -n $(<"$1/$file") ]] || cat "$(dirname "$1")/$file" >"$1/$file"
    done
}

# Passes on what there is, one by one: some may be refused.
controllers_pass() {
    local controller
    for controller in $(<"$1/cgroup.controllers"); do
        echo "+$controller" 2>/dev/null >"$1/cgroup.subtree_control" || true
    done
}

# cgroups_join MACHINE [LEAF]: moves this very shell there.
cgroups_join() {
    local directory
    while read -r directory; do
        directory+=/$1
        [[ ! -d $directory/${2:-} ]] || directory+=/${2:-}
        echo "$BASHPID" >"$directory/cgroup.procs"
    done <"$DIR/cgroups"
}

# cgroups_settle MACHINE: with the second version only a leaf may have processes, or
# nothing is passed on. Its first processes had to be elsewhere, to make a root of it.
cgroups_settle() {
    local top pid
    [[ $CGROUP == 2 ]] || return 0
    top=$(<"$DIR/cgroups")/$1
    # Read as a whole: the list changes with every one that is moved.
    for pid in $(<"$top/cgroup.procs"); do echo "$pid" >"$top/init/cgroup.procs"; done
    controllers_pass "$top"
}

# cgroups_processes MACHINE: prints their ids.
cgroups_processes() {
    local directory
    [[ -s $DIR/cgroups ]] || return 0
    while read -r directory; do
        [[ ! -d $directory/$1 ]] || find "$directory/$1" -name cgroup.procs -exec cat {} + 2>/dev/null || true
    done <"$DIR/cgroups" | sort -nu
}

cgroups_empty() { [[ -z $(cgroups_processes "$1") ]]; }

# cgroups_remove MACHINE, or without MACHINE those of the cluster.
cgroups_remove() {
    local directory i
    [[ -s $DIR/cgroups ]] || return 0
    while read -r directory; do
        directory+=${1:+/$1}
        # The kernel may need a moment after the last process.
        for ((i = 0; i < 100; i++)); do
            [[ -d $directory ]] || break
            find "$directory" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.05
        done
        [[ ! -d $directory ]] || die "the cgroup $directory cannot be removed"
    done <"$DIR/cgroups"
}
