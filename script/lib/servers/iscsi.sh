#!/usr/bin/env bash
# An iSCSI server for tests: tgtd with one target for everybody and one that
# wants CHAP. The second has two disks.
#
#   script/lib/servers/iscsi.sh start|stop|run DIR    see server.sh
#
# It listens on the loopback and, if there is one, at SERVER_ADDRESS (IPv4).
set -euo pipefail
# shellcheck source=script/lib/servers/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/server.sh"

OPEN=iqn.2024-01.test.disklet:open
CHAP=iqn.2024-01.test.disklet:chap
CHAP_USER=initiator

server_up() {
    local port password
    read -r port < <(free_ports 1)
    # CHAP wants 12 to 16 characters.
    password=$(head -c 9 /dev/urandom | base64 | tr '+/' 'ab')
    password=$(secret_file password "$password")
    make_disk "$DIR/open.raw" 'disk of iscsi open'
    make_disk "$DIR/chap.raw" 'disk of iscsi chap'
    make_disk "$DIR/second.raw" 'disk of iscsi chap second'
    export TGT_IPC_SOCKET=$DIR/control
    part tgtd serve "$port" "$password"
    until_true 20 test -e "$DIR/served"
    # shellcheck disable=SC2016 # these are jq's
    facts --argjson port "$port" --arg open "$OPEN" --arg chap "$CHAP" --arg user "$CHAP_USER" \
        --arg file "$password" \
        '{bytes: $bytes, host: "127.0.0.1", port: $port,
          open: {iqn: $open, lun: 1, text: "disk of iscsi open"},
          chap: {iqn: $chap, lun: 1, user: $user, passwordFile: $file, text: "disk of iscsi chap"},
          second: {iqn: $chap, lun: 2, user: $user, passwordFile: $file, text: "disk of iscsi chap second"}}'
}

# serve PORT PASSWORD-FILE: tgtd keeps nothing: whenever it comes, it has to be told.
serve() {
    tgtd -f -C 0 --iscsi "portal=127.0.0.1:$1,portal=[::1]:$1${SERVER_ADDRESS:+,portal=$SERVER_ADDRESS:$1}" &
    until_true 20 administer show target
    until_listening "$1"
    administer new account --user "$CHAP_USER" --password "$(<"$2")"
    target 1 "$OPEN" open
    target 2 "$CHAP" chap second
    administer bind account --tid 2 --user "$CHAP_USER"
    # For every initiator, once all is as it shall be.
    administer bind target --tid 1 --initiator-address ALL
    administer bind target --tid 2 --initiator-address ALL
    touch "$DIR/served"
    wait
}

# administer OPERATION MODE OPTIONS…
administer() { tgtadm -C 0 --lld iscsi --op "$1" --mode "$2" "${@:3}"; }

# target ID NAME DISK…: with its units.
target() {
    local tid=$1 lun=0 disk
    administer new target --tid "$tid" --targetname "$2"
    for disk in "${@:3}"; do
        lun=$((lun + 1))
        administer new logicalunit --tid "$tid" --lun "$lun" --backing-store "$DIR/$disk.raw"
        administer update logicalunit --tid "$tid" --lun "$lun" --params thin_provisioning=1
    done
}

server_main "$@"
