# Is the guest's RDMA stack sound? perftest's latency of a write from host b to host a.
#
#   tests/rdma/guest.py --script tests/rdma/perftest.guest.sh [BYTES...]
two_hosts
[ $# -gt 0 ] || set -- 64 8192
cat /proc/uptime | awk '{print "up after " $1 " s"}'
cat /sys/devices/system/clocksource/clocksource0/current_clocksource
ibv_devinfo -d rxe_a | grep -E 'state|link_layer'
for size in "$@"; do
    on_a ib_write_lat -d rxe_a -s "$size" -n 300 -F > /tmp/server 2>&1 &
    sleep 0.5
    on_b timeout 30 ib_write_lat -d rxe_b -s "$size" -n 300 -F 10.77.0.1 > /tmp/client 2>&1 ||
        { cat /tmp/client /tmp/server; fail "ib_write_lat of $size bytes"; }
    grep -A1 t_typical /tmp/client
    wait
done
