#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every system call of the library's own fails in turn (tests/faults.c), in a
# program that subscribes, watches, releases, polls, is called back and forks.
# Usage: tests/faults.sh [BUILD-DIRECTORY [plain|backstop|free|report|trace|watchdog]...]
set -u
cd "$(dirname "$0")/.." || exit 2
build=$(realpath "${1:-build}")
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- plain backstop free report trace watchdog
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
failed=0
for how in "$@"; do
    case $how in
        plain) with=LAPSE_FREE=0 ;;
        backstop) with=LAPSE_BACKSTOP=uffd ;;
        free) with=LAPSE_FREE=1 ;;
        report) with=LAPSE_REPORT=$tmp ;;
        trace) with=LAPSE_TRACE=$tmp ;;
        watchdog) with=LAPSE_WATCHDOG=60 ;;
        *) echo "faults: what is $how?" >&2; exit 2 ;;
    esac
    echo "$how:"
    env "$with" "$build/tests/faults" "$build/liblapse.so" \
        "$build/tests/honest"
    case $? in
        0) ;;
        77) exit 77 ;;
        *) failed=1 ;;
    esac
done
exit $failed
