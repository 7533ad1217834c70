#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# lapse-cp copies what cp copies: files of all sizes, with buffers that glibc
# takes from an arena and such that it maps and unmaps, and under jemalloc.
set -u
build=${BUILD:-build}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/from" "$tmp/to"
for size in 0 1 4095 4096 100000 3000000 40000000; do
    head -c $size /dev/urandom > "$tmp/from/$size"
done
"$build/lapse-cp" "$tmp/from/1" "$tmp/1.out" > "$tmp/log" 2>&1
status=$?
if grep -qE 'io_uring: (Function not|Operation not)' "$tmp/log"; then
    echo "skip: no io_uring here"
    exit 77
fi
[ $status = 0 ] && cmp "$tmp/from/1" "$tmp/1.out" || exit 1

copies() { # options
    rm -f "$tmp"/to/*
    "$build/lapse-cp" -v "$@" "$tmp"/from/* "$tmp/to" || exit 1
    for f in "$tmp"/from/*; do
        cmp "$f" "$tmp/to/${f##*/}" || exit 1
    done
}
copies
copies --buffer 5000 --depth 3
copies --buffer 1000000 --depth 1
if [ -n "${SAN:-}" ]; then
    echo "skip: with jemalloc, since malloc is the sanitizer's"
else
    LD_PRELOAD=libjemalloc.so.2 copies --buffer 70000
fi
"$build/lapse-cp" "$tmp/from/1" "$tmp/from/1" 2> /dev/null && exit 1
"$build/lapse-cp" "$tmp/nowhere" "$tmp/x" 2> /dev/null && exit 1
cmp "$tmp/from/1" "$tmp/1.out"
