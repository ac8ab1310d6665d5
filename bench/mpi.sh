#!/bin/bash
# Compares an all_reduce over `mpi` links with the raw MPI_Allreduce of the same library, for two
# ranks on cores 0 and 1, in the same rounds: Open MPI and MPICH, if installed, each over shared
# memory and (Open MPI) over TCP.
# Run: bench/mpi.sh PEERS_FOLDER      (BUILD=build ROUNDS=3 SECONDS_EACH=0.03 SIZES=64,...)
#
# PEERS_FOLDER holds mpi_allreduce.c. Figures are medians over rounds; the target is 1.25 times the
# library's own.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bench="$root/${BUILD:-build}/bench/mpi_all_reduce_bench"
export WEFT_PLUGIN_DIR=${WEFT_PLUGIN_DIR:-$root/${BUILD:-build}}
seconds=${SECONDS_EACH:-0.03} rounds=${ROUNDS:-3} peers=${1:?the folder of mpi_allreduce.c}
sizes=${SIZES:-64,256,1024,4096,8192,16384,65536,262144,1048576}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pair NAME RAW LAUNCHER...: runs both programs under one launcher, one after the other.
pair() {
    local name=$1 raw=$2
    shift 2
    timeout 30 "$@" "$bench" --bytes "$sizes" --seconds "$seconds" >"$work/$name.weft.$round" \
        2>"$work/errors" || { cat "$work/errors" >&2 && rm "$work/$name.weft.$round"; }
    timeout 30 "$@" "$raw" "$seconds" >"$work/$name.raw.$round" 2>/dev/null ||
        rm "$work/$name.raw.$round"
}

open=(mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 --bind-to none --mca pml ob1)
for flavour in openmpi mpich; do
    command -v "mpicc.$flavour" >/dev/null || continue
    "mpicc.$flavour" -O2 "$peers/mpi_allreduce.c" -o "$work/raw_$flavour"
done
for round in $(seq "$rounds"); do
    if [ -x "$work/raw_openmpi" ]; then
        pair openmpi-shm "$work/raw_openmpi" "${open[@]}" --mca btl self,vader
        pair openmpi-tcp "$work/raw_openmpi" "${open[@]}" --mca btl self,tcp \
            --mca btl_tcp_if_include lo
    fi
    if [ -x "$work/raw_mpich" ]; then
        pair mpich-shm "$work/raw_mpich" mpirun.mpich -n 2
    fi
done

python3 - "$work" "$sizes" <<'PY'
import collections, glob, json, os, statistics, sys
values = collections.defaultdict(list)
for path in glob.glob(sys.argv[1] + "/*-*.*.*"):
    name, side, _ = os.path.basename(path).split(".")
    for row in json.load(open(path)):
        values[name, row["bytes"], side].append(row["p50_us"])
met = True
for name in sorted({key[0] for key in values}):
    print(f"{name}: median us of one all_reduce of f32, 2 ranks\n"
          f"{'bytes':>9}{'mpi links':>11}{'raw':>9}{'ratio':>8}")
    for size in map(int, sys.argv[2].split(",")):
        weft, raw = values.get((name, size, "weft")), values.get((name, size, "raw"))
        if not weft or not raw: continue
        ours, theirs = statistics.median(weft), statistics.median(raw)
        good = ours <= 1.25 * theirs
        met = met and good
        print(f"{size:>9}{ours:>11.2f}{theirs:>9.2f}{ours / theirs:>8.2f}  "
              f"{'met' if good else 'NOT MET'}")
print("mpi links <= 1.25 x MPI_Allreduce at every size:", "met" if met and values else "NOT MET")
PY
