#!/bin/bash
# Measures an all_reduce between processes of this machine, over shm and tcp, on cores 0 and 1: two
# ranks, four ranks (two per core), and four waiting ranks. With a folder of peer programs, it also
# measures Open MPI's all_reduce and raw exchanges in the same rounds, and prints each target figure
# with its limit and "met" or "NOT MET".
# Run: bench/fabric.sh [PEERS_FOLDER]      (BUILD=build RUN_S=30 SECONDS_EACH=0.03)
#
# PEERS_FOLDER holds mpi_allreduce.c, shm_pingpong.c and tcp_pingpong.c; needs mpicc and mpirun.
# On a virtual machine the distance of the two cores, and with it every latency, changes over time.
# So a probe (64 B through shared memory) runs before and after each program: "near" is below 0.15
# us one way, "far" above; a run that saw both is dropped. Figures are medians over rounds.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bench="$root/${BUILD:-build}/bench/all_reduce_bench"
seconds=${SECONDS_EACH:-0.03} run_s=${RUN_S:-30} peers=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "$peers" ]; then
    mpicc -O2 "$peers/mpi_allreduce.c" -o "$work/mpi_2"
    # The same program for four ranks on two cores.
    sed 's/size != 2/size != 4/; s/CPU_SET(rank,/CPU_SET(rank % 2,/
         s/2.0f \* (float)(i % 7) + 1.0f/4.0f * (float)(i % 7) + 6.0f/' \
        "$peers/mpi_allreduce.c" > "$work/mpi_4.c"
    mpicc -O2 "$work/mpi_4.c" -o "$work/mpi_4"
    for name in tcp_pingpong shm_pingpong; do cc -O2 "$peers/$name.c" -o "$work/$name"; done
fi

keep() {  # keep NAME COMMAND...: its JSON goes to NAME.ROUND, the probes to NAME.ROUND.state
    local out="$work/$1.$round" before; shift
    before=$("$bench" --probe)
    timeout 10 "$@" > "$out" 2> /dev/null || echo "[]" > "$out"
    echo "$before $("$bench" --probe)" > "$out.state"
}

mpi() {  # the ob1 layer is requested by name: with UCX installed Open MPI would not use its own
    keep "$1" mpirun --allow-run-as-root --oversubscribe -n "$2" --bind-to none --mca pml ob1 \
        "${@:3}" "$work/mpi_$2" "$seconds"
}

round=0
while [ $SECONDS -lt "$run_s" ]; do
    round=$((round + 1))
    for transport in shm tcp; do
        keep "weft_$transport" "$bench" --transport "$transport" --seconds "$seconds"
    done
    if [ -n "$peers" ]; then
        mpi mpi_shm 2 --mca btl self,vader
        mpi mpi_tcp 2 --mca btl self,tcp --mca btl_tcp_if_include lo
        keep raw_shm "$work/shm_pingpong" "$seconds"
        keep raw_tcp "$work/tcp_pingpong" "$seconds"
    fi
    [ $((round % 3)) = 1 ] || continue
    for transport in shm tcp; do
        keep "weft4_$transport" "$bench" --ranks 4 --transport "$transport" --seconds "$seconds"
        keep "idle_$transport" "$bench" --ranks 4 --transport "$transport" --idle 0.5
    done
    if [ -n "$peers" ]; then
        mpi mpi4_shm 4 --mca btl self,vader --mca mpi_yield_when_idle 1
        mpi mpi4_tcp 4 --mca btl self,tcp --mca btl_tcp_if_include lo --mca mpi_yield_when_idle 1
    fi
done
python3 "$root/bench/fabric_report.py" "$work"
