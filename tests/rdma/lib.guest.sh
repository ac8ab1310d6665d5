# Helpers for scripts inside the guest; read in before the script. For busybox sh.

# two_hosts: makes two "hosts", a (10.77.0.1, veth_a, rxe_a) and b (10.77.0.2, veth_b, rxe_b).
#
# Both live in one network namespace, since Soft-RoCE of kernel 6.1 accepts packets only in the
# first namespace. Routing rules send packets for either address out at the other end of the cable,
# as between two machines: nothing passes the loopback device, and changes of the cable (down,
# netem) affect RDMA and TCP alike. A program is "on a" when it uses a's address and device (and
# core: on_a, on_b).
two_hosts() {
    ip link add veth_a mtu "${MTU:-4200}" type veth peer name veth_b mtu "${MTU:-4200}"
    local side other
    for side in a b; do
        echo 0 > /proc/sys/net/ipv4/conf/veth_$side/rp_filter
        echo 1 > /proc/sys/net/ipv4/conf/veth_$side/accept_local
        echo 1 > /proc/sys/net/ipv6/conf/veth_$side/disable_ipv6
        ip link set veth_$side up
    done
    echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
    host_address a add
    host_address b add
    # Packets from this machine match these rules first; packets from a cable are then local.
    ip rule add pref 10 lookup local
    ip rule del pref 0 lookup local
    ip rule add pref 4 from 10.77.0.1 to 10.77.0.1 lookup local
    ip rule add pref 4 from 10.77.0.2 to 10.77.0.2 lookup local
    ip rule add pref 5 iif lo to 10.77.0.2 lookup 101
    ip rule add pref 5 iif lo to 10.77.0.1 lookup 102
    # Without the cable, the addresses are unreachable instead of local.
    ip route add unreachable 10.77.0.2 metric 9999 table 101
    ip route add unreachable 10.77.0.1 metric 9999 table 102
    host_routes
    rdma link add rxe_a type rxe netdev veth_a
    rdma link add rxe_b type rxe netdev veth_b
}

# on_a, on_b COMMAND...: each host has a core of its own.
on_a() { taskset 1 "$@"; }
on_b() { taskset 2 "$@"; }

# host_address a|b add|del: a host's IPv4 address, and with it its RoCE v2 GID.
host_address() {
    case $1 in
        a) ip addr "$2" 10.77.0.1/24 dev veth_a ;;
        b) ip addr "$2" 10.77.0.2/24 dev veth_b ;;
    esac
}

# host_routes: to be repeated after a cable was down, which removes its routes.
host_routes() {
    ip route replace 10.77.0.2 dev veth_a src 10.77.0.1 table 101
    ip route replace 10.77.0.1 dev veth_b src 10.77.0.2 table 102
}

# partition add|del: the cable is up, but drops all packets.
partition() {
    tc qdisc "$1" dev veth_a root netem loss 100%
    tc qdisc "$1" dev veth_b root netem loss 100%
}

# measure_slowness: sets $slowness to the ratio (1 to 8) of this guest's present slowness to an idle
# machine's: both cores count to 10,000, which takes 0.3 s on an idle machine.
measure_slowness() {
    local begin other count='i=0; while [ $i -lt 10000 ]; do i=$((i + 1)); done'
    begin=$(cut -d' ' -f1 /proc/uptime)
    taskset 1 sh -c "$count" &
    other=$!
    taskset 2 sh -c "$count"
    wait $other
    slowness=$(echo "$begin $(cut -d' ' -f1 /proc/uptime)" |
        awk '{s = ($2 - $1) / 0.3; if (s < 1) s = 1; if (s > 8) s = 8; print s}')
}

# slower NUMBER: as many times more, rounded up; what is not the subject has that much more time.
slower() {
    echo "$1 ${slowness:-1}" | awk '{n = int($1 * $2); if (n < $1 * $2) n++; print n}'
}

# wait_until SECONDS COMMAND...: until the command succeeds; false after so many seconds of an idle
# machine.
wait_until() {
    local patience
    patience=$(slower $((10 * $1)))
    shift
    until "$@"; do
        patience=$((patience - 1))
        [ $patience -gt 0 ] || return 1
        sleep 0.1
    done
}

# wait_for WORD FILE: until the word is in the file.
wait_for() {
    wait_until 10 grep -qs "$1" "$2" || { cat "$2"; fail "no '$1' in $2"; }
}

# listens PORT: a program of host a listens.
listens() { ss -Hltn | grep -q ":$1 "; }

# write_lat BYTES ITERATIONS: perftest's row for writes from host b to host a; see its own heading.
# Not pinned: on one core its spinning would starve the kernel thread that is its RDMA device.
write_lat() {
    timeout "$(slower 70)" ib_write_lat -d rxe_a -s "$1" -n "$2" -F > /tmp/server.txt 2>&1 &
    wait_until 10 listens 18515 || { cat /tmp/server.txt; fail "ib_write_lat does not listen"; }
    timeout "$(slower 60)" ib_write_lat -d rxe_b -s "$1" -n "$2" -F 10.77.0.1 > /tmp/client.txt 2>&1 ||
        { cat /tmp/client.txt /tmp/server.txt; fail "ib_write_lat of $1 bytes"; }
    wait $!
    awk -v bytes="$1" '$1 == bytes && NF >= 9' /tmp/client.txt
}

# fail WORDS...: the script ends as failed.
fail() {
    echo "FAILED: $*"
    exit 1
}
