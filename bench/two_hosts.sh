# Two hosts for a benchmark, read with `source` once $build and $rate are set: network namespaces $a
# and $b with a wire of $rate between them, a worker on core 1 of b at 10.77.0.2:7000, and the folder
# $work with its key; all of it goes when the script ends. As root.
a=weft_a_$$ b=weft_b_$$
work=$(mktemp -d)
clean_up() {
    kill $(jobs -p) 2>/dev/null || true
    wait || true
    ip netns del "$a" || true
    ip netns del "$b" || true
    rm -rf "$work"
}
trap clean_up EXIT

ip netns add "$a"
ip netns add "$b"
ip link add wire netns "$a" type veth peer name wire netns "$b"
ip -n "$a" addr add 10.77.0.1/24 dev wire
ip -n "$b" addr add 10.77.0.2/24 dev wire
for side in "$a" "$b"; do
    ip -n "$side" link set lo up
    ip -n "$side" link set wire up
    ip netns exec "$side" tc qdisc replace dev wire root tbf rate "$rate" burst 128kb latency 20ms
done

head -c 32 /dev/urandom | base64 > "$work/key"
chmod 600 "$work/key"
taskset -c 1 ip netns exec "$b" "$build/weft" worker --listen 10.77.0.2:7000 \
    --key-file "$work/key" > "$work/worker" 2>&1 &
for _ in $(seq 100); do grep -qs listening "$work/worker" && break; sleep 0.05; done
export XDG_CACHE_HOME="$work"
