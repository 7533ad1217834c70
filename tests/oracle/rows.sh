#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Each row of the table of `lapse check`, under a cache that follows the
# protocol (protocol.c). With the library its registration never shows what was
# there before the release; without it, it does: else this would prove nothing.
# LAPSE_BACKSTOP=uffd in the environment: what only the kernel sees, too.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build}
protocol=$build/tests/oracle/protocol
library=$(realpath "$build/liblapse.so")
bad=0 fresh=0 controls=0 uncovered=0

fail() {
    bad=1
    echo "FAILED  $1: $2"
}

# What may be uncovered, by name: nothing of it passes a site, and of the first
# four not even the kernel tells.
may_be_uncovered() {
    case ${LAPSE_BACKSTOP:-}:$1 in
        *:'shmdt, inline' | *:*'PUNCH_HOLE, inline' | *:'io_uring FALLOCATE' \
            | *:'ioctl FS_IOC_UNRESVSP')
            true ;;
        uffd:*) false ;;
        *', inline' | *:'io_uring MADVISE') true ;;
        *) false ;;
    esac
}

while IFS=: read -r kind name; do
    if [ "$kind" = free ]; then
        echo "skip    $name: nothing goes stale by itself"
        continue
    fi
    control=$(env -u LAPSE_BACKSTOP timeout 10 "$protocol" "$name")
    case $kind:$? in
        *:77)
            echo "skip    $name: cannot be done here: $control"
            continue ;;
        goes:3 | keeps:0) controls=$((controls + 1)) ;;
        *) fail "$name" "without the library, status $?: $control" ;;
    esac
    told=$(LD_PRELOAD=$library timeout 10 "$protocol" "$name")
    status=$?
    if [ $status = 0 ]; then
        fresh=$((fresh + 1))
        echo "ok      $name: $told; without the library: $control"
    elif [ $status = 4 ] && may_be_uncovered "$name"; then
        uncovered=$((uncovered + 1))
        echo "ok      $name: not covered, by name: $told"
    else
        fail "$name" "with the library, status $status: $told"
    fi
done < <("$protocol" --list)

echo "$fresh rows never stale, $controls of them or others shown to be" \
    "without the library, $uncovered not covered by name"
[ "$fresh" -ge 40 ] || fail rows "only $fresh rows were done"
exit $bad
