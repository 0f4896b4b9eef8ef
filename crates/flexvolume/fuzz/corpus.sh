#!/usr/bin/env bash
# Writes some calls of the kubelet's to begin with, below a directory.
#
#   corpus.sh DIRECTORY
set -euo pipefail
corpus=$1/call
mkdir -p "$corpus"
kubelets='"kubernetes.io/fsType":"ext4","kubernetes.io/pod.name":"web","kubernetes.io/pod.namespace":"default","kubernetes.io/pod.uid":"u","kubernetes.io/pvOrVolumeName":"data","kubernetes.io/readwrite":"rw"'
number=0
for options in '"type":"qcow2","capacity":"1.5Gi"' '"Type":"raw","path":"/dev/loop0","part":"2"' \
    '"type":"ceph","monitor":"a,[fd00::1]:3300","pool":"p","volume":"v","user":"u","secret":"Zm9v"' \
    '"type":"ceph","monitor":"a:1","pool":"p","volume":"v","protocol":"rbd","kubernetes.io/secret/key":"Wm05dg=="' \
    '"disklet.io/version":"1","type":"qcow2","part":"1"' '"type":"\u0071\ud83e\udd80\n\"","capacity":"1e9"'; do
    number=$((number + 1))
    printf '{%s,%s}' "$options" "$kubelets" >"$corpus/$number"
done
echo "$number calls"
