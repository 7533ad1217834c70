#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# scripts/torture rcache where it cannot run, or is told to end: it says why,
# and what can be done about it, and leaves no process behind.
set -u
build=${BUILD:-build}
torture=$(realpath "$build/torture")
confine=$(realpath "$build/tests/confine")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

bad() {
    echo "FAILED  $1"
    sed 's/^/    /' "$tmp/out"
    status=1
}

# expect STATUS PATTERN WHAT COMMAND...
expect() {
    want=$1 pattern=$2 what=$3
    shift 3
    "$@" > "$tmp/out" 2>&1
    got=$?
    if [ $got = "$want" ] && grep -qE "$pattern" "$tmp/out"; then
        echo "ok      $what: $(grep -E "$pattern" "$tmp/out" | head -n 1)"
    else
        bad "$what: status $got, not $want, or not '$pattern'"
    fi
}

expect 0 'Exit status: 0 .* 77' help "$torture" rcache --help
expect 2 'bad value' usage "$torture" rcache --seconds 0
expect 2 'bad value' usage "$torture" rcache --allocator nothing
"$torture" rcache --seconds 1 --mode control > "$tmp/out" 2>&1
if [ $? = 77 ]; then
    cat "$tmp/out"
    exit 77
fi

expect 0 'PASS control' 'the last mode counts' "$torture" rcache --seconds 1 \
    --mode cache --mode control

# io_uring_setup, _enter and _register; as kernel.io_uring_disabled does it,
# as seccomp profiles do, and as a kernel without it.
for call in 425 426 427; do
    expect 77 'skipped: .*forbidden' "call $call is forbidden" \
        "$confine" "errno:$call:1" -- "$torture" rcache --seconds 1
    expect 77 'skipped: .*no io_uring' "there is no call $call" \
        "$confine" "errno:$call:38" -- "$torture" rcache --seconds 1
done

# Of a user of our own, whose pinned memory nobody else has a share in.
user=$((60000 + $$ % 5000))
alone() { # KiB that may be locked, then the command
    kib=$1
    shift
    prlimit --memlock=$((kib * 1024)) setpriv --reuid $user --regid $user \
        --clear-groups "$@"
}
if [ "$(id -u)" != 0 ]; then
    echo "skip: another user's limits, since this is not root"
elif ! alone 64 "$torture" rcache --help > /dev/null 2>&1; then
    echo "skip: another user's limits, since $torture is not for others"
else
    expect 77 'RLIMIT_MEMLOCK is 64 KiB: raise it' 'little may be pinned' \
        alone 64 "$torture" rcache --seconds 1
    expect 0 'PASS cache' '8 MiB are enough, with merging' alone 8192 \
        "$torture" rcache --seconds 2 --mode cache --seed 3
    expect 0 'PASS cache' 'little more than is in use is enough' alone 640 \
        "$torture" rcache --seconds 2 --mode cache --seed 1 --threads 1
fi

# A signal ends it in good order, also when its child gets it too, as from a
# terminal.
children() {
    pgrep -f "^torture --rcache-child .* $1 [01] [01]\$"
}
for signal in INT TERM; do
    seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
    # In a session of its own: a shell's jobs ignore SIGINT.
    setsid env --default-signal=INT "$torture" rcache --seconds 20 \
        --seed "$seed" > "$tmp/out" 2>&1 &
    pid=$!
    sleep 1.5
    kill -s $signal -- -$pid
    wait $pid
    got=$?
    [ $got -gt 128 ] || bad "SIG$signal: status $got"
    grep -q "interrupted after .* s by" "$tmp/out" ||
        bad "SIG$signal: it does not say so"
    grep -q "PASS cache" "$tmp/out" || bad "SIG$signal: not in good order"
    grep -q "phase control" "$tmp/out" && bad "SIG$signal: it goes on"
    [ -z "$(children "$seed")" ] || bad "SIG$signal: a child is left"
    echo "ok      SIG$signal"
done
seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
"$torture" rcache --seconds 20 --seed "$seed" > "$tmp/out" 2>&1 &
pid=$!
sleep 1
[ -n "$(children "$seed")" ] || bad "SIGKILL: there is no child to look for"
kill -KILL $pid
wait $pid 2> /dev/null
sleep 0.5
[ -z "$(children "$seed")" ] && echo "ok      SIGKILL" ||
    bad "SIGKILL: a child is left"
exit $status
