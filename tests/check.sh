#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What `make check` runs once everything is built: each test by itself, its
# output kept in $BUILD/log and shown when it fails. Ends with a line that
# counts. ONLY=pattern runs those whose name contains it.
set -u
cd "$(dirname "$0")/.." || exit 2
export BUILD=${BUILD:-build}
build=$BUILD
san=${SAN:-}
log=$build/log
mkdir -p "$log"
passed=0 failed=0 skipped=0
# A forked child has not joined its parent's threads.
export TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 report_thread_leaks=0 \
${TSAN_OPTIONS:-}"
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
run docs 60 tests/docs.sh "$build"
for t in tests/test_*.c; do
    t=$(basename "$t" .c)
    case $san:$t in
        thread:test_arch | thread:test_patch | thread:test_site | \
            thread:test_snapshot | address:test_patch | \
            address:test_site)
            skip "$t" "it looks at code and stack that the sanitizer rewrites"
            continue ;;
    esac
    run "$t" 120 "$build/tests/$t" --jobs 1
done
run example 20 "$build/tests/example_protocol"
run example_rcache 20 "$build/tests/example_rcache"
run api_cases 60 "$build/tests/api_cases"
run api_foreign 60 "$build/tests/api_foreign"
run api_namespace 60 "$build/tests/api_namespace"
# Its mmap, munmap, mremap and sbrk are there in place of libc's.
tcmalloc=$(ls /usr/lib/*/libtcmalloc_minimal.so.4 2> /dev/null | head -n 1)
if [ -n "$san" ] || [ -z "$tcmalloc" ]; then
    skip api_cases_tcmalloc "no libtcmalloc-minimal4, or a sanitizer"
else
    run api_cases_tcmalloc 60 env LD_PRELOAD="$tcmalloc" \
        "$build/tests/api_cases" --other-malloc
fi
run api_file 60 "$build/tests/api_file"
if [ -z "$san" ]; then
    run stack_use 60 "$build/tests/api_stack_use"
    run stack_use_backstop 60 env LAPSE_BACKSTOP=uffd \
        "$build/tests/api_stack_use"
    traces=$(mktemp -d)
    run stack_use_traced 60 env LAPSE_TRACE="$traces" LAPSE_STACKS=4 \
        "$build/tests/api_stack_use" 1280
    rm -rf "$traces"
else
    skip stack_use "a sanitizer's frames are larger"
fi
if [ -z "$san" ]; then
    run api_threads 120 "$build/tests/api_threads"
else
    skip api_threads "a sanitizer keeps the stacks of threads"
fi
run api_fork 120 "$build/tests/api_fork"
if [ "$san" != thread ]; then
    run api_last_thread 120 "$build/tests/api_last_thread"
else
    skip api_last_thread "the sanitizer's own thread keeps the process alive"
fi
if [ -z "$san" ]; then
    run api_processes 300 "$build/tests/api_processes" 10
    run api_cancel 200 "$build/tests/api_cancel" 100
    run api_loader 200 "$build/tests/api_loader" 100
else
    skip api_processes "clone() by hand with a sanitizer's locks held"
    skip api_cancel "threads cancelled with a sanitizer's locks held"
    skip api_loader "an indirect function resolved before the sanitizer's"
fi
run free_off 60 "$build/tests/api_free" --off
run free_glibc 60 env LAPSE_FREE=1 "$build/tests/api_free"
run free_more_glibc 120 env LAPSE_FREE=1 "$build/tests/api_free_more"
for a in libjemalloc.so.2 libtcmalloc_minimal.so.4 libmimalloc.so.2 \
    libtbbmalloc_proxy.so.2; do
    path=$(ldconfig -p | sed -n "s|^\t$a .*=> ||p" | head -n 1)
    if [ -n "$san" ]; then
        skip "free_$a" "free is the sanitizer's"
    elif [ -z "$path" ]; then
        skip "free_$a" "it is not installed"
    else
        preload="$path $(realpath "$build/liblapse.so")"
        run "free_$a" 60 env LAPSE_FREE=1 LD_PRELOAD="$preload" \
            "$build/tests/api_free"
        run "free_more_$a" 120 env LAPSE_FREE=1 LD_PRELOAD="$preload" \
            "$build/tests/api_free_more"
    fi
done
run trace_race 60 "$build/tests/api_trace_read" 4000000
run trace_kill 60 "$build/tests/api_trace_read" --kill 30
run api_shm 60 "$build/tests/api_shm"
run api_huge 60 "$build/tests/api_huge"
if [ -z "$san" ]; then
    run api_bridge 60 "$build/tests/api_bridge"
    run api_bridge_threads 60 "$build/tests/api_bridge_threads"
else
    skip api_bridge "jemalloc is not built for a sanitizer"
    skip api_bridge_threads "as above"
fi
if [ -z "$san" ]; then
    run step 600 "$build/tests/step"
    run step_traced 120 "$build/tests/step" --traced
else
    skip step "a sanitizer's code is in the way of the tracer"
    skip step_traced "as above"
fi
run fuzz_api 240 "$build/tests/fuzz_api" 200000
run model 300 tests/model/run.sh --short
if [ "$san" = thread ]; then
    skip api_event "how a ring is handed on is not instrumented; test_trace"
else
    run api_event 60 "$build/tests/api_event"
fi
run api_segments 60 "$build/tests/api_segments"
run api_storm 60 "$build/tests/api_storm" 3
run api_rcache_cases 120 "$build/tests/api_rcache_cases" ${san:+100000}
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
# Likewise 200 us in the first and last steps of the thread that calls back.
if [ -z "$san" ]; then
    run fork_delayed 120 env LD_PRELOAD="$delayed/liblapse.so.0" \
        LAPSE_TEST_DELAY_BEFORE=200000 "$build/tests/api_fork" --drainer 200
else
    skip fork_delayed "a sanitizer holds a lock while a thread starts"
fi
run file_delayed 120 env LD_PRELOAD="$delayed/liblapse.so.0" \
    LAPSE_TEST_DELAY_BEFORE=200000 LAPSE_TEST_DELAY_AFTER=20000 \
    "$build/tests/api_file"
run stale_without_redelivery 120 env LD_PRELOAD="$delayed/liblapse.so.0" \
    LAPSE_TEST_NO_REDELIVERY=1 LAPSE_TEST_DELAY_BEFORE=20000 \
    "$build/tests/api_stale" --all --expect-stale 20000
run file_mapped 60 env LD_PRELOAD="$delayed/liblapse.so.0" \
    LAPSE_TEST_DELAY_BEFORE=100000 "$build/tests/api_file_mapped"
# Threads that are cancelled in there, too.
if [ -z "$san" ]; then
    run cancel_delayed 200 env LD_PRELOAD="$delayed/liblapse.so.0" \
        LAPSE_TEST_DELAY_BEFORE=200000 "$build/tests/api_cancel" --stuck 60
else
    skip cancel_delayed "as api_cancel"
fi
# The kernel as a teller: what no site sees, and that the rest goes on as ever.
if LAPSE_BACKSTOP=uffd "$build/tests/api_backstop" --probe > /dev/null; then
    on() {
        name=$1 limit=$2 program=$3
        shift 3
        run "backstop_$name" "$limit" env LAPSE_BACKSTOP=uffd \
            "$build/tests/$program" "$@"
    }
    on kernel 60 api_backstop
    on life 120 api_backstop_life 1000000
    on cases 60 api_cases
    on a1 60 case_a a1 2
    on a2 60 case_a a2
    on j4 120 case_j4
    on storm 60 api_storm 3
    [ "$san" = thread ] || on last_thread 120 api_last_thread 10
    on stale 240 api_stale 50000
    on stale_inline 240 api_stale --inline 100000
    on stale_madvise 120 api_backstop_madvise
    on fit 60 api_backstop_fit
    run backstop_subscribe 60 env LAPSE_BACKSTOP=uffd \
        LD_PRELOAD="$delayed/liblapse.so.0" LAPSE_TEST_DELAY_BEFORE=200000 \
        "$build/tests/api_backstop_subscribe"
else
    skip backstop "the kernel gives no userfaultfd here"
fi
run backstop_refused 20 "$build/tests/api_backstop_refused"
# These fail without it, so they can fail.
run backstop_off_inline 60 "$build/tests/api_stale" --inline \
    --expect-stale 20000
run backstop_off_madvise 60 "$build/tests/api_backstop_madvise" \
    --expect-stale
. tests/cases.sh
if [ -z "$san" ]; then
    run victims 900 tests/victims.sh "$build"
    run sandbox 300 tests/sandbox.sh "$build"
    run faults 600 tests/faults.sh "$build" plain backstop
    run zoo 600 env BUILD="$build" scripts/zoo --quick
    run run_cmd 300 env BUILD="$build" tests/run_cmd.sh
    run run_stacks 200 tests/run_stacks.sh "$build"
    run api_stacks 60 "$build/tests/api_stacks" 3
    run stacks_gdb 300 tests/stacks_gdb.sh "$build"
    run trace_cmd 60 env BUILD="$build" tests/trace_cmd.sh
    run strace_counts 300 env BUILD="$build" tests/strace_counts.sh
    run audit 300 env BUILD="$build" tests/audit.sh
    run trace_report 300 env BUILD="$build" tests/trace_report.sh
    run stacks 60 env BUILD="$build" tests/stacks.sh
    run watchdog 60 env BUILD="$build" tests/watchdog.sh
    run probes 60 env BUILD="$build" tests/probes.sh
    run install 60 tests/install.sh "$build"
    run lapse_check 60 tests/lapse_check.sh command
    for a in glibc jemalloc tcmalloc mimalloc tbbmalloc; do
        run "lapse_check_$a" 60 tests/lapse_check.sh $a
        run "lapse_check_${a}_all" 60 tests/lapse_check.sh $a --backstop --free
    done
    run oracle 120 tests/oracle/rows.sh
    run oracle_events 120 tests/oracle/events.sh
    run oracle_backstop 120 env LAPSE_BACKSTOP=uffd tests/oracle/rows.sh
else
    skip victims "programs under a preload: not with a sanitizer's library"
    skip sandbox "as above"
    skip faults "as above"
    skip zoo "as above"
    skip run_cmd "as above"
    skip run_stacks "as above"
    skip api_stacks "as above"
    skip stacks_gdb "as above"
    skip trace_cmd "as above"
    skip strace_counts "as above"
    skip audit "as above"
    skip trace_report "as above"
    skip stacks "as above"
    skip watchdog "as above"
    skip probes "as above"
    skip install "as above"
    skip lapse_check "as above"
    skip oracle "as above"
fi
run torture_deadlock 300 env BUILD="$build" tests/torture_deadlock.sh
run rcache_cp 60 env BUILD="$build" tests/rcache_cp.sh
run torture_rcache 180 "$build/torture" rcache --seconds 60
run torture_rcache_jemalloc 180 "$build/torture" rcache --seconds 60 \
    --allocator jemalloc
run torture_rcache_ends 120 env BUILD="$build" tests/torture_rcache.sh
echo "check: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
