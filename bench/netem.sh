#!/usr/bin/env bash
# Measures how a slower wire affects decoding with TP=2: every packet between two hosts is delayed
# by DELAY +- JITTER us, both ways. Run as root.
# Run: bench/netem.sh MODEL [DELAY_US [JITTER_US]]     (BUILD=build ROUNDS=3 TOKENS=100)
#
# The hosts are two network namespaces of this machine, one core each.
#
# The delay comes from netem if the kernel has it, else from bench/slow_wire. Rounds with and
# without delay alternate; figures are medians. A token's syncs are its all-reduces, the gather of
# the logits and the step message. Target: a token loses at most syncs x added delay x 1.1. No delay
# is exact, so the added delay is measured with a ping of 8 bytes.
set -euo pipefail
delay_us=${2:-100} jitter_us=${3:-20} tokens=${TOKENS:-100}

make_wire() {
    if ip netns exec "$a" tc qdisc add dev lo root netem delay 1us 2> "$work/netem"; then
        ip netns exec "$a" tc qdisc del dev lo root
        ip link add wire netns "$a" mtu 9000 type veth peer name wire netns "$b" mtu 9000
        delay() {  # delay on|off
            local us=$delay_us jitter=$jitter_us
            [ "$1" = on ] || us=0 jitter=0
            for side in "$a" "$b"; do
                ip netns exec "$side" tc qdisc replace dev wire root netem delay "${us}us" \
                    "${jitter}us"
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
}
source "$(dirname "$0")/two_hosts.sh"

# round_trip: us of the round trip of 8 bytes to the other host, the median of 300.
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
        two_ranks "$work/run.$state_now.$round" run "$model" --raw -p "Once upon a time" -n "$tokens" \
            --ignore-eos -t 1 --json
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
