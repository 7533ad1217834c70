#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The cases: faults that users and authors of memory hooks met elsewhere, each
# as it was reported, and next to it its control (NAME_control), which shows
# that the test would see the fault: without the library, or with the kind of
# hook that had it. check.sh reads this and gives run and skip, $build, $san.
# Shorter here than reported; in full with `make torture`: case_a a1 10, case_f1
# 10000000 (190 s), case_j1 5000 (30 s).
: "${build:?}" "${san=}"
preloaded="env LD_PRELOAD=$(realpath "$build")/liblapse.so"
tests=$build/tests
one_arena="env MALLOC_ARENA_MAX=1"

# The words of $preloaded and the like are meant to be split.
# shellcheck disable=SC2086
linked_cases() {
    run case_a1 60 $one_arena "$tests/case_a" a1 3
    run case_a1_control 20 $one_arena "$tests/case_a" --expect-fault a1
    run case_a2 60 $one_arena "$tests/case_a" a2
    run case_a2_control 20 $one_arena "$tests/case_a" --expect-fault a2
    run case_b1 20 "$tests/case_b1"
    run case_b1_backstop 20 env LAPSE_BACKSTOP=uffd "$tests/case_b1"
    run case_b1_control 20 "$tests/case_b1" --expect-fault
    run case_e1 20 "$tests/case_e1"
    run case_e1_control 20 "$tests/case_e1" --expect-fault
    run case_f1 120 "$tests/case_f1" ${san:+20000}
    run case_f1_control 60 "$tests/case_f1" --expect-fault 5000
    run case_j1 120 "$tests/case_j1" 500
    run case_j1_control 60 "$tests/case_j1" --expect-fault
    run case_j4 120 "$tests/case_j4"
    run case_j4_control 20 "$tests/case_j4" --expect-fault
}

# with_both NAME COMMAND...: by poll, by callback, and without the library.
# shellcheck disable=SC2086
with_both() {
    noun=$1
    shift
    run "$noun" 20 $preloaded "$@"
    run "${noun}_callback" 20 $preloaded "$@" --callback
    run "${noun}_control" 20 "$@" --expect-fault
}

# A block of 1 MiB is a mapping of its own, or one libc would free into the
# heap of the other.
# shellcheck disable=SC2086
plugin_case() {
    mapped="env MALLOC_MMAP_THRESHOLD_=131072"
    other=$(realpath "$tests/victims/lib_malloc.so")

    run case_c3 30 $mapped $preloaded "$tests/case_c3"
    run case_c3_malloc 30 $mapped $preloaded:$other "$tests/case_c3"
    run case_c3_control 30 $mapped "$tests/case_c3" --expect-fault
}

# shellcheck disable=SC2086
hook_cases() {
    lib=$(realpath "$build/liblapse.so")
    plt=$(realpath "$tests/victims/lib_plt.so")

    run case_i1 90 $preloaded "$tests/case_i1"
    run case_i1_late 90 "$tests/case_i1" --late "$lib"
    run case_i1_control 30 "$tests/case_i1" --expect-fault
    run case_i2 30 "$tests/case_i2" "$lib"
    run case_i2_preloaded 30 $preloaded "$tests/case_i2" "$lib"
    run case_i2_symbol_first 30 env LD_PRELOAD="$plt:$lib" \
        "$tests/case_i2" "$lib"
    run case_i2_symbol_second 30 env LD_PRELOAD="$lib:$plt" \
        "$tests/case_i2" "$lib"
    run case_i2_control 30 "$tests/case_i2" --expect-fault "$lib"
}

linked_cases
if [ -z "$san" ]; then
    for c in c1 c2 d1; do
        with_both case_$c "$tests/case_$c"
    done
    plugin_case
    run case_g1 240 tests/case_g1.sh "$build"
    run case_g1_control 60 tests/case_g1.sh --expect-fault "$build"
    run case_g3 60 tests/case_g3.sh "$build"
    run case_g3_control 30 tests/case_g3.sh --expect-fault "$build"
    hook_cases
else
    skip "case_c, case_d, case_g, case_i" \
        "programs under a preload: not with a sanitizer's library"
fi
