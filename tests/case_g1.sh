#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# G1: another preloaded allocator, whose first malloc calls mmap, getenv, open
# and sysconf (lib_first.so; lib_malloc.so releases memory in every one), or
# jemalloc; the library before it and after it, bound lazily and now. Programs
# print what they print bare. With --expect-fault: a wrapper that resolves when
# first called must not survive.
# Usage: tests/case_g1.sh [--expect-fault] BUILD-DIRECTORY
set -u
control=
[ "$1" = --expect-fault ] && { control=1; shift; }
build=$(realpath "$1")
lib=$build/liblapse.so
victims=$build/tests/victims
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
unset LD_PRELOAD LD_BIND_NOW
bad=0

# limited FILE COMMAND...: all it prints into the file; what hangs has failed.
limited() {
    out=$1
    shift
    timeout 30 "$@" > "$out" 2>&1 < /dev/null
}

if [ -n "$control" ]; then
    naive=$victims/lib_naive.so
    limited "$tmp/out" env LD_PRELOAD="$naive:$victims/lib_malloc.so" ls / && {
        echo "FAILED  G1: the naive wrapper survived"
        exit 1
    }
    echo "ok      G1: a wrapper that resolves when first called: status $?"
    limited "$tmp/out" env LD_PRELOAD="$naive" ls / ||
        { echo "FAILED  G1: the naive wrapper does not work alone"; exit 1; }
    exit 0
fi

# try NAME COMMAND...
try() {
    name=$1
    shift
    command -v "$1" > /dev/null || {
        echo "skipped G1 $name: $1 is not installed"
        return
    }
    limited "$tmp/bare" "$@" || {
        bad=1
        echo "FAILED  G1 $name: exit status $? without any preload"
        tail -n 3 "$tmp/bare"
        return
    }
    for other in $allocators; do
        for order in "$lib:$other" "$other:$lib"; do
            case $order in "$lib"*) o="after us" ;; *) o="before us" ;; esac
            for now in "" 1; do
                what="$name, $(basename "$other") $o${now:+, bound now}"
                limited "$tmp/under" env LD_PRELOAD="$order" \
                    ${now:+LD_BIND_NOW=1} "$@"
                status=$?
                if [ $status = 0 ] && cmp -s "$tmp/bare" "$tmp/under"; then
                    echo "ok      G1 $what"
                    continue
                fi
                bad=1
                echo "FAILED  G1 $what: exit status $status"
                diff "$tmp/bare" "$tmp/under" | head -n 5
            done
        done
    done
}

allocators=$victims/lib_first.so
try "ls" ls -R "$build"
try "java" java -version
try "node" node -e 0
jemalloc=$(ls /usr/lib/*/libjemalloc.so.2 2> /dev/null | head -n 1)
[ -n "$jemalloc" ] || echo "skipped G1 jemalloc: not installed"
allocators="$allocators $victims/lib_malloc.so $jemalloc"
try "python3" python3 -c '
import threading
t = [threading.Thread(target=lambda: [bytes(400000) for _ in range(100)])
     for _ in range(4)]
[x.start() for x in t]; [x.join() for x in t]
print("done")'
try "threads" "$victims/threads" 1
exit $bad
