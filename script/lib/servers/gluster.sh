#!/usr/bin/env bash
# A Gluster server for tests: one volume of one brick, with a disk in a folder, and
# one where a claim of the volume has its own.
#
# Gluster refuses bricks on the loopback, so the server gives its network an
# address of its own, and has a network of its own unless told of another one.
# Its bricks look for it at its usual port only: one server per network.
#
#   script/lib/servers/gluster.sh start|stop|run DIR    see server.sh
set -euo pipefail
# shellcheck source=script/lib/servers/server.sh
source "$(dirname "${BASH_SOURCE[0]}")/server.sh"

SERVER_OWN_NETWORK=yes
ADDRESS=10.99.0.1
PORT=24007
VOLUME=disks

server_up() {
    ip address replace "$ADDRESS/32" dev lo
    # Compiled-in places, which no option moves.
    cover /var/lib/glusterd state
    cover /var/log/glusterfs logs
    cover /run gluster-run
    mkdir "$DIR/brick"
    management >"$DIR/glusterd.vol"
    part glusterd glusterd --no-daemon --volfile="$DIR/glusterd.vol" --pid-file="$DIR/glusterd.pid"
    until_true 30 volume list
    volume create "$VOLUME" "$ADDRESS:$DIR/brick" force
    volume start "$VOLUME"
    fill
    # shellcheck disable=SC2016 # these are jq's
    facts --arg host "$ADDRESS" --argjson port "$PORT" --arg volume "$VOLUME" \
        '{bytes: $bytes, host: $host, port: $port, volume: $volume, path: "folder/disk.raw",
          text: "disk of gluster", claimed: {path: "disk.img", text: "disk of gluster claim"}}'
}

# cover DIRECTORY NAME: what is written there lands below DIR.
cover() {
    mkdir -p "$1" "$DIR/$2"
    mount --bind "$DIR/$2" "$1"
}

management() {
    cat <<EOT
volume management
    type mgmt/glusterd
    option working-directory /var/lib/glusterd
    option run-directory /run/gluster
    option transport-type socket
    option transport.socket.listen-port $PORT
    option rpc-auth-allow-insecure on
    option ping-timeout 0
end-volume
EOT
}

volume() { gluster --mode=script volume "$@"; }

# Through a mount: whoever uses Gluster's library, as QEMU does, waits ten
# seconds when it closes.
fill() {
    local mount=$DIR/mount
    mkdir "$mount"
    glusterfs --volfile-server="$ADDRESS" --volfile-id="$VOLUME" "$mount"
    mkdir "$mount/folder"
    make_disk "$mount/folder/disk.raw" 'disk of gluster'
    make_disk "$mount/disk.img" 'disk of gluster claim'
    umount "$mount"
}

server_main "$@"
