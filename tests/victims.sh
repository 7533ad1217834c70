#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs every victim, and some real programs, bare and under LD_PRELOAD, and
# compares what they print (stdout and stderr) and how they exit: the program
# cannot tell (G5). One line per program; exit status 1 if any differs.
# Usage: tests/victims.sh [BUILD-DIRECTORY [NAME...]]
set -u
cd "$(dirname "$0")/.." || exit 2
build=$(realpath "${1:-build}")
[ $# -gt 0 ] && shift
only=" $* "
lib=$build/liblapse.so
dir=$build/tests/victims
[ -f "$lib" ] || { echo "victims: no $lib: run make first" >&2; exit 2; }
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
unset LD_PRELOAD
failed=0
ran=0

# compare NAME PRELOADED-ENV COMMAND...: runs it bare, then with that.
compare() {
    name=$1 preload=$2
    shift 2
    n=${name%% *}
    case $only in "  " | *" ${n%,} "*) ;; *) return ;; esac
    ran=$((ran + 1))
    timeout 60 "$@" > "$tmp/bare" 2>&1 < /dev/null
    bare=$?
    timeout 60 env LD_PRELOAD="$preload" "$@" > "$tmp/under" 2>&1 < /dev/null
    under=$?
    if [ "$bare" = "$under" ] && cmp -s "$tmp/bare" "$tmp/under"; then
        # A victim that fails bare proves nothing.
        case $bare in
            0) echo "ok      $name"; return ;;
        esac
    fi
    failed=1
    echo "FAILED  $name: exit status $bare bare, $under under the library"
    diff "$tmp/bare" "$tmp/under" | head -n 12
    grep DIFFERS "$tmp/bare" | head -n 3
}

# A real program is compared only where it is installed.
program() {
    if command -v "$2" > /dev/null 2>&1; then
        name=$1
        shift
        compare "$name" "$lib" "$@"
    else
        echo "skipped $1: $2 is not installed"
    fi
}

# All of this proves nothing if the library is not there, or does nothing.
if ! LD_PRELOAD=$lib LAPSE_REPORT=$tmp cat /proc/self/maps > "$tmp/maps" 2>&1 ||
    ! grep -q /liblapse.so "$tmp/maps" || [ -z "$(find "$tmp" -name '[0-9]*')" ]
then
    echo "FAILED  the library is not preloaded, or keeps no report"
    failed=1
fi

# Each victim three times: nobody subscribed; one that polls and one inline;
# one more that is called back, by a thread, which exits would count and
# confined would kill when it is woken. And once with every thread that there
# can be.
sub=$dir/lib_subscriber.so
[ -f "$sub" ] || { echo "victims: no $sub" >&2; exit 2; }
for v in tests/victims/*.c; do
    v=$(basename "$v" .c)
    set -- "$dir/$v"
    case $v in
        lib_*) continue ;;
        tls_poor) set -- "$dir/$v" "$lib" ;;
        forks) set -- "$dir/$v" 100 ;; # 0.1 s each on a busy machine
    esac
    compare "$v" "$lib" "$@"
    [ "$v" = confined ] && set -- "$@" --without-shm
    compare "$v, subscribers" "$lib:$sub" "$@"
    case $v in
        exits | confined) continue ;;
    esac
    compare "$v, callback" "$lib:$sub" env LIB_SUBSCRIBER=callback "$@"
    [ "$v" = last_thread ] || continue
    compare "$v, all threads" "$lib:$dir/lib_threads.so" "$@"
    if LAPSE_BACKSTOP=uffd "$build/tests/api_backstop" --probe > /dev/null
    then
        compare "$v, all threads and backstop" "$lib:$dir/lib_threads.so" \
            env LAPSE_BACKSTOP=uffd LIB_THREADS=4 "$@"
    else
        echo "skipped $v with backstop: the kernel gives no userfaultfd here"
    fi
done

program "ls of nothing" sh -c 'ls /none-such; test $? = 2'
program "ls -R" sh -c 'ls -R /usr/share/doc | md5sum'
program "bind now" sh -c 'LD_BIND_NOW=1 ls /usr'
program "bash" bash -c 'x=$(seq 3000 | (sort -n; true) | tail -n 1)
    for i in 1 2 3; do (exit $i); echo $?; done; echo $x
    trap "echo caught" USR1; kill -USR1 $$; wait'
program "perl" perl -e 'my %h = map { $_ => "x" x ($_ * 10) } 1 .. 2000;
    delete @h{1 .. 1500}; print length(join "", values %h), "\n";
    defined(my $p = fork) or die; exit 3 unless $p; wait; print $? >> 8, "\n"'
program "python3" python3 -c '
import ctypes, mmap, subprocess, sys, threading
def work(n, out):
    m = mmap.mmap(-1, 1 << 20)
    m[:4] = b"abcd"
    x = [bytes(300000) for _ in range(50)]
    m.resize(1 << 18)
    out[n] = bytes(m[:4]) + str(len(x)).encode()
    m.close()
out = {}
t = [threading.Thread(target=work, args=(i, out)) for i in range(8)]
[x.start() for x in t]; [x.join() for x in t]
print(sorted(out.items()))
print(subprocess.run(["sh", "-c", "exit 4"]).returncode)
libc = ctypes.CDLL(None, use_errno=True)
print(libc.munmap(ctypes.c_void_p(1), 4096), ctypes.get_errno())
try:
    ctypes.CDLL("libnone-such.so")
except OSError as e:
    print(e)'
program "cc" gcc -O1 -D_GNU_SOURCE -c tests/victims/errno.c -o "$tmp/o"
[ -f "$tmp/o" ] && program "object file" sh -c "
    gcc -O1 -D_GNU_SOURCE -c tests/victims/errno.c -o '$tmp/o' &&
    md5sum < '$tmp/o'"
program "redis-server" redis-server --version
program "java" java -XX:+UseSerialGC -version
program "node" node -e 'let a = []; for (let i = 0; i < 300; i++)
    a.push(Buffer.alloc(100000)); console.log(a.length)'
program "busybox" busybox ls /usr
if echo 'int main(void) { return 0; }' |
    gcc -static -x c - -o "$tmp/static" 2> /dev/null; then
    program "static binary" "$tmp/static"
fi

# A program built with AddressSanitizer, which has an allocator of its own.
if gcc -std=gnu11 -D_GNU_SOURCE -g -pthread -fsanitize=address -static-libasan \
    tests/victims/threads.c -o "$tmp/asan" 2> /dev/null; then
    compare "asan" "$lib" "$tmp/asan" 1
else
    echo "skipped asan: gcc cannot link -static-libasan here"
fi

[ "$ran" -gt 0 ] || { echo "victims: no such victim" >&2; exit 2; }
exit $failed
