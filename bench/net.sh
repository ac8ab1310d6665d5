#!/bin/bash
# Measures the cost and gain of the autotuner: its time at the first and at a later start, and
# all-reduces by its table beside every algorithm by name, in the same rounds.
# Run: bench/net.sh [weft net flags...]      (BUILD=build ROUNDS=5 SECONDS_EACH=0.02)
# Flags such as --local 2 --transport tcp, or --hosts and --key-file; default: --local 2.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
weft="$root/${BUILD:-build}/weft" rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-0.02}
[ $# -gt 0 ] || set -- --local 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache"
sizes=64,1K,4K,8K,16K,64K,256K,1M

for round in $(seq "$rounds"); do
    rm -rf "$XDG_CACHE_HOME"
    "$weft" net "$@" --json > "$work/first.$round"
    "$weft" net "$@" --json > "$work/later.$round"
    "$weft" net allreduce "$@" --sizes $sizes --seconds "$seconds" --json > "$work/auto.$round"
    "$weft" net allreduce "$@" --sizes $sizes --seconds "$seconds" --json --algorithm all \
        > "$work/all.$round"
done

python3 - "$work" <<'PY'
import collections, glob, json, statistics, sys
def load(name): return [json.load(open(p)) for p in glob.glob(f"{sys.argv[1]}/{name}.*")]
for name, words in (("first", "first start"), ("later", "later start")):
    runs = load(name)
    took = [run["took_ms"] for run in runs]
    print(f"{words}: {statistics.median(took):.0f} ms (most {max(took):.0f}), "
          f"{', '.join(sorted({run['source'] for run in runs}))}")
values, chosen = collections.defaultdict(list), collections.defaultdict(set)
for run in load("auto"):
    for row in run["rows"]:
        values["by table", row["size"]].append(row["p50_us"])
        chosen[row["size"]].add(row["algorithm"])
for run in load("all"):
    for row in run["rows"]: values[row["algorithm"], row["size"]].append(row["p50_us"])
names = ["by table"] + sorted({key[0] for key in values} - {"by table"})
print(f"all-reduce over {run['ranks']} ranks ({run['transport']}), p50 us, medians of "
      f"{len(load('auto'))} rounds")
print(f"{'bytes':>9}" + "".join(f"{name:>20}" for name in names) + "   chosen")
for size in sorted({key[1] for key in values}):
    line = "".join(f"{statistics.median(values[name, size]):>20.2f}" for name in names)
    print(f"{size:>9}{line}   {', '.join(sorted(chosen[size]))}")
PY
