#!/usr/bin/env bash
# Measures how a slower wire affects decoding with TP=2, over verbs and over tcp. Two hosts are in
# the virtual machine of tests/rdma, and netem delays their cable by DELAY +- JITTER us, both ways.
# Run: bench/rdma_netem.sh [DELAY_US [JITTER_US]]     (BUILD=build ROUNDS=3 TOKENS=60 LAYERS=30)
#
# The emulated machine is too slow for a real model, so a tiny one with SmolLM2's number of layers
# makes the same number of syncs. Rounds with and without delay alternate; figures are medians. A
# token's syncs are its all-reduces, the gather of the logits and the step message. Target: a token
# loses at most syncs x added delay x 1.1. ib_write_lat of 8 bytes measures the added one-way delay.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/${BUILD:-build}
delay_us=${1:-100} jitter_us=${2:-20}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$root/tests/rdma/guest.py" --timeout 600 --add "$build/weft" --add "$build/tests/tiny_model" \
    --script "$root/bench/rdma_netem.guest.sh" "${ROUNDS:-3}" "${TOKENS:-60}" "${LAYERS:-30}" \
    "$delay_us" "$jitter_us" > "$out" || { cat "$out" && exit 1; }
python3 - "$out" "$delay_us" "$jitter_us" <<'PY'
import collections, json, statistics, sys
delay, jitter = float(sys.argv[2]), float(sys.argv[3])
pings, runs = collections.defaultdict(list), collections.defaultdict(list)
for line in open(sys.argv[1]):
    kind, _, rest = line.partition(" ")
    if kind == "ping":
        state, us = rest.split()
        pings[state].append(float(us))
    elif kind == "run":
        state, transport, report = rest.split(" ", 2)
        runs[transport, state].append(json.loads(report))
assert len({str(r["tokens"]) for key in runs for r in runs[key]}) == 1, "different tokens"
one_way = {state: statistics.median(us) for state, us in pings.items()}
added = one_way["on"] - one_way["off"]
print(f"{delay:.0f} +- {jitter:.0f} us of netem each way; ib_write_lat of 8 B: "
      f"{one_way['off']:.0f} us without, {one_way['on']:.0f} with: {added:.0f} us are added")
for transport in ("verbs", "tcp"):
    token = {s: statistics.median(1e6 / r["decode_tok_s"] for r in runs[transport, s])
             for s in ("off", "on")}
    syncs = round(runs[transport, "on"][0]["all_reduce"]["per_token"]) + 2
    loss = token["on"] - token["off"]
    ratio = loss / (syncs * added)
    print(f"{transport}: a token {token['off'] / 1e3:.1f} ms, delayed {token['on'] / 1e3:.1f} ms: "
          f"lost {loss / 1e3:.2f} ms = {syncs} syncs x {loss / syncs:.0f} us = {ratio:.2f}x what is "
          f"added (at most 1.1x: {'met' if ratio <= 1.1 else 'NOT MET'})")
PY
