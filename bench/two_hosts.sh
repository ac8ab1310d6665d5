# Two hosts for a benchmark whose first argument is MODEL; read with `source`, as root. The hosts
# are network namespaces $a and $b with one core each, 0 and 1. Between them is a wire of $rate
# (tc's, or "none"), or the wire of the script's own function make_wire. On b a worker listens at
# 10.77.0.2:7000; the folder $work has its key. Everything is removed when the script ends.
root=$(cd "$(dirname "$0")/.." && pwd)
build="$root/${BUILD:-build}"
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0"; exit 2; }
[ -x "$build/weft" ] || { echo "$build/weft is not built" >&2; exit 1; }
model=$1 rounds=${ROUNDS:-3}
a=weft_a_$$ b=weft_b_$$
work=$(mktemp -d)
clean_up() {
    kill $(jobs -p) $(ip netns pids "$a") $(ip netns pids "$b") 2>/dev/null || true
    wait || true
    ip netns del "$a" || true
    ip netns del "$b" || true
    rm -rf "$work"
}
trap clean_up EXIT

on_a() { taskset -c 0 ip netns exec "$a" "$@"; }
# With a boot id of its own, b is another host for Weft.
on_b() {
    taskset -c 1 ip netns exec "$b" sh -c \
        'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"' "$work/boot_id" "$@"
}

wait_for() {  # wait_for WORD FILE: at most 5 s
    local patience=100
    until grep -qs "$1" "$2"; do
        patience=$((patience - 1))
        [ $patience -gt 0 ] || { cat "$2" >&2 && exit 1; }
        sleep 0.05
    done
}

two_ranks() {  # two_ranks OUT COMMAND...: of weft, on both hosts; what it prints goes to OUT
    on_a "$build/weft" "${@:2}" --hosts 10.77.0.2:7000 --key-file "$work/key" --transport tcp \
        > "$1" 2> "$work/errors" || { cat "$work/errors"; exit 1; }
}

declare -F make_wire > /dev/null || make_wire() {
    ip link add wire netns "$a" type veth peer name wire netns "$b"
    [ "$rate" != none ] || return 0
    for side in "$a" "$b"; do
        ip netns exec "$side" tc qdisc add dev wire root tbf rate "$rate" burst 128kb latency 20ms
    done
}

ip netns add "$a"
ip netns add "$b"
make_wire
ip -n "$a" addr add 10.77.0.1/24 dev wire
ip -n "$b" addr add 10.77.0.2/24 dev wire
for side in "$a" "$b"; do
    ip -n "$side" link set lo up
    ip -n "$side" link set wire up
done

cat /proc/sys/kernel/random/uuid > "$work/boot_id"
head -c 32 /dev/urandom | base64 > "$work/key"
chmod 600 "$work/key"
on_b "$build/weft" worker --listen 10.77.0.2:7000 --key-file "$work/key" > "$work/worker" 2>&1 &
wait_for listening "$work/worker"
export XDG_CACHE_HOME="$work"
