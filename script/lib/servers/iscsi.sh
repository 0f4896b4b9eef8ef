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

server_up() {
    local port user=initiator password
    read -r port < <(free_ports 1)
    # CHAP wants 12 to 16 characters.
    password=$(head -c 9 /dev/urandom | base64 | tr '+/' 'ab')
    export TGT_IPC_SOCKET=$DIR/control
    part tgtd tgtd -f -C 0 --iscsi "portal=127.0.0.1:$port,portal=[::1]:$port${SERVER_ADDRESS:+,portal=$SERVER_ADDRESS:$port}"
    until_true 20 administer show target
    until_listening "$port"
    target 1 "$OPEN"
    disk 1 1 open
    target 2 "$CHAP"
    disk 2 1 chap
    disk 2 2 'chap second'
    administer new account --user "$user" --password "$password"
    administer bind account --tid 2 --user "$user"
    # shellcheck disable=SC2016 # these are jq's
    facts --argjson port "$port" --arg open "$OPEN" --arg chap "$CHAP" --arg user "$user" \
        --arg file "$(secret_file password "$password")" \
        '{bytes: $bytes, host: "127.0.0.1", port: $port,
          open: {iqn: $open, lun: 1, text: "disk of iscsi open"},
          chap: {iqn: $chap, lun: 1, user: $user, passwordFile: $file, text: "disk of iscsi chap"},
          second: {iqn: $chap, lun: 2, user: $user, passwordFile: $file, text: "disk of iscsi chap second"}}'
}

# administer OPERATION MODE OPTIONS…
administer() { tgtadm -C 0 --lld iscsi --op "$1" --mode "$2" "${@:3}"; }

# target ID NAME: reached by every initiator.
target() {
    administer new target --tid "$1" --targetname "$2"
    administer bind target --tid "$1" --initiator-address ALL
}

# disk TARGET LUN NAME
disk() {
    local file=$DIR/${3// /-}.raw
    make_disk "$file" "disk of iscsi $3"
    administer new logicalunit --tid "$1" --lun "$2" --backing-store "$file"
    administer update logicalunit --tid "$1" --lun "$2" --params thin_provisioning=1
}

server_main "$@"
