#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# lapse-cp copies what cp copies: files of all sizes, with buffers that glibc
# takes from an arena and such that it maps and unmaps, and under jemalloc. What
# it cannot copy it names, and what can be done about it.
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

status=0
# says STATUS PATTERN COMMAND...: what a user gets to see
says() {
    want=$1 pattern=$2
    shift 2
    timeout 20 "$@" > "$tmp/log" 2>&1
    got=$?
    [ $got = "$want" ] && grep -qE "$pattern" "$tmp/log" && return
    echo "FAILED  $*: status $got, not $want, or not '$pattern':"
    sed 's/^/    /' "$tmp/log"
    status=1
}
cp=$(realpath "$build/lapse-cp")
confine=$(realpath "$build/tests/confine")
cd "$tmp" || exit 1
says 0 'Exit status' "$cp" --help
says 2 'FROM and TO' "$cp" 1.out
says 2 'no such option' "$cp" --nothing 1.out x
says 2 'buffer wants 1 to' "$cp" --buffer 0 1.out x
says 2 'depth wants 1 to' "$cp" --depth 65 1.out x
says 1 'nowhere: No such file' "$cp" nowhere x
says 1 'nowhere/x: No such file' "$cp" 1.out nowhere/x
says 1 'from: not a regular file' "$cp" from x
says 1 'x: is not a directory' "$cp" 1.out from/1 x
ln 1.out hard
ln -s 1.out soft
for same in 1.out ./1.out hard soft; do
    says 1 'is the file that' "$cp" 1.out $same
done
cmp from/1 1.out || status=1
mkfifo fifo
says 1 'fifo: not a regular file' "$cp" fifo x
says 1 'fifo: ' "$cp" 1.out fifo
[ -e /dev/full ] && says 1 '/dev/full: No space left' "$cp" 1.out /dev/full
# Who copies by the size that stat() says, copies nothing.
says 0 'status: [1-9]' "$cp" -v /proc/self/status x
grep -q '^Name:' x || { echo "FAILED  a file that does not know its size"
                        status=1; }
rm -f x # it is nobody's to write, as /proc's is
# 5 GB with five bytes of data, and a hole at the end.
truncate -s 5G sparse
printf hello | dd of=sparse bs=1 seek=4300000000 conv=notrunc status=none
says 0 '^sparse: 5368709120 bytes' "$cp" -v sparse x
[ "$(stat -c %s x)" = 5368709120 ] && [ "$(stat -c %b x)" -lt 20000 ] ||
    { echo "FAILED  sparse: $(stat -c '%s bytes, %b blocks' x)"; status=1; }
[ "$(tail -c +4300000001 x | head -c 5)" = hello ] ||
    { echo "FAILED  what is between the holes"; status=1; }
rm x sparse
for call in 425 427; do
    says 1 'io_uring: .*(sysctl|seccomp)' "$confine" errno:$call:1 -- \
        "$cp" 1.out x
done
# As a user of our own, of whose pinned memory nobody else has a share.
user=$((60000 + $$ % 5000))
chmod 777 .
alone="setpriv --reuid $user --regid $user --clear-groups"
if [ "$(id -u)" != 0 ]; then
    echo "skip: limits and permissions of another user, this is not root"
elif ! $alone "$cp" --help > log 2>&1; then
    echo "skip: limits of another user, since $cp is not for others"
else
    says 1 'may be pinned: the limit is 64 KiB. Raise it' \
        prlimit --memlock=65536 $alone "$cp" from/3000000 few
    # Fewer buffers at a time than wished for, then.
    says 0 '^from/3000000: 3000000' \
        prlimit --memlock=614400 $alone "$cp" -v from/3000000 few
    cmp from/3000000 few || status=1
    chmod 600 1.out
    says 1 '1.out: Permission denied' $alone "$cp" 1.out few
    says 1 'to/few: Permission denied' $alone "$cp" few to
fi
exit $status
