#!/bin/bash
# What an all_reduce costs between two processes of this machine, shm and tcp, cores 0 and 1; with
# a folder of peer programs also what Open MPI's costs, and raw exchanges, in the same rounds.
# Run: bench/fabric.sh [PEERS_FOLDER]      (BUILD=build RUN_S=30 SECONDS_EACH=0.03)
#
# PEERS_FOLDER holds mpi_allreduce.c, shm_pingpong.c and tcp_pingpong.c; needs mpicc and mpirun.
# On a virtual machine the distance of the two cores changes while it runs, and every latency with
# it. So each program is bracketed by a probe (64 B through shared memory): "near" below 0.15 us
# one way, "far" above; a program that saw both is left out. Figures are medians over rounds.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bench="$root/${BUILD:-build}/bench/all_reduce_bench"
seconds=${SECONDS_EACH:-0.03} run_s=${RUN_S:-30} peers=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "$peers" ]; then
    mpicc -O2 "$peers/mpi_allreduce.c" -o "$work/mpi_allreduce"
    for name in tcp_pingpong shm_pingpong; do cc -O2 "$peers/$name.c" -o "$work/$name"; done
fi

keep() {  # keep NAME COMMAND...: its JSON goes to NAME.ROUND, the probes to NAME.ROUND.state
    local out="$work/$1.$round" before; shift
    before=$("$bench" --probe)
    timeout 10 "$@" > "$out" 2> /dev/null || echo "[]" > "$out"
    echo "$before $("$bench" --probe)" > "$out.state"
}

mpi() {  # the ob1 layer is asked for by name: with UCX installed Open MPI would not use its own
    keep "$1" mpirun --allow-run-as-root -n 2 --bind-to none --mca pml ob1 "${@:2}" \
        "$work/mpi_allreduce" "$seconds"
}

round=0
while [ $SECONDS -lt "$run_s" ]; do
    round=$((round + 1))
    for transport in shm tcp; do
        keep "weft_$transport" "$bench" --transport "$transport" --seconds "$seconds"
    done
    if [ -n "$peers" ]; then
        mpi mpi_shm --mca btl self,vader
        mpi mpi_tcp --mca btl self,tcp --mca btl_tcp_if_include lo
        keep raw_shm "$work/shm_pingpong" "$seconds"
        keep raw_tcp "$work/tcp_pingpong" "$seconds"
    fi
done

python3 - "$work" <<'PY'
import collections, glob, json, os, statistics, sys
values = collections.defaultdict(list)
for path in glob.glob(sys.argv[1] + "/*.state"):
    name = os.path.basename(path).split(".")[0]
    distances = [float(word) < 0.15 for word in open(path).read().split()]
    state = {(True, True): "near", (False, False): "far"}.get(tuple(distances))
    rows = json.load(open(path.removesuffix(".state")))
    for row in rows["rows"] if isinstance(rows, dict) else rows:
        if state:
            us = row.get("p50_us", row.get("exchange_p50_us"))
            values[state, name, row["bytes"]].append(us)
median = {key: statistics.median(v) for key, v in values.items()}
sizes = sorted({key[2] for key in values})
print("median us of one all_reduce of f32, 2 ranks (raw: an exchange without adding)")
for state in ("near", "far"):
    for wire in ("shm", "tcp"):
        names = [n + "_" + wire for n in ("weft", "mpi", "raw") if
                 any((state, n + "_" + wire, b) in median for b in sizes)]
        if "weft_" + wire not in names: continue
        rounds = len(values[state, "weft_" + wire, sizes[0]])
        print(f"\n{state} cores, {rounds} rounds\n{'bytes':>9}" +
              "".join(f"{n:>10}" for n in names) + ("   mpi/weft" if len(names) > 1 else ""))
        for b in sizes:
            row = [median.get((state, n, b), float("nan")) for n in names]
            line = f"{b:>9}" + "".join(f"{us:>10.2f}" for us in row)
            print(line + (f"{row[1] / row[0]:>10.2f}x" if len(row) > 1 else ""))
PY
