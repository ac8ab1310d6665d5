# A job of two hosts when its fabric or its peer fails: it ends within its deadline, with the right
# status and a line that names what is wrong, and leaves no RDMA resource behind.
#
#   faults.guest.sh TRANSPORT
transport=$1
timeout_ms=2000
# Software emulation on a busy machine may take a second for what takes milliseconds.
bound_s=6
cd /tmp
two_hosts
/weft/tiny_model tiny.gguf
head -c 32 /dev/urandom | base64 > key
chmod 600 key

now() { cut -d' ' -f1 /proc/uptime; }

# resources: how many objects of each kind the RDMA devices hold.
resources() { rdma resource show | tr -d ':'; }

# job TOKENS: rank 0 on host a, rank 1 on host b.
job() {
    exec taskset 1 /weft/weft run tiny.gguf -p hello -n "$1" --ignore-eos -t 1 --hosts 10.77.0.2:7000 \
        --key-file key --transport "$transport" --timeout-ms "$timeout_ms"
}

# strike NAME PATTERN INFLICT MEND: a fault in the middle of decoding.
strike() {
    echo "-- $1"
    resources > before
    : > out.txt
    job 20000 > out.txt 2> err.txt &
    local pid=$! status=0 begin took patience=100
    while [ "$(wc -c < out.txt)" -lt 5 ]; do
        patience=$((patience - 1))
        [ $patience -gt 0 ] || { cat err.txt; fail "$1: the job never began"; }
        sleep 0.1
    done
    begin=$(now)
    eval "$3"
    ( sleep 20; kill -KILL $pid ) 2> /dev/null &
    local guard=$!
    wait $pid || status=$?
    kill $guard
    took=$(echo "$begin $(now)" | awk '{printf "%.1f", $2 - $1}')
    eval "$4"
    echo "status $status after $took s: $(tail -1 err.txt)"
    [ $status -eq 3 ] || { cat err.txt; fail "$1: status $status"; }
    echo "$took $bound_s" | awk '{exit !($1 <= $2)}' || fail "$1: $took s"
    grep -qE "$2" err.txt || fail "$1: the error does not name the peer"
    released "$1"
    restart_worker
}

# released NAME: no more RDMA objects than before.
released() {
    local patience=50
    while resources > after; ! cmp -s before after; do
        patience=$((patience - 1))
        [ $patience -gt 0 ] || { diff before after; fail "$1: RDMA resources are left"; }
        sleep 0.1
    done
}

# The process of rank 1: the worker's child.
peer() { cut -d" " -f1 "/proc/$worker/task/$worker/children"; }

restart_worker() {
    [ -z "${worker:-}" ] || { kill -KILL $(peer) "$worker"; wait "$worker"; } 2> /dev/null
    /weft/weft worker --listen 10.77.0.2:7000 --key-file key > worker.log 2>&1 &
    worker=$!
    local patience=50
    until grep -q listening worker.log; do
        patience=$((patience - 1))
        [ $patience -gt 0 ] || { cat worker.log; fail "no worker"; }
        sleep 0.1
    done
}

restart_worker
echo "-- the same text as one rank's"
/weft/weft run tiny.gguf -p hello -n 24 --ignore-eos -t 1 > alone.txt 2> alone.err ||
    { cat alone.err; fail "one rank"; }
resources > before
job 24 > job.txt 2> job.err || { cat job.err; fail "two ranks"; }
cmp alone.txt job.txt || fail "another text over $transport"
grep "over $transport" job.err || fail "the job did not run over $transport"
released "a whole job"

lost="rank 1 \(host .*was lost"
strike "the peer is killed" "$lost" 'kill -KILL $(peer)' :
strike "the peer is stopped" "$lost" 'kill -STOP $(peer)' :
strike "the cable is pulled" "$lost" 'ip link set veth_b down' 'ip link set veth_b up; host_routes'
strike "a partition" "$lost" 'partition add' 'partition del'
strike "the peer's address and GID are gone" "$lost" 'host_address b del' \
    'host_address b add; host_routes'
echo "all as expected"
