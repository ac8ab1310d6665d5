# Inside the guest, for bench/rdma_netem.sh: prints lines of "ping STATE US" (one way, by perftest)
# and of "run STATE TRANSPORT JSON".
#
#   rdma_netem.guest.sh ROUNDS TOKENS LAYERS DELAY_US JITTER_US
rounds=$1 tokens=$2 layers=$3 delay_us=$4 jitter_us=$5
cd /tmp
two_hosts
/weft/tiny_model model.gguf "$layers"
head -c 32 /dev/urandom | base64 > key
chmod 600 key
on_b /weft/weft worker --listen 10.77.0.2:7000 --key-file key > worker.log 2>&1 &
worker=$!
wait_for listening worker.log

delay() {  # delay on|off: netem is there in both, so that it costs the same in both
    local us=$delay_us jitter=$jitter_us side
    [ "$1" = on ] || us=0 jitter=0
    for side in a b; do
        tc qdisc replace dev veth_$side root netem delay ${us}us ${jitter}us
    done
}

for round in $(seq "$rounds"); do
    for state in off on; do
        delay $state
        echo "ping $state $(write_lat 8 300 | awk '{print $5}')"
        for transport in verbs tcp; do
            json=$(on_a timeout 100 /weft/weft run model.gguf --greedy --raw -p "Once upon a time" -n "$tokens" \
                --ignore-eos -t 1 --hosts 10.77.0.2:7000 --key-file key --transport $transport \
                --timeout-ms 20000 --json 2> errors) || { cat errors worker.log; fail $transport; }
            echo "run $state $transport $(echo "$json" | tr -d '\n')"
        done
    done
done
kill $worker
