#!/usr/bin/env bash
# What a slower wire costs decoding with TP=2: two hosts are two network namespaces of this machine,
# a core each, and every packet is delayed by DELAY +- JITTER us, both ways. As root.
# Run: bench/netem.sh MODEL [DELAY_US [JITTER_US]]     (BUILD=build ROUNDS=3 TOKENS=100)
#
# The delay is netem's where the kernel has it, else that of bench/slow_wire. Rounds with and
# without delay take turns; figures are medians. A token's syncs are its all-reduces, the gather of
# the logits and the step message; the target: it loses at most syncs x added delay x 1.1. No delay
# is exact: what is judged is the delay that a ping of 8 bytes finds.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build="$root/${BUILD:-build}"
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0"; exit 2; }
[ -x "$build/weft" ] || { echo "$build/weft is not built" >&2; exit 1; }
model=$1 delay_us=${2:-100} jitter_us=${3:-20} rounds=${ROUNDS:-3} tokens=${TOKENS:-100}
a=weft_a_$$ b=weft_b_$$ wire=
work=$(mktemp -d)
clean_up() {
    kill $(jobs -p) 2>/dev/null || true
    wait || true
    ip netns del "$a" || true
    ip netns del "$b" || true
    rm -rf "$work"
}
trap clean_up EXIT

wait_for() {  # wait_for WORD FILE: at most 5 s
    local patience=100
    until grep -qs "$1" "$2"; do
        patience=$((patience - 1))
        [ $patience -gt 0 ] || { cat "$2" >&2 && exit 1; }
        sleep 0.05
    done
}

ip netns add "$a"
ip netns add "$b"
if ip netns exec "$a" tc qdisc add dev lo root netem delay 1us 2>"$work/netem"; then
    ip netns exec "$a" tc qdisc del dev lo root
    ip link add wire netns "$a" mtu 9000 type veth peer name wire netns "$b" mtu 9000
    delay() {  # delay on|off
        local us=$delay_us jitter=$jitter_us
        [ "$1" = on ] || us=0 jitter=0
        for side in "$a" "$b"; do
            ip netns exec "$side" tc qdisc replace dev wire root netem delay "${us}us" "${jitter}us"
        done
    }
    echo "wire: veth and netem"
else
    "$build/bench/slow_wire" "$a" "$b" "$delay_us" "$jitter_us" > "$work/wire" &
    wire=$!
    wait_for ready "$work/wire"
    ip -n "$a" link set wire mtu 9000
    ip -n "$b" link set wire mtu 9000
    state=off
    delay() { [ "$state" = "$1" ] || kill -USR1 "$wire"; state=$1; }
    echo "wire: bench/slow_wire (this kernel has no netem)"
fi
ip -n "$a" addr add 10.77.0.1/24 dev wire
ip -n "$b" addr add 10.77.0.2/24 dev wire
for side in "$a" "$b"; do
    ip -n "$side" link set lo up
    ip -n "$side" link set wire up
done

head -c 32 /dev/urandom | base64 > "$work/key"
chmod 600 "$work/key"
taskset -c 1 ip netns exec "$b" "$build/weft" worker --listen 10.77.0.2:7000 \
    --key-file "$work/key" > "$work/worker" 2>&1 &
wait_for listening "$work/worker"

# round_trip: us that an 8-byte message takes to the other host and back, the median of 300.
ip netns exec "$b" python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.0.2", 7001))
while True: s.sendto(*s.recvfrom(64))' &
round_trip() {
    ip netns exec "$a" python3 -c '
import socket, statistics, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("10.77.0.2", 7001))
s.settimeout(1)
def once():
    begin = time.perf_counter()
    s.send(b"12345678")
    s.recv(64)
    return (time.perf_counter() - begin) * 1e6
print(statistics.median(once() for _ in range(300)))'
}

for round in $(seq "$rounds"); do
    for state_now in off on; do
        delay "$state_now"
        round_trip > "$work/ping.$state_now.$round"
        taskset -c 0 ip netns exec "$a" "$build/weft" run "$model" -p "Once upon a time" \
            -n "$tokens" --ignore-eos -t 1 --hosts 10.77.0.2:7000 --key-file "$work/key" \
            --transport tcp --json > "$work/run.$state_now.$round" 2> "$work/errors" ||
            { cat "$work/errors"; exit 1; }
    done
done

python3 - "$work" "$delay_us" "$jitter_us" <<'PY'
import glob, json, statistics, sys
work, delay, jitter = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
runs = {s: [json.load(open(p)) for p in glob.glob(f"{work}/run.{s}.*")] for s in ("off", "on")}
pings = {s: statistics.median(float(open(p).read()) for p in glob.glob(f"{work}/ping.{s}.*"))
         for s in ("off", "on")}
token = {s: statistics.median(1e6 / r["decode_tok_s"] for r in runs[s]) for s in runs}
syncs = round(runs["on"][0]["all_reduce"]["per_token"]) + 2
loss, added = token["on"] - token["off"], (pings["on"] - pings["off"]) / 2
assert len({str(r["tokens"]) for s in runs for r in runs[s]}) == 1, "different tokens"
print(f"a token: {token['off'] / 1e3:.2f} ms, with {delay:.0f} +- {jitter:.0f} us added "
      f"{token['on'] / 1e3:.2f} ms")
print(f"lost: {loss / 1e3:.2f} ms = {syncs} syncs x {loss / syncs:.1f} us; "
      f"ping says {added:.1f} us are added one way")
print(f"lost / (syncs x {added:.1f} us): {loss / (syncs * added):.2f}x (at most 1.1x: "
      f"{'met' if loss <= 1.1 * syncs * added else 'NOT MET'})")
PY
