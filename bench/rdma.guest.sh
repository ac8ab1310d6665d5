# Inside the guest, for bench/rdma.sh: prints lines of "perftest SIZE US" and of "weft JSON".
#
#   rdma.guest.sh ROUNDS SIZE...
rounds=$1
shift
sizes=$(echo "$@" | tr ' ' ',')
cd /tmp
two_hosts
head -c 32 /dev/urandom | base64 > key
chmod 600 key
taskset 2 /weft/weft worker --listen 10.77.0.2:7000 --key-file key > worker.log 2>&1 &
worker=$!
wait_for listening worker.log

net() {
    local json
    json=$(on_a timeout 60 /weft/weft net "$1" --hosts 10.77.0.2:7000 --key-file key \
        --transport "$2" --sizes "$sizes" --iters 300 --timeout-ms 20000 --json 2> errors) ||
        { cat errors worker.log; fail "weft net $1 --transport $2"; }
    echo "weft $(echo "$json" | tr -d '\n')"
}

for round in $(seq "$rounds"); do
    for size in "$@"; do
        on_a ib_write_lat -d rxe_a -s "$size" -n 300 -F > server 2>&1 &
        server=$!
        sleep 0.5
        on_b timeout 30 ib_write_lat -d rxe_b -s "$size" -n 300 -F 10.77.0.1 > client 2>&1 ||
            { cat client server; fail "ib_write_lat of $size bytes"; }
        wait $server
        awk -v size="$size" '$1 == size && NF >= 9 {print "perftest", size, $5}' client
    done
    for transport in verbs tcp; do
        net lat $transport
        net allreduce $transport
    done
done
kill $worker
