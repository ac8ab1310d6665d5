# A job of two hosts when its fabric or its peer fails, or is not fit from the start: it ends within
# its deadline, with the right status and a line that names what is wrong, and leaves no RDMA
# object behind.
#
#   faults.guest.sh [--short] TRANSPORT...     short: a fault of each kind
# A timeout of 3 s; a job ends within that, as much again for a farewell that nobody answers, and
# what software emulation takes. All of it grows with the slowness of the machine, which is measured
# before each fault.
idle_timeout_ms=3000
idle_bound_s=10
short=
[ "$1" != --short ] || { short=yes; shift; }
cd /tmp
two_hosts
/weft/tiny_model tiny.gguf
head -c 32 /dev/urandom | base64 > key
chmod 600 key
# job TOKENS [FLAG...]: rank 0 on host a, rank 1 on host b.
cat > /bin/job <<'JOB'
#!/usr/bin/sh
tokens=$1
shift
exec taskset 1 /weft/weft run tiny.gguf --greedy -p hello -n "$tokens" --ignore-eos -t 1 \
    --hosts "${HOSTS:-10.77.0.2:7000}" --key-file key --transport "$transport" \
    --timeout-ms "$timeout_ms" "$@"
JOB
chmod +x /bin/job

# Before each fault.
measure() {
    measure_slowness
    timeout_ms=$(slower $idle_timeout_ms)
    bound_s=$(slower $idle_bound_s)
    export timeout_ms
}

now() { cut -d' ' -f1 /proc/uptime; }

restart_worker() {
    [ -z "${worker:-}" ] || { kill -KILL $(peer) "$worker"; wait "$worker"; } 2> /dev/null
    : > worker.log
    taskset 2 /weft/weft worker --listen 0.0.0.0:7000 --key-file key > worker.log 2>&1 &
    worker=$!
    wait_for listening worker.log
}

# The process of rank 1: the worker's child.
peer() { cut -d' ' -f1 "/proc/$worker/task/$worker/children"; }

# resources: how many objects of each kind the RDMA devices hold, whatever the devices' numbers.
resources() { rdma resource show | sed 's/^[0-9]*: //' | sort; }

as_before() { resources > after && cmp -s before after; }

# released NAME: no more RDMA objects than before.
released() {
    wait_until 5 as_before || { cat before after; fail "$1: RDMA objects are left"; }
}

# ended NAME BEGIN STATUS PATTERN: the job's end was in time, and its words are right.
ended() {
    local took
    took=$(echo "$2 $(now)" | awk '{printf "%.1f", $2 - $1}')
    echo "status $3 after $took s: $(tail -1 err.txt)"
    echo "$took $bound_s" | awk '{exit !($1 <= $2)}' || fail "$1: it took $took s"
    grep -qE "$4" err.txt || { cat err.txt; fail "$1: the error does not say what is wrong"; }
    released "$1"
}

decodes() { [ "$(wc -c < out.txt)" -ge 5 ]; }
decodes_or_ended() { decodes || ! [ -e "/proc/$pid" ]; }

# begun NAME: a job that decodes, as process $pid.
begun() {
    : > out.txt
    job 20000 > out.txt 2> err.txt &
    pid=$!
    wait_until 15 decodes_or_ended
    decodes || { cat err.txt worker.log; fail "$1: the job never began"; }
}

# strike NAME INFLICT MEND [PATTERN]: a fault in the middle of decoding.
strike() {
    echo "-- $transport: $1"
    local pid guard begin status=0
    measure
    begun "$1"
    begin=$(now)
    eval "$2"
    ( sleep $((2 * bound_s)); kill -KILL $pid ) 2> /dev/null &
    guard=$!
    wait $pid || status=$?
    kill $guard
    eval "$3"
    restart_worker
    [ $status -eq 3 ] || { cat err.txt; fail "$1: status $status"; }
    ended "$1" "$begin" $status "${4:-rank 1 \(host .*(was lost|data link broke)}"
}

# refused NAME PATTERN COMMAND...: a job that cannot begin prints the reason.
refused() {
    local name=$1 pattern=$2 begin status=0
    shift 2
    echo "-- $transport: $name"
    measure
    begin=$(now)
    "$@" > out.txt 2> err.txt || status=$?
    [ $status -eq 1 ] || [ $status -eq 2 ] || { cat err.txt; fail "$name: status $status"; }
    ended "$name" "$begin" $status "$pattern"
    restart_worker
}

# as_user LIMIT TOKENS: a job of a user other than root, who may lock LIMIT KiB of memory.
as_user() {
    mkdir -p home
    cp key tiny.gguf home
    chown -R user home
    su user -s /usr/bin/sh -c "cd /tmp/home && ulimit -l $1 && exec timeout $((2 * bound_s)) job $2"
}

# A whole job gives the text of one rank, and runs over the transport.
whole() {
    echo "-- $transport: the text is that of one rank"
    measure
    job 24 > job.txt 2> err.txt || { cat err.txt worker.log; fail "two ranks"; }
    cmp alone.txt job.txt || fail "another text over $transport"
    grep "over $transport" err.txt || fail "the job did not run over $transport"
    released "a whole job"
}

strikes() {
    strike "the peer is killed" 'kill -KILL $(peer)' :
    strike "the cable is pulled" 'ip link set veth_b down' 'ip link set veth_b up; host_routes'
    [ -z "$short" ] || return 0
    strike "the peer is stopped" 'kill -STOP $(peer)' :
    strike "a partition" 'partition add' 'partition del'
    strike "the peer's address and GID are gone" 'host_address b del' \
        'host_address b add; host_routes'
}

# remove_device a|b: as if its card were pulled out. Soft-RoCE removes a device only once nobody
# holds one of its objects: the removal proves that all were released.
remove_device() {
    rm -f removed
    ( rdma link delete "rxe_$1" && touch removed ) &
    remover=$!
}

add_device() {
    wait_until 5 [ -e removed ] || { resources; fail "rxe_$1 is held by somebody"; }
    wait $remover
    rdma link add "rxe_$1" type rxe netdev "veth_$1"
}

removals() {
    strike "the peer's device is removed" 'remove_device b' 'add_device b' \
        'RDMA device rxe_b of host guest is gone'
    [ -z "$short" ] || return 0
    strike "this host's device is removed" 'remove_device a' 'add_device a' \
        'RDMA device rxe_a of host guest is gone'
}

# Faults that keep a verbs job from beginning.
refusals() {
    refused "too little memory may be locked" "memlock" as_user 64 4
    chmod 600 /dev/infiniband/*
    refused "no permission for the device" "permission.*/dev/infiniband" as_user unlimited 4
    chmod 666 /dev/infiniband/*
    refused "a GID that isn't there" "gid-index 9.*no GID" timeout $((2 * bound_s)) job 4 --gid-index 9
    ip addr add 10.78.0.1/32 dev lo
    refused "peers that no RDMA port reaches" "no RDMA port has" \
        env HOSTS=10.78.0.1:7000 timeout $((2 * bound_s)) job 4
    rdma link delete rxe_a
    rdma link delete rxe_b
    resources > before
    refused "no RDMA device" "no RDMA device" timeout $((2 * bound_s)) job 4
}

/weft/weft run tiny.gguf --greedy -p hello -n 24 --ignore-eos -t 1 > alone.txt 2> err.txt ||
    { cat err.txt; fail "one rank"; }
measure
restart_worker
resources > before
cat before
for transport in "$@"; do
    export transport
    whole
    strikes
    [ "$transport" != verbs ] || { removals; refusals; }
done
echo "all as expected"
