#!/usr/bin/env bash
# Compares the time of a prompt with TP=2 over a slow wire with the times of its parts: computing,
# and sending the bytes of the all-reduces. Run as root.
# Run: bench/overlap.sh MODEL [RATE [PROMPT_TOKENS]]
#          (BUILD=build ROUNDS=3 DEVICE=cpu CHUNK=512 WIRES="f32 bf16")
#
# The two hosts are network namespaces of this machine, one core each. DEVICE is that of both ranks.
#
# RATE is tc's, such as 1gbit (the default); the shaper's bucket holds 16 KB, its queue 512 KB. For
# each type of WIRES (--prompt-allreduce-dtype), these settings alternate; figures are medians:
#     compute    no shaper, --overlap off
#     off, auto  --overlap, with the shaper
# `wire` is the bytes that a prompt sends from one host, counted by the kernel, at RATE. Target:
# `auto` takes at most 1.15 times the larger of `compute` and `wire`.
set -euo pipefail
rate=${2:-1gbit} prompt=${3:-512} device=${DEVICE:-cpu} chunk=${CHUNK:-512}
wires=${WIRES:-f32 bf16}
source "$(dirname "$0")/two_hosts.sh"

shape() {  # shape on|off
    for side in "$a" "$b"; do
        if [ "$1" = on ]; then
            ip netns exec "$side" tc qdisc replace dev wire root tbf rate "$rate" burst 16kb \
                limit 512kb
        else
            ip netns exec "$side" tc qdisc del dev wire root 2> /dev/null || true
        fi
    done
    export XDG_CACHE_HOME="$work/cache.$1"  # the network's table
}
sent() { ip netns exec "$a" cat /sys/class/net/wire/statistics/tx_bytes; }
prompts() {  # prompts OUT REPETITIONS FLAGS...
    two_ranks "$1" bench "$model" -p "$prompt" -n 0 -t 1 -r "$2" --prefill-chunk "$chunk" \
        --device "$device" -o json "${@:3}"
}

for round in $(seq "$rounds"); do
    for wire in $wires; do
        shape off
        prompts "$work/run.$wire compute.$round" 1 --overlap off --prompt-allreduce-dtype "$wire"
        shape on
        for overlap in off auto; do
            prompts "$work/run.$wire $overlap.$round" 1 --overlap "$overlap" \
                --prompt-allreduce-dtype "$wire"
        done
    done
done
for wire in $wires; do
    for repetitions in 1 3; do
        before=$(sent)
        prompts "$work/bytes" "$repetitions" --prompt-allreduce-dtype "$wire"
        echo $(($(sent) - before)) > "$work/sent.$wire.$repetitions"
    done
done
prompts "$work/chosen" 1

python3 - "$work" "$rate" "$prompt" "$wires" <<'PY'
import glob, json, re, statistics, sys
work, rate, prompt, wires = sys.argv[1:]
def seconds(name):
    return statistics.median(row["avg_ns"] * 1e-9 for path in glob.glob(f"{work}/run.{name}.*")
                             for row in json.load(open(path)))
number, unit = re.fullmatch(r"([\d.]+)([kmg])bit", rate).groups()
bytes_per_s = float(number) * {"k": 1e3, "m": 1e6, "g": 1e9}[unit] / 8
for wire in wires.split():
    sent = [int(open(f"{work}/sent.{wire}.{n}").read()) for n in (1, 3)]
    wire_s, compute = (sent[1] - sent[0]) / 2 / bytes_per_s, seconds(f"{wire} compute")
    off, auto = seconds(f"{wire} off"), seconds(f"{wire} auto")
    share = auto / max(compute, wire_s)
    print(f"{prompt} tokens, TP=2 over {rate} as {wire}: compute {compute:.2f} s, wire "
          f"{wire_s:.2f} s; prompt {off:.2f} s, overlapped {auto:.2f} s: {share:.2f}x of the "
          f"larger part (at most 1.15x: {'met' if share <= 1.15 else 'NOT MET'})")
print(f"--prompt-allreduce-dtype auto: {json.load(open(f'{work}/chosen'))[0]['prompt_wire']}")
PY
