#!/usr/bin/env bash
# A Ceph cluster for tests: one monitor and one storage daemon that keeps its
# data in memory, with cephx on, a pool, and a user who may use that pool only.
#
# There is no manager: nothing here needs one, and it would take longest.
#
#   script/lib/servers/ceph.sh start|stop|run DIR    see server.sh
#
# The monitor is at CEPH_HOST (127.0.0.1, or ::1), else at SERVER_ADDRESS, else on the loopback.
set -euo pipefail
# shellcheck source=script/lib/servers/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/server.sh"

POOL=disks
IMAGE=disk
CEPH_USER=vm
HOST=${CEPH_HOST:-${SERVER_ADDRESS:-127.0.0.1}}

server_up() {
    local legacy new fsid osd
    read -r legacy new < <(free_ports 2)
    fsid=$(uuidgen)
    osd=$(uuidgen)
    export CEPH_CONF=$DIR/ceph.conf
    mkdir "$DIR/mon" "$DIR/osd" "$DIR/run"
    configuration "$fsid" >"$CEPH_CONF"
    keyrings
    monitor "$fsid" "$legacy" "$new"
    storage "$osd"
    ceph osd pool create "$POOL" 8 8
    ceph osd pool application enable "$POOL" rbd
    make_disk "$DIR/disk.raw" 'disk of ceph'
    rbd import --no-progress "$DIR/disk.raw" "$POOL/$IMAGE"
    # shellcheck disable=SC2016 # these are jq's
    facts --arg fsid "$fsid" --arg host "$HOST" --argjson port "$legacy" --argjson new "$new" \
        --arg pool "$POOL" --arg image "$IMAGE" --arg user "$CEPH_USER" \
        --arg key "$(secret_file key "$(ceph-authtool -p -n "client.$CEPH_USER" "$DIR/keyring")")" \
        '{bytes: $bytes, fsid: $fsid, monitors: [{host: $host, port: $port}], secondPort: $new,
          pool: $pool, image: $image, user: $user, keyFile: $key, conf: "\($dir)/ceph.conf",
          text: "disk of ceph"}'
}

configuration() {
    cat <<EOT
[global]
fsid = $1
public addr = $HOST
ms bind ipv6 = $([[ $HOST == *:* ]] && echo true || echo false)
ms bind ipv4 = $([[ $HOST == *:* ]] && echo false || echo true)
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
client mount timeout = 10
run dir = $DIR/run
admin socket = $DIR/run/\$name.sock
log file = $DIR/run/\$name.log
keyring = $DIR/keyring
mon data = $DIR/mon
mon data avail crit = 1
mon allow pool size one = true
mon warn on pool no redundancy = false
osd data = $DIR/osd
osd objectstore = memstore
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
memstore device bytes = 1073741824
EOT
}

# Everybody's keys, which the monitor takes over when it is made.
keyrings() {
    key mon. --cap mon 'allow *'
    key client.admin --cap mon 'allow *' --cap osd 'allow *'
    key osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
    key "client.$CEPH_USER" --cap mon 'profile rbd' --cap osd "profile rbd pool=$POOL"
}
key() {
    local new=()
    [[ -e $DIR/keyring ]] || new=(--create-keyring)
    ceph-authtool "${new[@]}" "$DIR/keyring" --gen-key -n "$@"
}

# monitor FSID LEGACY-PORT NEW-PORT
monitor() {
    local host=$HOST
    [[ $host != *:* ]] || host="[$host]"
    local addresses="[v2:$host:$3,v1:$host:$2]"
    echo "mon host = $addresses" >>"$CEPH_CONF"
    monmaptool --create --fsid "$1" --addv a "$addresses" "$DIR/monmap"
    ceph-mon --mkfs -i a --monmap "$DIR/monmap" --keyring "$DIR/keyring"
    part mon ceph-mon -f -i a
}

# storage UUID: the CLI waits until the monitor answers.
storage() {
    ceph --connect-timeout 30 osd new "$1" 0
    ceph-osd --mkfs -i 0 --osd-uuid "$1"
    part osd ceph-osd -f -i 0
}

server_main "$@"
