# shellcheck shell=bash
# Keys and certificates of a cluster, and who is who. Sourced.
#
#   DIR/pki           everything, for root only
#   DIR/kubeconfig    an administrator's
#   DIR/token         another administrator's, for clients without certificates

# certificates: what is there is kept.
certificates() {
    [[ ! -e $DIR/pki/complete ]] || return 0
    mkdir -p "$DIR/pki"
    chmod 0700 "$DIR/pki"
    certificate_authority
    key sa
    openssl ec -in "$DIR/pki/sa.key" -pubout -out "$DIR/pki/sa.pub" 2>/dev/null
    server apiserver kube-apiserver "IP:$MASTER_ADDRESS" "IP:$API_SERVICE" IP:127.0.0.1 DNS:localhost \
        DNS:kubernetes DNS:kubernetes.default DNS:kubernetes.default.svc DNS:kubernetes.default.svc.cluster.local
    client admin /O=system:masters/CN=admin
    # By which the API server calls kubelets.
    client apiserver-kubelet /O=system:masters/CN=apiserver
    client controller-manager /CN=system:kube-controller-manager
    client scheduler /CN=system:kube-scheduler
    client proxy /CN=system:kube-proxy
    (umask 077 && kubeconfig admin "$DIR/pki" >"$DIR/kubeconfig" && openssl rand -hex 16 >"$DIR/token")
    echo "$(<"$DIR/token"),tester,tester,\"system:masters\"" >"$DIR/pki/tokens.csv"
    touch "$DIR/pki/complete"
}

# node_certificates I: one to call the API server, one to be called by it.
node_certificates() {
    [[ ! -e $DIR/pki/node$1-server.crt ]] || return 0
    client "node$1" "/O=system:nodes/CN=system:node:node$1"
    server "node$1-server" "system:node:node$1" "IP:$(node_address "$1")" IP:127.0.0.1 "DNS:node$1"
}

# certificates_to MACHINE NAME…: the files pki/NAME.* of the machine's /etc/kubernetes.
certificates_to() {
    local to=$DIR/$1/etc/kubernetes/pki name
    shift
    mkdir -p "$to"
    cp "$DIR/pki/ca.crt" "$to/"
    for name; do cp "$DIR/pki/$name".* "$to/"; done
}

key() {
    (umask 077 && openssl ecparam -name prime256v1 -genkey -noout -out "$DIR/pki/$1.key")
}

certificate_authority() {
    key ca
    openssl req -x509 -new -key "$DIR/pki/ca.key" -subj /CN=disklet-kube -days 3650 -out "$DIR/pki/ca.crt" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
}

# client NAME SUBJECT
client() { signed "$1" "$2" extendedKeyUsage=clientAuth; }

# server NAME COMMON-NAME ADDRESS…
server() {
    local name=$1 common=$2
    shift 2
    signed "$name" "/CN=$common" extendedKeyUsage=serverAuth "subjectAltName=$(IFS=, && echo "$*")"
}

# signed NAME SUBJECT EXTENSION…
signed() {
    local file=$DIR/pki/$1 subject=$2
    key "$1"
    shift 2
    openssl req -new -key "$file.key" -subj "$subject" |
        openssl x509 -req -CA "$DIR/pki/ca.crt" -CAkey "$DIR/pki/ca.key" -set_serial "0x$(openssl rand -hex 8)" \
            -days 3650 -extfile <(printf '%s\n' "$@") -out "$file.crt" 2>/dev/null
}

# kubeconfig NAME DIRECTORY: for who has DIRECTORY/NAME.key.
kubeconfig() {
    cat <<EOT
apiVersion: v1
kind: Config
clusters:
- name: disklet
  cluster: {server: "https://$MASTER_ADDRESS:6443", certificate-authority: "$2/ca.crt"}
users:
- name: $1
  user: {client-certificate: "$2/$1.crt", client-key: "$2/$1.key"}
contexts:
- name: disklet
  context: {cluster: disklet, user: $1}
current-context: disklet
EOT
}
