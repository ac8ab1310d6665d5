# Is the guest's RDMA stack sound? perftest's latency of a write from host b to host a.
#
#   tests/rdma/guest.py --script tests/rdma/perftest.guest.sh [BYTES...]
two_hosts
[ $# -gt 0 ] || set -- 64 8192
cat /proc/uptime | awk '{print "up after " $1 " s"}'
ibv_devinfo -d rxe_a | grep -E 'state|link_layer'
for size in "$@"; do write_lat "$size" 1000; done
grep t_typical /tmp/client.txt
