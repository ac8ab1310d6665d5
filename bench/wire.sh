#!/usr/bin/env bash
# What --allreduce-dtype brings to decoding with TP=2 over a slow wire: two hosts are two network namespaces of
# this machine, a core each, and the wire between them is shaped to RATE. As root.
# Run: bench/wire.sh MODEL [RATE [TOKENS]]        (BUILD=build ROUNDS=3 WIRES="f64 f32 bf16 q8")
#
# RATE is tc's, as 1gbit (the default). Rounds with each wire take turns; figures are medians. The
# shaper passes 128 KB at once: a token whose sums are less is not held up.
set -euo pipefail
rate=${2:-1gbit} tokens=${3:-64} wires=${WIRES:-f64 f32 bf16 q8}
source "$(dirname "$0")/two_hosts.sh"

for round in $(seq "$rounds"); do
    for name in $wires; do
        two_ranks "$work/run.$name.$round" run "$model" --raw -p "Once upon a time" -n "$tokens" \
            --ignore-eos -t 1 --net-table off --allreduce-dtype "$name" --json
    done
done

python3 - "$work" "$rate" "$wires" <<'PY'
import glob, json, statistics, sys
work, rate, wires = sys.argv[1:]
for name in wires.split():
    runs = [json.load(open(p)) for p in glob.glob(f"{work}/run.{name}.*")]
    speed = statistics.median(r["decode_tok_s"] for r in runs)
    sums = runs[0]["all_reduce"]
    assert sums["wire"] == name, sums
    print(f"{name:>5} over {rate}: {speed:.1f} tokens/s; a token {1e3 / speed:.2f} ms, with "
          f"{sums['per_token']} sums")
PY
