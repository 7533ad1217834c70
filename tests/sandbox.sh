#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A cache (tests/honest.c) in places where things are refused, broken or twice:
# it runs on, is told, or the coverage table says what is not seen; at most one
# line of ours on stderr, and none where it could do harm.
# Usage: tests/sandbox.sh [BUILD-DIRECTORY]
set -u
cd "$(dirname "$0")/.." || exit 2
build=$(realpath "${1:-build}")
lib=$build/liblapse.so
honest=$build/tests/honest
confine=$build/tests/confine
victims=$build/tests/victims
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
unset LD_PRELOAD
failed=0
ran=0
all="told 12 lost 2 refused 0" # inline system calls are lost, as is told
none="told 0 lost 14 refused 0"

say() { # GOOD NAME MORE
    ran=$((ran + 1))
    if [ "$1" = 0 ]; then
        echo "ok      $2"
    else
        failed=1
        echo "FAILED  $2: $3"
        head -n 5 "$tmp/out" "$tmp/err" "$tmp/counts"
    fi
}

# expect NAME COUNTS LINES COMMAND...: as many lines on stderr, all of ours.
expect() {
    name=$1 counts=$2 lines=$3
    shift 3
    timeout 120 "$@" > "$tmp/out" 2> "$tmp/err" 9> "$tmp/counts" < /dev/null
    status=$?
    if [ $status = 77 ] && ! grep -q told "$tmp/counts"; then
        echo "skipped $name: $(tail -n 1 "$tmp/err")"
        return
    fi
    good=1
    [ $status = 0 ] && [ "$(cat "$tmp/out")" = done ] &&
        grep -q "^$counts" "$tmp/counts" &&
        [ "$(wc -l < "$tmp/err")" = "$lines" ] &&
        ! grep -qv '^lapse\[' "$tmp/err" && good=0
    say $good "$name" "exit status $status"
}

limited() { # NAME COUNTS LINES LIMIT...
    name=$1 counts=$2 lines=$3
    shift 3
    expect "$name" "$counts" "$lines" env CONFINE_PRELOAD="$lib" \
        "$confine" "$@" -- "$honest"
}

limited "nothing refused" "$all" 0
limited "no_new_privs" "$all" 0 no-new-privs
# 18 pwrite64, 9 mmap, 10 mprotect, 25 mremap, 323 userfaultfd, 435 clone3
limited "no memory becomes executable" "$all" 0 no-exec
limited "/proc/self/mem is not written" "$all" 0 errno:18:1
limited "neither" "$none" 1 errno:18:1 no-exec
limited "neither, and pages cannot be moved" \
    "told 0 lost 12 refused 2" 1 errno:18:1 errno:25:1
limited "no thread can be made" "told 10 lost 2 refused 2" 0 errno:435:11
limited "no futex works" "$all" 0 errno:202:38
limited "little address space" "told [0-9]* lost [0-9]* refused" 0 \
    as:12000000
expect "no descriptor is left" "told 12 lost 2 refused 2" 0 \
    env LD_PRELOAD="$lib" "$honest" nofile

limited "one descriptor is left" "$all" 0 nofile:4
limited "a stack of 100 GB" "$all" 0 stack:100000000000
limited "a small stack" "$all" 0 stack:65536
limited "no stack limit" "$all" 0 stack:-1
limited "nothing becomes executable, says the kernel" "$all" 0 mdwe
limited "that, and /proc/self/mem is not written" "$none" 1 mdwe errno:18:1
expect "addresses are not random" "$all" 0 \
    env LD_PRELOAD="$lib" setarch -R "$honest"
expect "mappings grow upward, not random" "$all" 0 \
    env LD_PRELOAD="$lib" setarch -RL "$honest"

# What is not readable is not dumpable: its /proc/self/mem is another user's.
cp "$honest" "$lib" "$tmp/"
chmod 755 "$tmp"
chmod 111 "$tmp/honest"
if [ "$(id -u)" = 0 ]; then
    expect "its /proc/self/mem is another user's" "$all" 0 \
        chroot --userspec=nobody:nogroup --skip-chdir / \
        env LD_PRELOAD="$tmp/liblapse.so" "$tmp/honest"
else
    echo "skipped its /proc/self/mem is another user's: needs root"
fi

# Killed for any call that the program does not make without the library, but
# two that its start makes: 18 pwrite64, 28 madvise.
calls_of() {
    strace -fnqq -e signal=none -o "$tmp/calls" "$@" > "$tmp/bare" 2>&1 &&
        sed -n 's/^[0-9]* *\[ *\([0-9]*\)\].*/\1/p' "$tmp/calls" | sort -un |
        paste -sd,
}
same_confined() { # NAME COMMAND...
    name=$1
    shift
    calls=$(calls_of "$@")
    if [ -z "$calls" ]; then
        echo "skipped $name: strace may not trace here"
        return
    fi
    env CONFINE_PRELOAD="$lib" "$confine" "only:$calls,18,28" -- "$@" \
        > "$tmp/out" 2> "$tmp/err"
    status=$?
    if [ $status = 77 ]; then
        echo "skipped $name: $(tail -n 1 "$tmp/err")"
        return
    fi
    : > "$tmp/counts"
    cmp -s "$tmp/bare" "$tmp/out" && [ $status = 0 ] && [ ! -s "$tmp/err" ]
    say $? "$name" "exit status $status"
}
same_confined "killed for what ls does not call" ls -l /usr
same_confined "killed for what sh does not call" \
    sh -c 'x=$(seq 9 | sort -r); echo $x; (exit 3); echo $?'
same_confined "killed for what perl does not call" perl -e \
    'my %h = map { $_ => "x" x $_ } 1 .. 3000; %h = (); print `echo b`'

# What is confined and ends: what is kept of it is closed without more calls.
ends_confined() { # NAME VARIABLE
    mkdir -m 700 "$tmp/$2"
    : > "$tmp/counts"
    env LD_PRELOAD="$lib" "$2=$tmp/$2" "$victims/confined" --end \
        > "$tmp/out" 2> "$tmp/err"
    say $? "$1" "exit status not 0"
}
ends_confined "killed for a call at the end, with a report" LAPSE_REPORT
ends_confined "killed for a call at the end, with a trace" LAPSE_TRACE

# No /proc at all.
mkdir -p "$tmp/root/lib64" "$tmp/root/lib/x86_64-linux-gnu"
cp /lib64/ld-linux-x86-64.so.2 "$tmp/root/lib64/"
cp /lib/x86_64-linux-gnu/libc.so.6 "$tmp/root/lib/x86_64-linux-gnu/"
cp "$lib" "$honest" "$tmp/root/"
expect "chroot without /proc" "$all" 0 env CONFINE_PRELOAD=/liblapse.so \
    "$confine" "chroot:$tmp/root" -- /honest
expect "chroot without /proc, no memory executable" "$none" 1 \
    env CONFINE_PRELOAD=/liblapse.so \
    "$confine" "chroot:$tmp/root" no-exec -- /honest

# One line is due: see that it comes, and that it does no harm.
bad="LAPSE_RECORDS=none LD_PRELOAD=$lib"
# shellcheck disable=SC2086
{
    expect "a line on stderr" "$all" 1 env $bad "$honest"
    expect "stderr full" "$all" 0 \
        sh -c 'exec env "$@" 2> /dev/full' - $bad "$honest"
    expect "stderr closed" "$all" 0 sh -c 'exec env "$@" 2>&-' - $bad "$honest"
    # bash: its process substitution; the reader is gone before
    expect "stderr a broken pipe" "$all" 0 bash -c \
        'exec 2> >(exec 2>&-); sleep 1; exec env "$@"' - $bad "$honest"
}
env CONFINE_PRELOAD="$lib" LAPSE_RECORDS=none "$confine" fsize:0 -- "$honest" \
    > /dev/null 2> "$tmp/err" 9> /dev/null
say $? "stderr beyond the file limit" "exit status"
env CONFINE_PRELOAD="$lib" LAPSE_BACKSTOP=uffd "$confine" errno:323:1 -- \
    "$honest" file-at-2 "$tmp/file" > "$tmp/out" 2> "$tmp/err" 9> "$tmp/counts"
say $? "a file of the program in the place of stderr" "exit status"
[ ! -s "$tmp/file" ]
say $? "nothing of ours is in that file" "$(head -n 1 "$tmp/file")"
env CONFINE_PRELOAD="$lib" "$confine" close -- "$honest"
say $? "0, 1 and 2 closed" "exit status"

# Twice, by two paths: the one that programs find does it, the other says so.
mkdir "$tmp/copy" && cp "$lib" "$tmp/copy/"
copy=$tmp/copy/liblapse.so
expect "two copies" "$all" 1 env LD_PRELOAD="$lib:$copy" "$honest"
expect "two copies, the other way" "$all" 1 env LD_PRELOAD="$copy:$lib" "$honest"
ln -s "$lib" "$tmp/link.so"
expect "one file by two paths" "$all" 0 env LD_PRELOAD="$lib:$tmp/link.so" "$honest"
for other in lib_plt lib_release lib_malloc lib_joins; do
    o=$victims/$other.so
    expect "before $other" "$all" 0 env LD_PRELOAD="$lib:$o" "$honest"
    expect "behind $other" "$all" 0 env LD_PRELOAD="$o:$lib" "$honest"
done
expect "LD_BIND_NOW" "$all" 0 env LD_BIND_NOW=1 LD_PRELOAD="$lib" "$honest"
expect "LD_AUDIT" "$all" 0 env LD_AUDIT="$victims/lib_audit.so" \
    LD_PRELOAD="$lib" "$honest"

expect "valgrind" "$all" 0 env LD_PRELOAD="$lib" \
    valgrind -q --error-exitcode=9 "$honest"
sanitized() { # COMPILER SANITIZER
    if $1 -std=gnu11 -D_GNU_SOURCE -O1 -g -pthread -fsanitize=$2 -iquote . \
        -Wl,-z,dynamic-undefined-weak tests/honest.c -o "$tmp/$2" \
        2> /dev/null; then
        expect "$1 -fsanitize=$2" "$all" 0 env LD_PRELOAD="$lib" \
            ASAN_OPTIONS=verify_asan_link_order=0 \
            TSAN_OPTIONS=die_after_fork=0 "$tmp/$2"
    else
        echo "skipped $1 -fsanitize=$2: $1 is not there, or has it not"
    fi
}
for s in address undefined thread; do
    sanitized gcc $s
    sanitized clang $s
done
echo "sandbox: $ran places"
exit $failed
