# Inside the guest, for bench/rdma.sh: prints lines of "perftest SIZE MIN_US TYPICAL_US" and of
# "weft JSON".
#
#   rdma.guest.sh ROUNDS SIZE...
rounds=$1
shift
sizes=$(echo "$@" | tr ' ' ',')
cd /tmp
two_hosts
head -c 32 /dev/urandom | base64 > key
chmod 600 key
/weft/weft worker --listen 10.77.0.2:7000 --key-file key > worker.log 2>&1 &
worker=$!
wait_for listening worker.log

net() {
    local json
    json=$(timeout 60 /weft/weft net "$1" --hosts 10.77.0.2:7000 --key-file key \
        --transport "$2" --sizes "$sizes" --iters 300 --timeout-ms 20000 --json 2> errors) ||
        { cat errors worker.log; fail "weft net $1 --transport $2"; }
    echo "weft $(echo "$json" | tr -d '\n')"
}

for round in $(seq "$rounds"); do
    for size in "$@"; do
        echo "perftest $size $(write_lat "$size" 300 | awk '{print $3, $5}')"
    done
    for transport in verbs tcp; do
        net lat $transport
        net allreduce $transport
    done
done
kill $worker
