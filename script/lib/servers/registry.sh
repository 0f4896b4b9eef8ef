#!/usr/bin/env bash
# Registries of container images for tests: Debian's docker-registry in the clear, for
# everybody, and another with TLS under an authority of its own, which wants a password.
#
#   script/lib/servers/registry.sh start|stop|run DIR    see server.sh
#
# They listen on the loopback.
set -euo pipefail
# shellcheck source=script/lib/servers/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=script/lib/servers/tls.sh
source "$(dirname "${BASH_SOURCE[0]}")/tls.sh"

server_up() {
    local clear tls password
    read -r clear tls < <(free_ports 2)
    password=$(openssl rand -hex 8)
    make_authority "$DIR/pki"
    make_certificate "$DIR/pki" server
    htpasswd -Bbn reader "$password" >"$DIR/passwords"
    configuration clear "$clear" >"$DIR/clear.yaml"
    {
        configuration tls "$tls" "tls: {certificate: $DIR/pki/server-cert.pem, key: $DIR/pki/server-key.pem}"
        echo "auth: {htpasswd: {realm: images, path: $DIR/passwords}}"
    } >"$DIR/tls.yaml"
    part clear docker-registry serve "$DIR/clear.yaml"
    part tls docker-registry serve "$DIR/tls.yaml"
    until_listening "$clear" "$tls"
    # shellcheck disable=SC2016 # these are jq's
    facts --argjson clear "$clear" --argjson tls "$tls" --arg ca "$DIR/pki/ca-cert.pem" \
        --arg password "$(secret_file password "$password")" \
        '{host: "127.0.0.1", port: $clear, tlsPort: $tls, caFile: $ca, user: "reader", passwordFile: $password}'
}

# configuration NAME PORT [LINE]
configuration() {
    cat <<EOT
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $DIR/files/$1}}
http:
  addr: 127.0.0.1:$2
  secret: $1
  ${3:-}
EOT
}

server_main "$@"
