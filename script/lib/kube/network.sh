# shellcheck shell=bash
# The network of a cluster. Sourced; NUMBER is the cluster's number.
#
#   10.NUMBER.0.0/24     the machines: .1 this computer, .2 control plane, .11 node1 …
#   10.NUMBER.I.0/24     the pods of node I
#   10.NUMBER.240.0/20   Services
#
# A bridge in the control plane's network joins the nodes' interfaces and one end of
# `diskletNUMBER`, the only thing that this computer sees. Everybody has a route to
# the pods; every machine has a kube-proxy, and this computer reaches Services
# through the control plane's.

# shellcheck disable=SC2034 # used by those who source this
network_names() {
    NET=10.$NUMBER
    HOST_LINK=disklet$NUMBER
    HOST_ADDRESS=$NET.0.1
    MASTER_ADDRESS=$NET.0.2
    CLUSTER_CIDR=$NET.0.0/17
    SERVICES=$NET.240.0/20
    # The API server's own Service is always the first.
    API_SERVICE=$NET.240.1
}
node_address() { echo "$NET.0.$((10 + $1))"; }
node_pods() { echo "$NET.$1.0/24"; }
# Always the same: with another one, whoever knows a machine that comes back would not
# reach it for half a minute. (A bridge else takes one from the links that it joins.)
machine_mac() { printf '02:00:00:00:%02x:%02x' "$NUMBER" "$1"; }

# network_claim: sets NUMBER to one that nobody uses, and takes it: to make a cgroup
# of that name succeeds only once.
network_claim() {
    local used first
    used=$(ip -4 -o address && ip -4 route show table all)
    for ((NUMBER = 200; NUMBER < 250; NUMBER++)); do
        [[ $used != *"10.$NUMBER."* ]] || continue
        first=$(cgroups_of_cluster)
        ! mkdir "${first%%$'\n'*}" 2>/dev/null || return 0
    done
    die 'no network 10.200.0.0/16 to 10.249.0.0/16 is free: script/kube down ends a cluster'
}

# network_control_plane: makes what is not there.
network_control_plane() {
    if ! machine_ip "$CONTROL_PLANE" link show lan >/dev/null 2>&1; then
        # The end of a machine that was killed may be there for a moment longer.
        ip link delete "$HOST_LINK" 2>/dev/null || true
        ip link add "$HOST_LINK" type veth peer name host netns "$(machine_pid "$CONTROL_PLANE")"
        machine_ip "$CONTROL_PLANE" link add lan address "$(machine_mac 0)" type bridge forward_delay 0 stp_state 0
        machine_ip "$CONTROL_PLANE" link set host master lan up
        machine_ip "$CONTROL_PLANE" address add "$MASTER_ADDRESS/24" dev lan
        machine_ip "$CONTROL_PLANE" link set lan up
        ip address add "$HOST_ADDRESS/24" dev "$HOST_LINK"
        ip link set "$HOST_LINK" up
    fi
    network_forwards "$CONTROL_PLANE"
    # What goes from node to node is not the control plane's to look at.
    machine_sysctl "$CONTROL_PLANE" bridge/bridge-nf-call-iptables 0
    machine_ip "$CONTROL_PLANE" route replace "$SERVICES" dev lan
    ip route replace "$SERVICES" via "$MASTER_ADDRESS"
}

# network_node I
network_node() {
    if ! machine_ip "node$1" link show eth0 >/dev/null 2>&1 ||
        ! machine_ip "$CONTROL_PLANE" link show "node$1" >/dev/null 2>&1; then
        machine_ip "node$1" link delete eth0 2>/dev/null || true
        machine_ip "$CONTROL_PLANE" link delete "node$1" 2>/dev/null || true
        machine_ip "$CONTROL_PLANE" link add "node$1" type veth \
            peer name eth0 address "$(machine_mac "$1")" netns "$(machine_pid "node$1")"
        machine_ip "$CONTROL_PLANE" link set "node$1" master lan up
        machine_ip "node$1" address add "$(node_address "$1")/24" dev eth0
        machine_ip "node$1" link set eth0 up
    fi
    network_forwards "node$1"
    # Never used as it is: a Service's address is replaced before. But without a route
    # there is nothing to replace.
    machine_ip "node$1" route replace "$SERVICES" dev eth0
}

# network_routes: to the pods of every node, from everywhere else.
network_routes() {
    local i machine
    for ((i = 1; i <= NODES; i++)); do
        ip route replace "$(node_pods "$i")" via "$(node_address "$i")"
        for machine in $(machines); do
            [[ $machine == "node$i" ]] ||
                machine_ip "$machine" route replace "$(node_pods "$i")" via "$(node_address "$i")"
        done
    done
}

network_forwards() { machine_sysctl "$1" ipv4/ip_forward 1; }

# machine_sysctl MACHINE NAME VALUE: of its network; the path means that of the caller's.
machine_sysctl() {
    [[ -e /proc/sys/net/$2 ]] || return 0
    # shellcheck disable=SC2016 # the inner shell's
    nsenter --net="/proc/$(machine_pid "$1")/ns/net" sh -c 'echo "$2" >"/proc/sys/net/$1"' - "$2" "$3"
}
