#!/usr/bin/env bash
# A web server for tests: Apache with ranges, in the clear and with TLS under an
# authority of its own, serving a disk as raw and as qcow2. Below /cookie it
# wants a cookie, below /query a token in the address, below /basic a password.
# Below /first and /second are other disks, and below /slow is one that takes a
# minute.
#
#   script/lib/servers/http.sh start|stop|run DIR    see server.sh
#
# It listens on the loopback and, if there is one, at SERVER_ADDRESS (IPv4).
set -euo pipefail
# shellcheck source=script/lib/servers/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/server.sh"
# shellcheck source=script/lib/servers/tls.sh
source "$(dirname "${BASH_SOURCE[0]}")/tls.sh"

MODULES=/usr/lib/apache2/modules

server_up() {
    local clear tls token password folder
    read -r clear tls < <(free_ports 2)
    token=$(openssl rand -hex 8)
    password=$(openssl rand -hex 8)
    make_authority "$DIR/pki"
    make_certificate "$DIR/pki" server
    mkdir -p "$DIR/files" "$DIR/run"
    for folder in '' cookie query basic first second slow; do disks "$folder"; done
    printf 'reader:%s\n' "$(openssl passwd -apr1 "$password")" >"$DIR/passwords"
    configuration "$clear" "$tls" "$token" >"$DIR/apache.conf"
    part apache apache2 -f "$DIR/apache.conf" -D FOREGROUND
    until_listening "$clear" "$tls"
    # shellcheck disable=SC2016 # these are jq's
    facts --argjson clear "$clear" --argjson tls "$tls" --arg ca "$DIR/pki/ca-cert.pem" \
        --arg token "$(secret_file token "$token")" --arg password "$(secret_file password "$password")" \
        '{bytes: $bytes, host: "127.0.0.1", port: $clear, tlsPort: $tls, caFile: $ca,
          raw: "disk.raw", qcow2: "disk.qcow2", text: "disk of http",
          cookie: {folder: "cookie", name: "ticket", valueFile: $token, text: "disk of http cookie"},
          query: {folder: "query", name: "ticket", valueFile: $token, text: "disk of http query"},
          basic: {folder: "basic", user: "reader", passwordFile: $password, text: "disk of http basic"}}'
}

# disks FOLDER: the same disk in two formats.
disks() {
    local folder=$DIR/files/$1
    mkdir -p "$folder"
    make_disk "$folder/disk.raw" "disk of http${1:+ $1}"
    qemu-img convert -f raw -O qcow2 "$folder/disk.raw" "$folder/disk.qcow2"
}

# configuration CLEAR-PORT TLS-PORT TOKEN
configuration() {
    local module at
    for module in mpm_event authz_core authn_core authn_file authz_user auth_basic ssl env ratelimit; do
        echo "LoadModule ${module}_module $MODULES/mod_$module.so"
    done
    cat <<EOT
ServerName localhost
PidFile $DIR/run/apache.pid
DefaultRuntimeDir $DIR/run
Mutex file:$DIR/run
ErrorLog $DIR/error.log
User nobody
Group nogroup
$(for at in 127.0.0.1 ${SERVER_ADDRESS:-}; do printf 'Listen %s\n' "$at:$1" "$at:$2"; done)
DocumentRoot $DIR/files
<Directory $DIR/files>
    Require all granted
</Directory>
<Location /cookie>
    Require expr "%{HTTP_COOKIE} =~ /ticket=$3/"
</Location>
<Location /query>
    Require expr "%{QUERY_STRING} == 'ticket=$3'"
</Location>
<Location /basic>
    AuthType Basic
    AuthName disks
    AuthUserFile $DIR/passwords
    Require valid-user
</Location>
<Location /slow>
    SetOutputFilter RATE_LIMIT
    SetEnv rate-limit 80
</Location>
<VirtualHost *:$2>
    SSLEngine on
    SSLCertificateFile $DIR/pki/server-cert.pem
    SSLCertificateKeyFile $DIR/pki/server-key.pem
</VirtualHost>
EOT
}

server_main "$@"
