#!/usr/bin/env bash
# Compares verbs links with perftest on Soft-RoCE, in the virtual machine of tests/rdma: the one-way
# latency of a write, and an all-reduce of two ranks; and TCP over the same cable.
# Run: bench/rdma.sh     (BUILD=build ROUNDS=3)
#
# The machine is emulated in software: its times are some 20 times longer than real ones and vary
# while other programs run. Compare only figures of one run. Rounds alternate, and each figure is
# the median of the rounds' medians.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$root/tests/rdma/guest.py" --timeout 400 --add "$root/${BUILD:-build}/weft" \
    --script "$root/bench/rdma.guest.sh" "${ROUNDS:-3}" 64 8192 > "$out" ||
    { cat "$out" && exit 1; }
python3 - "$out" <<'PY'
import collections, json, statistics, sys
values, errors = collections.defaultdict(list), 0
for line in open(sys.argv[1]):
    kind, _, rest = line.partition(" ")
    if kind == "perftest":
        size, least, typical = rest.split()
        values["perftest", int(size)].append(float(typical))
        values["least", "perftest", int(size)].append(float(least))
    elif kind == "weft":
        report = json.loads(rest)
        for row in report["rows"]:
            errors += row["errors"]
            values[report["op"], report["transport"], row["size"]].append(row["p50_us"])
            least = row.get("t_min_us", row["p50_us"])
            values["least", report["op"], report["transport"], row["size"]].append(least)
us = {key: statistics.median(v) for key, v in values.items()}
print(f"us, p50, {len(values['perftest', 64])} rounds; {errors} wrong values")
print(f"{'bytes':>6}{'ib_write_lat':>14}{'lat verbs':>11}{'lat tcp':>11}"
      f"{'allreduce verbs':>17}{'allreduce tcp':>15}")
for size in (64, 8192):
    print(f"{size:>6}{us['perftest', size]:>14.1f}{us['lat', 'verbs', size]:>11.1f}"
          f"{us['lat', 'tcp', size]:>11.1f}{us['allreduce', 'verbs', size]:>17.1f}"
          f"{us['allreduce', 'tcp', size]:>15.1f}")
print("least us, over all rounds")
for size in (64, 8192):
    least = [min(values[("least",) + key]) for key in
             (("perftest", size), ("lat", "verbs", size), ("lat", "tcp", size))]
    print(f"{size:>6}{least[0]:>14.1f}{least[1]:>11.1f}{least[2]:>11.1f}")
def judge(words, ratio, limit):
    print(f"{words}: {ratio:.2f}x (at most {limit}x: {'met' if ratio <= limit else 'NOT MET'})")
for size in (64, 8192):
    judge(f"weft net lat --transport verbs / ib_write_lat, {size} B",
          us["lat", "verbs", size] / us["perftest", size], 1.1)
judge("all-reduce of 8 KB over verbs / ib_write_lat of 8 KB",
      us["allreduce", "verbs", 8192] / us["perftest", 8192], 1.4)
PY
