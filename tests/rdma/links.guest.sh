# Verbs links and collectives on a real RDMA stack: the unit tests of these folders, then links that
# are made, used and taken down (36 rounds of 8 ranks: 1,008 links), and some whose other end is
# killed. Nothing may be left behind.
#
#   links.guest.sh [RANKS ROUNDS KILLED]
cd /tmp
two_hosts
echo "hosts: after $(cut -d' ' -f1 /proc/uptime) s"
rdma resource show > before
echo "ib_write_lat: $(write_lat 64 200 | awk '{print $5}') us for 64 B"

# Time limits of tests assume a processor that is not emulated.
export WEFT_TEST_SLOWNESS=20
tests='*/verbs*:Verbs*'
for program in net_tests coll_tests; do
    /weft/$program --gtest_filter="$tests" > out.txt 2>&1 || { cat out.txt; fail "$program"; }
    echo "$program: $(grep -E '^\[  PASSED' out.txt)"
done

begin=$(cut -d' ' -f1 /proc/uptime)
/weft/connect_rounds "${1:-8}" "${2:-36}" "${3:-10}" || fail "connect_rounds"
echo "$begin $(cut -d' ' -f1 /proc/uptime)" | awk '{printf "connect_rounds: %.1f s\n", $2 - $1}'
as_before() { rdma resource show > after && cmp -s before after; }
wait_until 5 as_before || { cat before after; fail "RDMA objects are left"; }
cat after
