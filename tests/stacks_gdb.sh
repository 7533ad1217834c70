#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Are the stacks of releases right? The same process is asked twice: gdb's
# unwinder, at a breakpoint on the site in libc, and the trace, unwound from the
# copies afterwards. Frame by frame: the address, and the function it is in.
# stacks_gdb.sh [BUILD]
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
command -v gdb > /dev/null || { echo "skip: no gdb"; exit 77; }
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
library=$(realpath "$build/liblapse.so")
status=0

# compare NAME LEAST PROGRAM...: so many releases at least
compare() {
    name=$1 least=$2
    shift 2
    mkdir -m 700 "$tmp/$name"
    STACKS_OUT="$tmp/$name.gdb" timeout -k 5 120 gdb -q -batch -nx \
        -iex "set debuginfod enabled off" -iex "set confirm off" \
        -ex "set breakpoint pending on" \
        -ex "set environment LD_PRELOAD $library" \
        -ex "set environment LAPSE_TRACE $tmp/$name" \
        -ex "set environment LAPSE_STACKS 32" \
        -ex "set environment LAPSE_TRACE_RING 65536" \
        -ex "break tell_audit" -ex "run" -ex "delete" \
        -ex "source tests/stacks_gdb.py" --args "$@" \
        > "$tmp/$name.log" 2>&1 < /dev/null
    for trace in "$tmp/$name"/*.trace; do
        "$build/tests/stacks_dump" "$trace"
    done > "$tmp/$name.trace"
    if python3 tests/stacks_compare.py "$tmp/$name.gdb" "$tmp/$name.trace" \
        "$least" > "$tmp/$name.said"; then
        echo "ok      $name: $(tail -n 1 "$tmp/$name.said")"
    else
        status=1
        echo "FAILED  $name"
        tail -n 5 "$tmp/$name.log" | sed 's/^/        /'
        tail -n 40 "$tmp/$name.said" | sed 's/^/        /'
    fi
}

compare c 80 "$build/tests/stacks_victim"
compare python 300 /usr/bin/python3 -S -c '
import mmap, threading
def f(n):
    for i in range(n):
        mmap.mmap(-1, 4096).close()
b = [bytes(3000) for i in range(9999)]
t = threading.Thread(target=f, args=(20,))
t.start(); t.join()
f(20)
del b
'
if command -v redis-server > /dev/null && command -v redis-cli > /dev/null; then
    socket=$tmp/redis.sock
    (
        for i in $(seq 100); do [ -S "$socket" ] && break; sleep 0.1; done
        cli() { timeout 20 redis-cli -s "$socket" "$@"; }
        cli debug populate 20000 key 300
        cli flushall
        cli memory purge
        cli shutdown nosave
    ) > "$tmp/redis.cli" 2>&1 &
    compare redis 50 redis-server --port 0 --unixsocket "$socket" --save '' \
        --appendonly no --enable-debug-command yes
else
    echo "skip: no redis-server and redis-cli"
fi
exit $status
