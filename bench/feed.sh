#!/usr/bin/env bash
# Compares the speed of --weights-from 0 with that of the wire. Two hosts are two network namespaces
# of this machine, one core each; the wire between them is shaped to RATE. Run as root.
# Run: bench/feed.sh MODEL [RATE]        (BUILD=build ROUNDS=3)
#
# RATE is tc's, such as 1gbit (the default), or "none". The raw wire is measured with one TCP stream
# of Python's sockets in 1 MiB pieces, in the same rounds. Figures are medians.
set -euo pipefail
rate=${2:-1gbit}
source "$(dirname "$0")/two_hosts.sh"

cat > "$work/raw.py" <<'PY'
import socket, sys, time
role, size = sys.argv[1], int(sys.argv[2])
piece = bytearray(1 << 20)
if role == "receive":
    listener = socket.create_server(("10.77.0.2", 7001))
    print("listening", flush=True)
    peer = listener.accept()[0]
    got = 0
    while got < size:
        got += peer.recv_into(piece)
    peer.sendall(b"1")
else:
    peer = socket.create_connection(("10.77.0.2", 7001))
    begin = time.monotonic()
    for _ in range(size >> 20):
        peer.sendall(piece)
    peer.recv(1)
    print(size / (time.monotonic() - begin))
PY

bytes=$((256 << 20))
for round in $(seq "$rounds"); do
    on_b python3 "$work/raw.py" receive "$bytes" > "$work/receiver" &
    wait_for listening "$work/receiver"
    on_a python3 "$work/raw.py" send "$bytes" > "$work/raw.$round"
    rm "$work/receiver"
    for from in own fed; do
        feed=()
        [ "$from" = own ] || feed=(--weights-from 0)
        two_ranks "$work/$from.$round" run "$model" --raw -p hi -n 1 -t 1 --json "${feed[@]}"
    done
done

python3 - "$work" "$rate" <<'PY'
import glob, json, statistics, sys
work, rate = sys.argv[1:]
median = lambda values: statistics.median(list(values))
raw = median(float(open(p).read()) for p in glob.glob(f"{work}/raw.*") if not p.endswith(".py"))
runs = {k: [json.load(open(p)) for p in glob.glob(f"{work}/{k}.*")] for k in ("own", "fed")}
load = {k: median(r["ranks"][1]["load_s"] for r in v) for k, v in runs.items()}
received = runs["fed"][0]["ranks"][1]["received_bytes"]
speed = received / load["fed"]
print(f"wire {rate}: raw TCP {raw / 1e6:.0f} MB/s; rank 1 received {received / 1e6:.0f} MB, load "
      f"{load['fed']:.2f} s = {speed / 1e6:.0f} MB/s, {speed / raw:.2f} of the wire; from its own "
      f"file {load['own']:.2f} s")
PY
