#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Each row of the table of `lapse check` against the events of userfaultfd: what
# the kernel says is gone, the library told (events.c). What passes no site
# (inline) must be found missing here: else this would prove nothing.
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build}
library=$(realpath "$build/liblapse.so")
bad=0 judged=0 missed=0

while IFS=: read -r _ name; do
    said=$(LD_PRELOAD=$library timeout 10 "$build/tests/oracle/events" "$name")
    status=$?
    case $status:$name in
        77:*)
            echo "skip: $said"
            exit 77 ;;
        0:*)
            judged=$((judged + 1))
            echo "ok      $name: $said" ;;
        3:*) echo "        $name: no event to judge by: $said" ;;
        4:*', inline' | 4:'io_uring MADVISE')
            missed=$((missed + 1))
            echo "ok      $name: not covered, and found missing: $said" ;;
        *)
            bad=1
            echo "FAILED  $name: status $status: $said" ;;
    esac
done < <("$build/tests/oracle/protocol" --list)
echo "$judged rows of which the kernel has events were told"
if [ $judged -lt 20 ] || [ $missed -lt 4 ]; then
    echo "FAILED  too few rows"
    bad=1
fi
exit $bad
