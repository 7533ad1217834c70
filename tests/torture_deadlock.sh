#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The founding deadlock (DESIGN 1, cases A1 and A2), short: it hangs when the
# handler runs inside the release, and does not with callback and poll. One
# line per check; what a failed one printed follows it. Arguments are passed
# on to torture, e.g. --seconds 60.
set -u
cd "$(dirname "$0")/.." || exit 1
torture=${BUILD:-build}/torture
status=0 bridge=

check() { # what, then the options
    what=$1
    shift
    out=$(env ${bridge:+LD_PRELOAD="$bridge"} "$torture" deadlock \
        --seconds 5 "$@" 2>&1)
    case $? in
        0) echo "ok   $what: $(echo "$out" | sed -n "$detail")" ;;
        77) echo "skip $what: ${out##*skipped: }" ;;
        *) echo "FAIL $what"
           echo "$out" | sed 's/^/     /'
           status=1 ;;
    esac
}

hang='s/.*\(HUNG.*\|no hang.*\)/\1/p'
told='s/.*told: \(.*\); of.*/\1/p'
for allocator in glibc jemalloc; do
    detail=$hang
    check "sync hangs with $allocator" --mode sync --allocator $allocator "$@"
done
detail=$told
check "callback survives" --mode callback "$@"
check "poll survives" --mode poll "$@"
# What glibc's lock does not show: releases by the owner of the cache lock.
check "callback survives jemalloc" --mode callback --allocator jemalloc \
    --seconds 2 "$@"
check "poll survives jemalloc" --mode poll --allocator jemalloc \
    --seconds 2 "$@"
# Hooks of ours inside jemalloc, which keep what is watched.
bridge=$(realpath "${BUILD:-build}/liblapse-jemalloc.so")
check "poll survives jemalloc with its bridge" --mode poll \
    --allocator jemalloc --seconds 2 "$@"
check "callback survives jemalloc with its bridge" --mode callback \
    --allocator jemalloc --seconds 2 "$@"
exit $status
