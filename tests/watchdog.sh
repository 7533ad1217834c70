#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# LAPSE_WATCHDOG: what hangs is reported once, with who waits for whom; what
# does not hang is not; and the program does not notice that it was looked at.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
bad=0
fail() {
    echo "FAILED  $*"
    sed 's/^/        /' "$tmp/$1"
    bad=1
}

# All at once: each takes seconds of waiting.
start() { # NAME SECONDS WHAT [ENVIRONMENT...]
    name=$1 seconds=$2 what=$3
    shift 3
    (
        env LAPSE_WATCHDOG="$seconds" "$@" "$build/tests/watchdog_client" \
            "$what" > "$tmp/$name.out" 2> "$tmp/$name"
        echo $? > "$tmp/$name.status"
    ) &
}
mkdir "$tmp/lib"
cp "$build/liblapse.so" "$tmp/lib/liblapse.so"
ln -s liblapse.so "$tmp/lib/liblapse.so.0"

start good 1 good
start off 0 callback
start callback 1 callback
start poll 1 poll
start twice 1 twice
start fork 1 fork
start last 1 last
start raw 1 raw
start alone 1 callback LD_LIBRARY_PATH="$tmp/lib"
start wrong x good

# Killed when what runs the command is made, and not told to begin yet: it may
# not be left over. strace holds the library's thread up there.
killed() {
    LAPSE_WATCHDOG=1 "$build/tests/watchdog_client" callback \
        > "$tmp/killed" 2>&1 &
    pid=$!
    tid=
    for _ in 1 2 3 4 5 6 7 8 9; do
        tid=$(grep -ls lapse-watchdog /proc/$pid/task/*/comm) && break
        sleep 0.1
    done
    tid=$(basename "$(dirname "$tid")")
    strace -p "$tid" -e trace=clone -e inject=clone:delay_exit=5000000 \
        -o "$tmp/clone" 2> "$tmp/strace" &
    tracer=$!
    for _ in $(seq 60); do
        grep -qs = "$tmp/clone" && break
        sleep 0.1
    done
    kill -9 $pid
    kill -9 $tracer # it would let the dying wait
    sed -n 's/^clone(.* = \([0-9]*\) .*/\1/p' "$tmp/clone" > "$tmp/helper"
    for _ in 1 2 3 4 5 6 7 8 9; do
        sleep 0.2
        [ -e "/proc/$(cat "$tmp/helper")/exe" ] || break
    done
    [ -e "/proc/$(cat "$tmp/helper")/exe" ] && kill -9 "$(cat "$tmp/helper")" &&
        echo "what was to run the command is left over" > "$tmp/left"
} 2> /dev/null
killed &
wait
if [ ! -s "$tmp/helper" ]; then
    echo "skipped: strace may not trace here: $(cat "$tmp/strace")"
elif [ -e "$tmp/left" ]; then
    fail left
fi
for name in good off callback poll twice fork last raw alone wrong; do
    [ "$(cat "$tmp/$name.status")" = 7 ] ||
        fail $name "exit status $(cat "$tmp/$name.status"), not 7"
    [ -s "$tmp/$name.out" ] && fail $name "wrote to stdout"
done
[ -s "$tmp/good" ] && fail good "something was reported on a good day"
[ -s "$tmp/off" ] && fail off "something was reported with 0 seconds"

# has NAME TIMES TEXT
has() {
    n=$(grep -cE -- "$3" "$tmp/$1")
    [ "$n" = "$2" ] || fail "$1" "'$3' $n times, not $2"
}
late='has not come back for 1 s, in thread [0-9]+$'
has callback 1 "watchdog: the callback 0x[0-9a-f]+ of subscriber 0 $late"
has callback 1 "watchdog: lapse_sync of subscriber 0 $late"
has callback 1 'in drainer_main .drainer. > client_callback .callback, subs'
has callback 1 'waits for a mutex at mutex.*, held by thread'
has callback 1 'waits for the end of the callbacks that thread'
has callback 1 '^Deadlock: thread [0-9]* waits for [0-9]*, thread [0-9]* waits'
has callback 0 'no stacks'

has poll 2 "watchdog: lapse_poll of subscriber 0 $late"
has poll 1 'waits for a lock of the library at .*, held by thread'
has poll 0 'Deadlock'

has twice 2 "watchdog: the callback .* $late"
has fork 1 "watchdog: the callback .* $late"
has fork 1 "watchdog: lapse_sync .* $late"
has fork 0 'no stacks'

has last 1 "watchdog: the callback .* $late"
has last 1 'waits for a mutex at mutex.*, held by thread'
has last 0 'no stacks'

for name in raw alone; do
    has $name 1 "watchdog: the callback .* $late"
    has $name 0 '^Deadlock'
    has $name 1 'no stacks, or not all; to see them: lapse stacks --thread'
done
has wrong 1 'LAPSE_WATCHDOG=x: want a number of seconds from 0 to 1000000'
[ $bad = 0 ] && echo "ok      LAPSE_WATCHDOG"
exit $bad
