# Waits of shell scripts in tests for an event that nobody signals; the same as wait.h. Scripts source
# it: '. tests/support/wait.sh'.

# wait_until COMMAND...: until the command succeeds; fails after 300 s, which only end a hang.
wait_until() {
    waits=0
    until "$@"; do
        waits=$((waits + 1))
        [ $waits -lt 15000 ] || return 1
        sleep 0.02
    done
}

# stay_until_term COMMANDS: does nothing until SIGTERM comes, and then runs the commands.
stay_until_term() {
    sleep infinity &
    trap "kill $!; $1" TERM
    wait $!
}
