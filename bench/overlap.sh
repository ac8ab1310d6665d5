#!/usr/bin/env bash
# Measures the gain of computing during all-reduces, for prompts over a wire shaped to RATE, with
# TP=2. Run as root.
# Run: bench/overlap.sh MODEL [RATE [PROMPT_TOKENS]]        (BUILD=build ROUNDS=3)
#
# The two hosts are network namespaces of this machine, one core each.
#
# RATE is tc's, such as 1gbit (the default); the shaper's bucket holds 100 us of it. Rounds with
# --overlap off and auto alternate; figures are medians.
set -euo pipefail
rate=${2:-1gbit} prompt=${3:-512}
source "$(dirname "$0")/two_hosts.sh"

for round in $(seq "$rounds"); do
    for overlap in off auto; do
        two_ranks "$work/run.$overlap.$round" bench "$model" -p "$prompt" -n 0 -t 1 -r 1 \
            --overlap "$overlap" -o json
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
