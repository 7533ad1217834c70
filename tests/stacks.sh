#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# lapse stacks: where threads stand and what they wait for, against a victim
# that is known and against gdb; on the deadlock that the library is for; and
# the process is as it was, also when lapse is killed.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
lapse=$build/lapse
tmp=$(mktemp -d) || exit 2
victim=
torture=
tracer=
end() {
    exec 3>&-
    for p in $tracer $torture $victim; do
        kill -KILL "$p" 2> /dev/null
    done
    rm -rf "$tmp"
}
trap end EXIT
bad=0
fail() {
    echo "FAILED  $*"
    bad=1
}

mkfifo "$tmp/in"
"$build/tests/threads_victim" < "$tmp/in" > "$tmp/victim" &
victim=$!
exec 3> "$tmp/in"
for _ in $(seq 100); do
    grep -q ready "$tmp/victim" && break
    sleep 0.1
done

# 1. against gdb
"$lapse" stacks --json --all-frames "$victim" > "$tmp/json" ||
    fail "lapse stacks: exit status $?"
env -u DEBUGINFOD_URLS gdb -nx -batch -p "$victim" -x tests/threads_gdb.py \
    > "$tmp/gdb" 2> "$tmp/gdb.err"
grep -v '^ready$' "$tmp/victim" > "$tmp/names"
python3 tests/stacks.py "$tmp/names" "$tmp/json" "$tmp/gdb" || bad=1

# 2. the choice of threads and frames
tid() { sed -n "s/^$1 //p" "$tmp/names"; }
"$lapse" stacks --thread "$(tid join)" --top 3 "$victim" > "$tmp/out" ||
    fail "--thread: exit status $?"
shown=$(sed -n 's/^thread \([0-9]*\) .*/\1/p' "$tmp/out" | sort | tr '\n' ' ')
want=$(printf '%s\n' "$(tid join)" "$(tid mutex)" "$(tid holds)" | sort |
    tr '\n' ' ')
[ "$shown" = "$want" ] || fail "--thread shows $shown, not $want"
grep -q '#3 ' "$tmp/out" && fail "--top 3 shows more"
grep -q 'and [0-9]* more (--all-frames)' "$tmp/out" || fail "nothing is said \
of further frames"
"$lapse" stacks "$(tid read)" | grep -q "(pid $victim)" ||
    fail "a thread's number is not good for its process"

# 3. what cannot be done is said
says() { # STATUS TEXT COMMAND...
    want=$1 text=$2
    shift 2
    "$@" > "$tmp/out" 2> "$tmp/err"
    status=$?
    [ $status = "$want" ] || fail "$*: exit status $status, not $want"
    grep -q -- "$text" "$tmp/err" || fail "$*: no '$text': $(cat "$tmp/err")"
}
says 2 'no process was named' "$lapse" stacks
says 2 "wants a number, not 'x'" "$lapse" stacks x
says 125 'there is no process 4999999' "$lapse" stacks 4999999
if [ "$(cat /proc/2/comm 2> /dev/null)" = kthreadd ] && [ "$(id -u)" = 0 ]; then
    "$lapse" stacks 2 > "$tmp/out" 2> "$tmp/err"
    grep -q '^thread 2 ' "$tmp/out" || fail "a thread of the kernel"
    grep -q 'in the call' "$tmp/out" && fail "the kernel waits in a call"
else
    echo "skip: threads of the kernel, which are not to be seen here"
fi
if [ "$(id -u)" = 0 ]; then
    cp "$lapse" "$tmp/lapse" && chmod 755 "$tmp" "$tmp/lapse"
    says 125 'is that of user 0' setpriv --reuid 65534 --clear-groups \
        "$tmp/lapse" stacks "$victim"
else
    echo "skip: another user's process, as this is not root"
fi
strace -f -o /dev/null -p "$victim" 2> "$tmp/strace" &
tracer=$!
for _ in $(seq 50); do
    grep -q attached "$tmp/strace" && break
    sleep 0.1
done
says 125 "is traced by process $tracer already" "$lapse" stacks "$victim"
kill -INT "$tracer"
wait "$tracer"
tracer=

# 4. the process is as it was
states() {
    for t in /proc/"$victim"/task/*; do
        awk '/^State|^TracerPid/ { printf "%s ", $2 }' "$t/status"
    done
}
before=$(states)
for i in $(seq 60); do
    "$lapse" stacks "$victim" > "$tmp/out" 2>&1 &
    p=$!
    sleep "0.00$((i % 10))"
    kill -KILL $p
    wait $p
done 2> /dev/null
sleep 0.2
[ "$(states)" = "$before" ] || fail "killed amid it: $(states), not $before"
kill -STOP "$victim"
sleep 0.1
stopped=$(states)
"$lapse" stacks "$victim" > "$tmp/out" || fail "of a stopped process: $?"
grep -q victim_deep "$tmp/out" || fail "no stacks of a stopped process"
[ "$(states)" = "$stopped" ] || fail "stopped: $(states), not $stopped"
kill -CONT "$victim"
sleep 0.1
[ "$(states)" = "$before" ] || fail "continued: $(states), not $before"
# A thread that is stopped as a signal comes must get it all the same.
python3 -c 'import os, sys, time
for i in range(30000):
    os.kill(int(sys.argv[1]), 34)
    time.sleep(0.00001)' "$victim" &
sender=$!
while kill -0 $sender 2> /dev/null; do
    "$lapse" stacks --top 1 "$victim" > "$tmp/out"
done
wait $sender
sleep 0.2
exec 3>&-
wait "$victim" || fail "the victim's exit status is $?"
victim=
grep -qx 'signals 30000' "$tmp/victim" ||
    fail "of 30000 signals: $(tail -n 1 "$tmp/victim")"

# 5. who waits for whom in the deadlock that the library is for
"$build/torture" deadlock --mode sync --threads 1 > "$tmp/torture" 2>&1 &
torture=$!
seen=
for _ in $(seq 100); do
    child=$(pgrep -P "$torture" | head -n 1)
    [ -n "$child" ] &&
        "$lapse" stacks "$child" > "$tmp/deadlock" 2> "$tmp/err" &&
        grep -q '^Perhaps a deadlock: ' "$tmp/deadlock" && seen=1 && break
    sleep 0.05
done
if [ -n "$seen" ]; then
    grep -q 'in free (allocator) > hook_.* (hook) > cache_handler (inline' \
        "$tmp/deadlock" || fail "nobody is in a handler in a hook in free"
    grep -q 'waits for a mutex at cache_mutex.*, held by thread' \
        "$tmp/deadlock" || fail "nobody waits for the cache's mutex"
    grep -q "waits for malloc's lock of an arena at .*, held perhaps by" \
        "$tmp/deadlock" || fail "nobody waits for the arena"
    [ $bad = 0 ] || cat "$tmp/deadlock"
else
    fail "no circle was found in the deadlock"
    cat "$tmp/deadlock" "$tmp/err"
fi
[ $bad = 0 ] && echo "ok      lapse stacks"
exit $bad
