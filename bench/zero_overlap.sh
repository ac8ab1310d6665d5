#!/usr/bin/env bash
# What gathering and summing up beside the arithmetic gains in training over a slow wire, ZeRO-3:
# two hosts are two network namespaces of this machine, a core each, and the wire between them is
# shaped to RATE. As root. Run: bench/zero_overlap.sh MODEL [RATE [SEQ_LEN]]   (BUILD=build ROUNDS=3)
#
# RATE is tc's, as 1gbit (the default); the shaper keeps 100 us of it in its bucket. Rounds with
# --overlap off and auto take turns; figures are medians.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build="$root/${BUILD:-build}"
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0"; exit 2; }
[ -x "$build/weft" ] || { echo "$build/weft is not built" >&2; exit 1; }
model=$1 rate=${2:-1gbit} seq=${3:-256} rounds=${ROUNDS:-3}
source "$root/bench/two_hosts.sh"

for round in $(seq "$rounds"); do
    for overlap in off on; do
        taskset -c 0 ip netns exec "$a" "$build/weft" train "$model" --zero 3 --steps 4 \
            --data synthetic:random-tokens --seq-len "$seq" --micro-batch 1 -t 1 --json --no-output \
            --hosts 10.77.0.2:7000 --key-file "$work/key" --transport tcp --overlap "$overlap" \
            > "$work/run.$overlap.$round" 2> "$work/errors" || { cat "$work/errors"; exit 1; }
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
