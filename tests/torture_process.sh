#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What `make check` does briefly, at length: processes, threads, the loader,
# cancellation beyond the number of slots, every failing system call in every
# mode. Each prints its counters. Part of `make torture`.
# Usage: tests/torture_process.sh [BUILD-DIRECTORY]
set -u
cd "$(dirname "$0")/.." || exit 2
build=$(realpath "${1:-build}")
lib=$build/liblapse.so
failed=0

run() {
    echo "torture: $*"
    "$@" || { failed=1; echo "FAILED  $*"; }
}

run "$build/tests/api_processes" 300
run "$build/tests/api_loader" 3000
run "$build/tests/api_last_thread" 1000
run "$build/tests/api_threads" 100000
run "$build/tests/api_cancel" 2000
run env LD_PRELOAD="$build/delayed/lib/liblapse.so.0" \
    LAPSE_TEST_DELAY_BEFORE=200000 "$build/tests/api_cancel" --stuck 1600
run env LD_PRELOAD="$build/delayed/lib/liblapse.so.0" \
    LAPSE_TEST_DELAY_BEFORE=200000 "$build/tests/api_fork" --drainer 2000
run env LD_PRELOAD="$lib:$build/tests/victims/lib_subscriber.so" \
    LIB_SUBSCRIBER=callback "$build/tests/victims/lifetimes" 100000
# The cases that check.sh runs shorter than they were reported.
run env MALLOC_ARENA_MAX=1 "$build/tests/case_a" a1 10
run "$build/tests/case_f1" 10000000
run "$build/tests/case_j1" 5000
run "$build/tests/api_event" 1000000
run "$build/tests/api_trace_read" 100000000
run "$build/tests/api_trace_read" --kill 1000
run "$build/tests/api_stacks" 60
run tests/sandbox.sh "$build"
run tests/faults.sh "$build"
# and as in sandboxes that do not know a call: ENOSYS
run env FAULTS_ERRNO=38 tests/faults.sh "$build"
[ "$failed" = 0 ] && echo "torture: all good"
exit $failed
