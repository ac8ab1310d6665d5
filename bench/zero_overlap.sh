#!/usr/bin/env bash
# Measures the gain of overlapping gathers and sums with arithmetic, in training with ZeRO-3 over a
# wire shaped to RATE. Run as root.
# Run: bench/zero_overlap.sh MODEL [RATE [SEQ_LEN]]   (BUILD=build ROUNDS=3)
#
# The two hosts are network namespaces of this machine, one core each.
#
# RATE is tc's, such as 1gbit (the default); the shaper's bucket holds 100 us of it. Rounds with
# --overlap off and auto alternate; figures are medians.
set -euo pipefail
rate=${2:-1gbit} seq=${3:-256}
source "$(dirname "$0")/two_hosts.sh"

for round in $(seq "$rounds"); do
    for overlap in off on; do
        two_ranks "$work/run.$overlap.$round" train "$model" --zero 3 --steps 4 \
            --data synthetic:random-tokens --seq-len "$seq" --micro-batch 1 -t 1 --json \
            --no-output --overlap "$overlap"
    done
done

python3 - "$work" "$rate" "$seq" <<'PY'
import glob, json, statistics, sys
work, rate, seq = sys.argv[1:]
def of(overlap, field):
    last = [json.loads(open(p).read().splitlines()[-1])
            for p in glob.glob(f"{work}/run.{overlap}.*")]
    return statistics.median(field(line) for line in last)
for overlap in ("off", "on"):
    print(f"--overlap {overlap}: {of(overlap, lambda l: l['tokens_per_s']):.1f} tokens/s, "
          f"waited {of(overlap, lambda l: l['waited_s'][0]):.2f} s of 4 updates, "
          f"{of(overlap, lambda l: l['peak_rss_bytes'][0]) / 2**20:.0f} MiB")
PY
