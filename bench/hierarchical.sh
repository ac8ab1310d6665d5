#!/usr/bin/env bash
# Gain of hierarchical gathers and reduce-scatters, alone and in training with ZeRO-3. As root.
# Run: bench/hierarchical.sh MODEL [RATE [SIZES]]      (BUILD=build BEFORE=program ROUNDS=3 RANKS=2)
#
# Two hosts of RANKS ranks each are two network namespaces of this machine, one core each. Ranks of
# one host communicate through shared memory; the wire between hosts is shaped to RATE.
#
# RATE is tc's, such as 1gbit (the default). Variants alternate; figures are medians of the slowest
# rank. MODEL "none": no training. BEFORE: the weft of an older build, whose training alternates
# with this one's.
set -euo pipefail
rate=${2:-1gbit} sizes=${3:-256K,1M,4M,16M} ranks=${RANKS:-2}
source "$(dirname "$0")/two_hosts.sh"

# start_workers WEFT: starts the other ranks of both hosts and sets $hosts, with host a first.
start_workers() {
    local at side core i
    hosts="" workers=()
    for i in $(seq 2 $((2 * ranks))); do
        side=$a core=0 at="10.77.0.1:$((7100 + i))"
        [ "$i" -le "$ranks" ] || side=$b core=1 at="10.77.0.2:$((7100 + i))"
        # Not in a subshell of a function, so $! is the worker.
        taskset -c "$core" ip netns exec "$side" "$1" worker --listen "$at" \
            --key-file "$work/key" > "$work/worker.$i" 2>&1 &
        workers+=($!)
        hosts+="$at,"
        wait_for listening "$work/worker.$i"
    done
    hosts=${hosts%,}
}
stop_workers() {
    kill "${workers[@]}" || true
    wait "${workers[@]}" || true
}

start_workers "$build/weft"
for round in $(seq "$rounds"); do
    for op in allgather reducescatter; do
        on_a "$build/weft" net "$op" --hosts "$hosts" --key-file "$work/key" --sizes "$sizes" \
            --algorithm one_shot,hierarchical --seconds 0.5 --net-table off --json \
            > "$work/$op.$round" 2> "$work/errors" || { cat "$work/errors"; exit 1; }
    done
done
stop_workers

python3 - "$work" "$rate" "$ranks" <<'PY'
import glob, json, statistics, sys
work, rate, ranks = sys.argv[1:]
print(f"2 hosts of {ranks} ranks, {rate} between them (us)")
print(f"{'':15}{'bytes':>10}{'straight':>11}{'by hosts':>11}")
for op in ("allgather", "reducescatter"):
    rows = {}
    for path in glob.glob(f"{work}/{op}.*"):
        report = json.load(open(path))
        for row in (report[0] if isinstance(report, list) else report)["rows"]:
            assert row["errors"] == 0
            rows.setdefault((row["size"], row["algorithm"]), []).append(row)
    for size in sorted({size for size, _ in rows}):
        line = f"{op:15}{size:10}"
        for form in ("one_shot", "hierarchical"):
            line += f"{statistics.median(r['p50_us'] for r in rows[size, form]):11.0f}"
        print(line)
PY

[ "$model" != none ] || exit 0
for round in $(seq "$rounds"); do
    for weft in "$build/weft" ${BEFORE:-}; do
        start_workers "$weft"
        on_a "$weft" train "$model" --zero 3 --steps 4 --data synthetic:random-tokens \
            --seq-len 128 --micro-batch 1 -t 1 --json --no-output --net-table off \
            --hosts "$hosts" --key-file "$work/key" \
            > "$work/train.$(basename "$(dirname "$weft")").$round" 2> "$work/errors" ||
            { cat "$work/errors"; exit 1; }
        stop_workers
    done
done
python3 - "$work" <<'PY'
import glob, json, os, statistics, sys
runs, losses = {}, set()
for path in glob.glob(f"{sys.argv[1]}/train.*"):
    lines = [json.loads(line) for line in open(path).read().splitlines()]
    losses.add(str([line["loss"] for line in lines if "loss" in line]))
    runs.setdefault(os.path.basename(path).split(".")[1], []).append(lines[-1])
for name, of in sorted(runs.items()):
    print(f"ZeRO 3, {name}: {statistics.median(r['tokens_per_s'] for r in of):.1f} tokens/s, "
          f"waited {statistics.median(max(r['waited_s']) for r in of):.2f} s of 4 updates")
print("the same losses" if len(losses) == 1 else f"UNLIKE LOSSES: {losses}")
PY
