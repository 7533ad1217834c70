#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What `make check` runs once everything is built: each test by itself, its
# output kept in $BUILD/log and shown when it fails. Ends with a line that
# counts. ONLY=pattern runs those whose name contains it.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
san=${SAN:-}
log=$build/log
mkdir -p "$log"
passed=0 failed=0 skipped=0
export TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 ${TSAN_OPTIONS:-}"
export ASAN_OPTIONS="detect_leaks=0 verify_asan_link_order=0 ${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="halt_on_error=1 print_stacktrace=1"

# run NAME SECONDS COMMAND...
run() {
    name=$1 limit=$2
    shift 2
    case $name in *"${ONLY:-}"*) ;; *) return ;; esac
    begin=$(date +%s)
    timeout -k 5 "$limit" "$@" > "$log/$name" 2>&1 < /dev/null
    status=$?
    took=$(($(date +%s) - begin))
    case $status in
        0)
            passed=$((passed + 1))
            echo "ok      $name (${took} s)"
            grep -i '^ *skip' "$log/$name" | sed 's/^/        /'
            grep '^\[====\] Synthesis' "$log/$name" | sed 's/^/        /' ;;
        77) skip "$name" "$(tail -n 1 "$log/$name")" ;;
        *)
            failed=$((failed + 1))
            echo "FAILED  $name: exit status $status after $took s" \
                "($log/$name)"
            tail -n 40 "$log/$name" | sed 's/^/        /' ;;
    esac
}

skip() {
    case $1 in *"${ONLY:-}"*) ;; *) return ;; esac
    skipped=$((skipped + 1))
    echo "skipped $1: $2"
}


run rules 60 tests/rules.sh "$build"
for t in tests/test_*.c; do
    t=$(basename "$t" .c)
    case $san:$t in
        thread:test_arch | thread:test_patch | thread:test_site | address:test_patch | \
            address:test_site)
            skip "$t" "it looks at code and stack that the sanitizer rewrites"
            continue ;;
    esac
    run "$t" 120 "$build/tests/$t" --jobs 1
done
run example 20 "$build/tests/example_protocol"
run example_rcache 20 "$build/tests/example_rcache"
run api_cases 60 "$build/tests/api_cases"
run api_parts 120 "$build/tests/api_parts" ${san:+20000}
run api_fork 120 "$build/tests/api_fork" 300
run api_locks 60 "$build/tests/api_locks" 2
run api_signals 120 "$build/tests/api_signals"
run api_storm 60 "$build/tests/api_storm" 3
run api_rcache_cases 120 "$build/tests/api_rcache_cases"
run api_rcache_backends 60 "$build/tests/api_rcache_backends" "$build/tests"
if [ -n "$san" ]; then
    skip api_rcache_malloc "it has a malloc of its own"
else
    run api_rcache_malloc 60 "$build/tests/api_rcache_malloc"
fi
delayed=$(realpath "$build")/delayed/lib
if [ -n "$san" ]; then
    run api_stale 240 "$build/tests/api_stale" 100000
else
    run api_stale 240 "$build/tests/api_stale" 1000000
    run api_stale_all 240 "$build/tests/api_stale" --all 200000
fi
# With windows of 20 us before and after every watched release.
run stale_delayed 120 env LD_PRELOAD="$delayed/liblapse.so.0" \
    LAPSE_TEST_DELAY_BEFORE=20000 LAPSE_TEST_DELAY_AFTER=20000 \
    "$build/tests/api_stale" --all 20000
run stale_without_redelivery 120 env LD_PRELOAD="$delayed/liblapse.so.0" \
    LAPSE_TEST_NO_REDELIVERY=1 LAPSE_TEST_DELAY_BEFORE=20000 \
    "$build/tests/api_stale" --all --expect-stale 20000
if [ -z "$san" ]; then
    run victims 900 tests/victims.sh "$build"
    run run_cmd 300 env BUILD="$build" tests/run_cmd.sh
    run strace_counts 300 env BUILD="$build" tests/strace_counts.sh
    run install 60 tests/install.sh "$build"
else
    skip victims "programs under a preload: not with a sanitizer's library"
    skip run_cmd "as above"
    skip strace_counts "as above"
    skip install "as above"
fi
run torture_deadlock 300 env BUILD="$build" tests/torture_deadlock.sh
run rcache_cp 60 env BUILD="$build" tests/rcache_cp.sh
run torture_rcache 180 "$build/torture" rcache --seconds 60
run torture_rcache_jemalloc 180 "$build/torture" rcache --seconds 60 \
    --allocator jemalloc
echo "check: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
