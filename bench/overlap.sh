#!/usr/bin/env bash
# What computing during the sums gains for prompts over a slow wire, TP=2: two hosts are two network
# namespaces of this machine, a core each, and the wire between them is shaped to RATE. As root.
# Run: bench/overlap.sh MODEL [RATE [PROMPT_TOKENS]]        (BUILD=build ROUNDS=3)
#
# RATE is tc's, as 1gbit (the default); the shaper keeps 100 us of it in its bucket. Rounds with
# --overlap off and auto take turns; figures are medians.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build="$root/${BUILD:-build}"
[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0"; exit 2; }
[ -x "$build/weft" ] || { echo "$build/weft is not built" >&2; exit 1; }
model=$1 rate=${2:-1gbit} prompt=${3:-512} rounds=${ROUNDS:-3}
source "$root/bench/two_hosts.sh"

for round in $(seq "$rounds"); do
    for overlap in off auto; do
        taskset -c 0 ip netns exec "$a" "$build/weft" bench "$model" -p "$prompt" -n 0 -t 1 -r 1 \
            --hosts 10.77.0.2:7000 --key-file "$work/key" --transport tcp --overlap "$overlap" \
            -o json > "$work/run.$overlap.$round" 2> "$work/errors" ||
            { cat "$work/errors"; exit 1; }
    done
done

python3 - "$work" "$rate" "$prompt" <<'PY'
import glob, json, statistics, sys
work, rate, prompt = sys.argv[1:]
speed = {}
for overlap in ("off", "auto"):
    runs = [json.load(open(p)) for p in glob.glob(f"{work}/run.{overlap}.*")]
    speed[overlap] = statistics.median(r["avg_ts"] for run in runs for r in run)
print(f"prompt of {prompt} tokens, TP=2 over {rate}: {speed['off']:.1f} tokens/s one after the "
      f"other, {speed['auto']:.1f} overlapped: {speed['auto'] / speed['off']:.2f}x")
PY
