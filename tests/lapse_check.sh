#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The command `lapse check`. lapse_check.sh ALLOCATOR OPTION...: the table with
# that allocator (glibc: none), to be as lapse_check_table.py wants it.
# lapse_check.sh command: its options, its statuses, and that it finds faults.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
lapse=$build/lapse
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
bad=0

fail() {
    bad=1
    echo "FAILED  $*"
    sed 's/^/        /' "$tmp/out" | tail -n 5
}

# status WANTED DESCRIPTION ARGUMENT...
status() {
    wanted=$1 what=$2
    shift 2
    "$lapse" check "$@" > "$tmp/out" 2>&1
    got=$?
    if [ $got = "$wanted" ]; then echo "ok      $what"
    else fail "$what: status $got, not $wanted"; fi
}

table() {
    allocator=$1
    shift
    expect=
    for option; do expect="$expect ${option#--}"; done
    if [ "$allocator" = glibc ]; then
        expect="$expect glibc"
    else
        set -- --allocator "$allocator" "$@"
        "$lapse" check "$@" --only "munmap, inline" > "$tmp/out" 2>&1
        if [ $? = 125 ]; then
            cat "$tmp/out"
            exit 77
        fi
    fi
    "$lapse" check --json "$@" > "$tmp/out" || {
        echo "FAILED  status $?"
        bad=1
    }
    # $expect is a list
    # shellcheck disable=SC2086
    python3 tests/lapse_check_table.py $expect < "$tmp/out" || bad=1
}

command() {
    status 0 "--help" --help
    status 2 "a wrong option" --nonesuch
    status 2 "an argument" munmap
    status 2 "an option without its value" --allocator
    status 2 "a row that there is not" --only nonesuch
    status 125 "no such allocator" --allocator nonesuch
    grep -q 'is it installed' "$tmp/out" || fail "no advice"
    status 0 "one row" --only "mremap, moved to grow"
    grep -q '^mremap, moved to grow  *mremap  *site  *exact  *stale' \
        "$tmp/out" || fail "its line"
    status 0 "what is known not to be covered" --only "FALLOCATE"
    grep -q 'not covered: ' "$tmp/out" || fail "no reason"
    status 1 "--strict wants it covered" --strict --only "FALLOCATE"
    status 2 "an allocator that cannot be preloaded" --allocator "a b"
    "$lapse" check > "$tmp/out" 2>&1
    awk 'length > 100 { exit 1 }' "$tmp/out" || fail "wider than 100 columns"
    strace -f -o /dev/null -e trace=io_uring_setup \
        -e inject=io_uring_setup:error=EPERM "$lapse" check --only "munmap" \
        > "$tmp/out" 2>&1
    grep -q '^munmap  .* exact  *stale  *vmsplice' "$tmp/out" ||
        fail "without io_uring nobody judges"

    LAPSE_LIBRARY=$build/tests/victims/lib_deaf.so
    export LAPSE_LIBRARY
    status 1 "a library that tells nothing is found out" --only "munmap"
    grep -q 'NOT TOLD' "$tmp/out" || fail "no word of it"
    DEAF=crash status 1 "a row that crashes" --only "munmap, inline"
    grep -q 'CRASHED: Aborted' "$tmp/out" || fail "no word of it"
    DEAF=hang status 1 "a row that hangs" --only "munmap, inline"
    grep -q 'HUNG' "$tmp/out" || fail "no word of it"
    LAPSE_LIBRARY=$(cc -print-file-name=libm.so.6)
    status 125 "a library that is not ours" --only "munmap"
    LAPSE_LIBRARY=/nonesuch
    status 125 "no library" --only "munmap"
}

if [ "$1" = command ]; then command
else table "$@"; fi
exit $bad
