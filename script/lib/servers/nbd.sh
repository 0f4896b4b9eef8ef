#!/usr/bin/env bash
# NBD servers for tests: by TCP with a named and with the empty export, on a
# unix socket, and with TLS that wants a client's certificate.
#
#   script/lib/servers/nbd.sh start|stop|run DIR    see server.sh
#
# It listens on the loopback; if there is a SERVER_ADDRESS, at all addresses of its network.
set -euo pipefail
# shellcheck source=script/lib/servers/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=script/lib/servers/tls.sh
source "$(dirname "${BASH_SOURCE[0]}")/tls.sh"

server_up() {
    local tcp empty tls socket=$DIR/socket pki=$DIR/pki all=127.0.0.1
    [[ -z ${SERVER_ADDRESS:-} ]] || all=0.0.0.0
    read -r tcp empty tls < <(free_ports 3)
    make_authority "$pki"
    make_certificate "$pki" server
    make_certificate "$pki" client
    serve tcp -x 'disk/of tcp' -b "$all" -p "$tcp"
    serve empty -b "$all" -p "$empty"
    serve unix -x disk -k "$socket"
    serve tls -x disk -b "$all" -p "$tls" --tls-creds tls \
        --object "tls-creds-x509,id=tls,endpoint=server,verify-peer=on,dir=$pki"
    until_listening "$tcp" "$empty" "$tls"
    until_true 20 test -S "$socket"
    # QEMU may run as another user.
    chmod 0666 "$socket"
    # shellcheck disable=SC2016 # these are jq's
    facts --argjson tcp "$tcp" --argjson empty "$empty" --argjson tls "$tls" \
        --arg socket "$socket" --arg pki "$pki" \
        '{bytes: $bytes, host: "127.0.0.1",
          tcp: {port: $tcp, export: "disk/of tcp", text: "disk of nbd tcp"},
          empty: {port: $empty, export: "", text: "disk of nbd empty"},
          unix: {socket: $socket, export: "disk", text: "disk of nbd unix"},
          tls: {port: $tls, export: "disk", pki: $pki, text: "disk of nbd tls"}}'
}

# serve NAME OPTIONS…: any number of clients, one after the other or at once.
serve() {
    make_disk "$DIR/$1.raw" "disk of nbd $1"
    part "$1" qemu-nbd --persistent --shared=0 --discard=unmap -f raw "${@:2}" "$DIR/$1.raw"
}

server_main "$@"
