#!/usr/bin/env bash
# Measures the gain of --allreduce-dtype for decoding with TP=2 over a wire shaped to RATE. Run as
# root.
# Run: bench/wire.sh MODEL [RATE [TOKENS]]        (BUILD=build ROUNDS=3 WIRES="f64 f32 bf16 q8")
#
# The two hosts are network namespaces of this machine, one core each.
#
# RATE is tc's, such as 1gbit (the default). Rounds with each type alternate; figures are medians.
# The shaper passes 128 KB at once, so it does not delay a token whose sums are smaller.
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
