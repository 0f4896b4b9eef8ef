# shellcheck shell=bash
# Certificates for servers that speak TLS, from an authority of their own.
# Sourced after server.sh.

# make_authority FOLDER: ca-cert.pem and ca-key.pem, named as QEMU wants them.
make_authority() {
    mkdir -p "$1"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
        -keyout "$1/ca-key.pem" -out "$1/ca-cert.pem" -subj '/CN=authority of a test' \
        -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
}

# make_certificate FOLDER KIND: KIND-cert.pem and KIND-key.pem for `server` (on
# the loopback, and at SERVER_ADDRESS) or `client`, signed by the folder's authority.
make_certificate() {
    local folder=$1 kind=$2
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
        -keyout "$folder/$kind-key.pem" -subj "/CN=$kind of a test" 2>/dev/null |
        openssl x509 -req -days 30 -CA "$folder/ca-cert.pem" -CAkey "$folder/ca-key.pem" \
            -out "$folder/$kind-cert.pem" 2>/dev/null -extfile <(
            printf '%s\n' basicConstraints=critical,CA:false "extendedKeyUsage=${kind}Auth" \
                keyUsage=critical,digitalSignature,keyEncipherment "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1${SERVER_ADDRESS:+,IP:$SERVER_ADDRESS}"
        )
}
