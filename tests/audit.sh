#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# `lapse audit`: what is planted is found, where it is and as often as it was
# called; ordinary programs have nothing to find; no program can tell.
# BUILD=dir says where the programs are (default: build).
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${BUILD:-build}")
lapse=$build/lapse
. tests/helpers.sh

# status COMMAND...: runs it, prints its status; $tmp/out and $tmp/err
status() { timeout 120 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; echo $?; }
audit() { "$lapse" audit "$@"; }
# The places of a JSON report, "COUNT CALL MODULE+OFFSET SYMBOL", sorted.
places() {
    sed -n 's/.*"module": "\{0,1\}\([^",]*\)"\{0,1\}, "offset": "\([^"]*\)", '`
        `'"symbol": "\{0,1\}\([^",]*\)"\{0,1\}, "call": "\([^"]*\)", '`
        `'"count": \([0-9]*\),.*/\5 \4 \1+\2 \3/p' "$tmp/json" | sort
}
# found NAME WANTED COMMAND...: these places and no other
found() {
    local name=$1 wanted=$2
    shift 2
    is "$name: status" "$([ -n "$wanted" ] && echo 1 || echo 0)" \
        "$(status "$lapse" audit --json --output "$tmp/json" -- "$@")"
    is "$name" "$wanted" "$(places)"
}
# The address of the syscall instruction of a function, as objdump shows it.
address() {
    objdump -d --no-show-raw-insn "$1" | awk -v name="<$2>:" '
        $2 == name { inside = 1 } inside && /\tsyscall/ {
            sub(/:.*/, "", $1); print "0x" $1; exit }'
}

make_victims() {
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -pthread \
        -o "$tmp/victim" tests/audit_victim.c -ldl &&
        ${CC:-cc} -std=gnu11 -O1 -g -Wall -Wextra -fPIC -shared \
            -o "$tmp/library.so" tests/audit_library.c || exit 1
    victim=$tmp/victim
    munmap=$victim+$(address "$victim" planted_munmap)
    place=$(address "$tmp/library.so" planted_madvise)
}

planted() {
    found "an inline munmap" "7 munmap $munmap planted_munmap" \
        "$victim" inline 7
    found "one in a library opened later" \
        "5 madvise $tmp/library.so+$place planted_madvise" \
        "$victim" library 5 "$tmp/library.so"
    strip -o "$tmp/stripped" "$victim"
    found "one without symbols" "2 munmap $tmp/stripped+${munmap##*+} null" \
        "$tmp/stripped" inline 2
    is "code of no file: status" 1 "$(status "$lapse" audit "$victim" made 3)"
    says "code of no file" "3 munmap            code of no file, first at 0x"
    found "64 threads" "640 munmap $munmap planted_munmap" \
        "$victim" threads 100
    found "a storm of forks" "600 munmap $munmap planted_munmap" \
        "$victim" forks 300
    is "a storm of forks: processes" 601 \
        "$(sed -n 's/.*"processes": \([0-9]*\), "seen.*/\1/p' "$tmp/json")"
    cp "$tmp/library.so" "$tmp/another.so"
    found "one library in the place of another" "$(printf '%s\n' \
        "1 madvise $tmp/another.so+$place planted_madvise" \
        "1 madvise $tmp/library.so+$place planted_madvise")" \
        "$victim" reload 1 "$tmp/library.so" "$tmp/another.so"
    found "posix_spawn, vfork" "21 munmap $munmap planted_munmap" \
        "$victim" spawns 10
    found "a chain of execs, by threads" \
        "6 munmap $munmap planted_munmap" "$victim" execs 5
    is "a file that is mapped, cut: status" 1 \
        "$(status "$lapse" audit "$victim" file)"
    says "a file that is mapped, cut" " 1 ftruncate "
    is "a break that shrinks: status" 1 \
        "$(status "$lapse" audit "$victim" shrink)"
    says "a break that shrinks" " 1 brk "
    found "calls that release nothing" "" "$victim" nothing
    found "many places, one name" "$(printf '%s\n' \
        "1 madvise $tmp/library.so+$place planted_madvise" \
        "4 munmap $munmap planted_munmap")" sh -c '
        "$0" inline 3; "$0" library 1 "$1"; exec "$0" inline 1' \
        "$victim" "$tmp/library.so"
}

# Nobody preloads anything into these.
blind() {
    is "without the library: status" 1 \
        "$(status "$lapse" audit env -i "$victim" inline 2)"
    says "without the library" "of $victim, where the library is not loaded"
    printf 'int main(void) { return 4; }' >"$tmp/s.c"
    if ${CC:-cc} -static -o "$tmp/static" "$tmp/s.c" 2>/dev/null; then
        is "static program: status" 4 "$(status "$lapse" audit "$tmp/static")"
        says "static program" "of $tmp/static, where the library is not loaded"
    else
        skip "static program" "cannot link one"
    fi
    # The library is loaded into it, and says that it can do nothing there.
    cat >"$tmp/m.c" <<'C'
#include <sys/mman.h>
int main(void)
{
    void *p = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED || munmap(p, 4096) || munmap(p, 4096);
}
C
    if musl-gcc -o "$tmp/musl" "$tmp/m.c" 2>/dev/null; then
        is "program of another C library: status" 1 \
            "$(status "$lapse" audit "$tmp/musl")"
        says "program of another C library" "2 munmap "
    else
        skip "program of another C library" "no musl-gcc (musl-tools)"
    fi
    # mmap2, munmap of that, exit 0
    printf '%s\n' '.globl _start' '_start: mov $192,%eax' 'xor %ebx,%ebx' \
        'mov $4096,%ecx' 'mov $3,%edx' 'mov $0x22,%esi' 'mov $-1,%edi' \
        'xor %ebp,%ebp' 'int $0x80' 'mov %eax,%ebx' 'mov $91,%eax' \
        'int $0x80' 'mov $1,%eax' 'xor %ebx,%ebx' 'int $0x80' >"$tmp/n.s"
    if as --32 -o "$tmp/n.o" "$tmp/n.s" &&
        ld -m elf_i386 -o "$tmp/narrow" "$tmp/n.o" && "$tmp/narrow" 2>/dev/null
    then
        is "32-bit program: status" 1 "$(status "$lapse" audit "$tmp/narrow")"
        says "32-bit program" "1 call in 1 process of $tmp/narrow"
    else
        skip "32-bit program" "this system runs none"
    fi
}

# Programs that look closely at what their calls do: the same with a tracer.
victims() {
    local name file
    for name in confined releases threads tls_poor vforks; do
        file=$build/tests/victims/$name
        if [ ! -x "$file" ]; then skip "victim $name" "not built"; continue; fi
        "$file" >"$tmp/plain" 2>&1
        is "victim $name" 0 "$(status "$lapse" audit -- "$file")"
        is "victim $name: same output" "$(cat "$tmp/plain")" \
            "$(cat "$tmp/out")"
        says "victim $name: none unseen" ": none unseen: "
    done
}

# none NAME PROGRAM COMMAND...: it runs, and nothing is unseen
none() {
    local name=$1 program=$2
    shift 2
    if ! command -v "$program" >/dev/null; then
        skip "$name" "there is no $program"; return
    fi
    is "$name" 0 "$(status "$lapse" audit -- "$@")"
    says "$name: none unseen" ": none unseen: "
    if grep -q 'not loaded' "$tmp/err"; then
        bad "$name: seen inside"; cat "$tmp/err"
    else
        good "$name: seen inside"
    fi
    is "$name: it did its work" "done" "$(tail -n 1 "$tmp/out")"
    # A comparison of nothing with nothing would be no test.
    if [ "$(sed -n 's/.*none unseen: \([0-9]*\) call.*/\1/p' \
        "$tmp/err")" -gt 20 ]; then good "$name: there was something to see"
    else bad "$name: there was something to see"; fi
}

programs() {
    cat >"$tmp/p.py" <<'PY'
import ctypes, mmap, multiprocessing, subprocess, tempfile, threading
for i in range(50):
    m = mmap.mmap(-1, 1 << 20)
    m.write(b"x" * 8192)
    m.resize(1 << 21)
    m.madvise(mmap.MADV_DONTNEED)
    m.close()
with tempfile.TemporaryFile() as f:
    f.truncate(1 << 16)
    m = mmap.mmap(f.fileno(), 1 << 16)
    m[:4] = b"abcd"
    m.close()
libc = ctypes.CDLL(None)
keep = [bytes(3000) for i in range(3000)]
del keep
libc.malloc_trim(0)
libc.dlclose.argtypes = [ctypes.c_void_p]
for i in range(3):
    libc.dlclose(ctypes.CDLL("libresolv.so.2")._handle)
threads = [threading.Thread(target=lambda: bytearray(1 << 22))
           for i in range(16)]
for t in threads:
    t.start()
for t in threads:
    t.join()
subprocess.run("ls | sort >/dev/null", shell=True)
with multiprocessing.Pool(2) as pool:
    pool.map(abs, range(100))
print("done")
PY
    none python "$(PATH=/usr/bin:/bin type -P python3 || echo python3)" \
        "$(PATH=/usr/bin:/bin type -P python3)" "$tmp/p.py"
    cat >"$tmp/r.sh" <<'SH'
cli() { redis-cli -s "$1/socket" "$2" $3 $4 >/dev/null 2>&1; }
redis-server --port 0 --unixsocket "$1/socket" --save '' --appendonly yes \
    --dir "$1" >/dev/null & server=$!
n=0; until cli "$1" ping; do
    n=$((n + 1)); [ $n -lt 200 ] || exit 1; sleep 0.05; done
redis-benchmark -s "$1/socket" -q -n 5000 -d 2000 -r 5000 -t set,get,lpush \
    >/dev/null
cli "$1" bgrewriteaof; cli "$1" flushall; cli "$1" memory purge; sleep 0.3
cli "$1" shutdown nosave; wait $server && echo done
SH
    mkdir "$tmp/redis"
    none "redis (jemalloc)" redis-server sh "$tmp/r.sh" "$tmp/redis"
    cat >"$tmp/t.cc" <<'CC'
#include <cstdio>
#include <string>
#include <thread>
#include <vector>
extern "C" void MallocExtension_ReleaseFreeMemory(void);
int main()
{
    std::vector<std::thread> all;
    for (int t = 0; t < 8; t++)
        all.emplace_back([] {
            for (int i = 0; i < 50; i++) {
                std::vector<std::string> v;
                for (int k = 0; k < 500; k++)
                    v.emplace_back(k * 10, 'x');
                std::vector<char> big(1 << 22);
            }
        });
    for (auto &t : all)
        t.join();
    MallocExtension_ReleaseFreeMemory();
    puts("done");
}
CC
    if g++ -O1 -pthread -o "$tmp/tcmalloc" "$tmp/t.cc" \
        -l:libtcmalloc_minimal.so.4 2>"$tmp/err"; then
        none "C++ (tcmalloc)" "$tmp/tcmalloc" "$tmp/tcmalloc"
    else
        skip "C++ (tcmalloc)" "no g++, or no libtcmalloc_minimal.so.4"
    fi
    cat >"$tmp/n.js" <<'JS'
const { Worker, isMainThread } = require('worker_threads');
if (isMainThread) {
    let left = 4;
    for (let i = 0; i < 4; i++)
        new Worker(__filename).on('exit', () => {
            if (!--left) console.log('done');
        });
}
let kept = [];
for (let i = 0; i < 100; i++) {
    kept.push(Buffer.alloc(1 << 20));
    if (kept.length > 50) kept = [];
}
let objects = [];
for (let i = 0; i < 3e5; i++) objects.push({ i, s: 'x' + i });
JS
    none node node node "$tmp/n.js"
    cat >"$tmp/J.java" <<'JAVA'
import java.nio.ByteBuffer;
public class J {
    public static void main(String[] a) throws Exception {
        Thread[] all = new Thread[20];
        for (int t = 0; t < all.length; t++) {
            all[t] = new Thread(() -> {
                for (int i = 0; i < 100; i++) {
                    byte[] b = new byte[1 << 20];
                    b[5] = 1;
                }
            });
            all[t].start();
        }
        for (Thread t : all)
            t.join();
        for (int i = 0; i < 20; i++)
            ByteBuffer.allocateDirect(1 << 20);
        System.gc();
        System.out.println("done");
    }
}
JAVA
    none java java java "$tmp/J.java"
}

same() {
    local sig pid code
    is "exit status 0" "exit 0" "$(ended "$lapse" audit true)"
    is "exit status 7" "exit 7" "$(ended "$lapse" audit sh -c 'exit 7')"
    says "exit status 7 is said" "ended with status 7"
    is "unseen counts more" "exit 1" \
        "$(ended "$lapse" audit sh -c '"$0" inline; exit 7' "$victim")"
    for sig in KILL TERM SEGV; do
        is "dies by $sig" "signal $(kill -l $sig) core 0" \
            "$(ended "$lapse" audit sh -c "ulimit -c 0; kill -$sig \$\$")"
    done
    is "standard output is the program's" hi "$(audit echo hi 2>/dev/null)"
    is "standard error too, with --output" hi \
        "$(audit --output "$tmp/report" sh -c 'echo hi >&2' 2>&1)"
    is "no such program" 127 \
        "$(PATH=/usr/bin:/bin status "$lapse" audit nosuchprogram)"
    says "no such program is named" "'nosuchprogram'"
    is "not executable" 126 "$(status "$lapse" audit /etc/passwd)"
    is "wrong option" 2 "$(status "$lapse" audit --nosuch true)"
    is "--top wants a number" 2 "$(status "$lapse" audit --top x true)"
    is "--help" 0 "$(status "$lapse" audit --help)"
    is "--output that cannot be" 2 \
        "$(status "$lapse" audit --output /nosuch/file touch "$tmp/ran")"
    [ ! -e "$tmp/ran" ]; is "then nothing ran" 0 $?
    is "inside another audit" 125 \
        "$(status "$lapse" audit "$lapse" audit touch "$tmp/ran")"
    says "then it says why" "may not trace another one"
    [ ! -e "$tmp/ran" ]; is "then nothing ran either" 0 $?
    is "io_uring: status" 0 "$(status "$lapse" audit perl -e '
        my $p = "\0" x 120; syscall(425, 1, $p); exit 0')"
    says "io_uring" "IORING_OP_FALLOCATE are not audited"
    is "environment: one variable more" "> LD_PRELOAD" "$(
        env | sort | grep -v '^_=' >"$tmp/before"
        audit env 2>/dev/null | sort | grep -v '^_=' |
            diff "$tmp/before" - | grep '^[<>]' | sed 's/=.*//')"
}

signals() {
    local pid sig key
    # Handlers that do not restart a call, 3000 times a second.
    is "signals during calls: status" 1 \
        "$(status "$lapse" audit "$victim" interrupted 5000)"
    is "signals during calls" interrupted "$(cat "$tmp/out")"
    for sig in USR1 HUP TERM; do
        "$lapse" audit --output "$tmp/report" sh -c 'trap "echo got; exit 3" \
            USR1 HUP TERM; echo ready
            n=0; while [ $n -lt 200 ]; do n=$((n + 1)); sleep 0.05; done' \
            >"$tmp/out" &
        pid=$!
        until_true grep -q ready "$tmp/out"
        kill -$sig $pid; wait $pid
        is "$sig is passed on" "3 ready got" \
            "$? $(tr -s '\n' ' ' <"$tmp/out" | sed 's/ $//')"
        : >"$tmp/out"
    done
    "$lapse" audit --output "$tmp/report" sh -c 'echo ready
        kill -STOP $$; echo back' >"$tmp/out" &
    pid=$!
    until_true grep -q ready "$tmp/out"
    sleep 0.2
    is "STOP stops the program" ready "$(cat "$tmp/out")"
    kill -CONT $pid; wait $pid
    is "CONT wakes it" "ready back " "$(tr '\n' ' ' <"$tmp/out")"
    if ! python3 -c 'import pty' 2>/dev/null; then
        skip "terminal" "no python3 to play one"
    else
        # A parent sees its child stop, go on and end.
        is "stops of a child" "19 7" "$(audit python3 -c '
import os, signal
child = os.fork()
if not child:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(7)
stopped = os.WSTOPSIG(os.waitpid(child, os.WUNTRACED)[1])
os.kill(child, signal.SIGCONT)
print(stopped, os.WEXITSTATUS(os.waitpid(child, 0)[1]))' 2>/dev/null)"
        for key in intr stop; do
            is "terminal: $key" good "$(python3 tests/run_cmd_tty.py $key \
                "$lapse" "$tmp/report" audit)"
        done
    fi
    # It must not live on without a tracer: its calls would fail.
    "$lapse" audit sh -c 'echo $$ >"$0"; exec sleep 100' "$tmp/pid" \
        2>/dev/null &
    pid=$!
    until_true grep -q . "$tmp/pid"
    { kill -KILL $pid; wait $pid; } 2>/dev/null
    until_true sh -c '! kill -0 $(cat "$0")' "$tmp/pid"
    is "it ends with its tracer" 0 $?
}

left_behind() {
    local pid
    is "a child that lives on is waited for" "exit 1" "$(ended "$lapse" \
        audit sh -c '(sleep 0.5; exec "$0" inline) & exit 0' "$victim")"
    says "and audited" "planted_munmap"
    "$lapse" audit sh -c 'sleep 100 & echo $! >"$0"; exit 0' "$tmp/pid2" \
        2>"$tmp/err" &
    pid=$!
    until_true grep -q "waiting for them" "$tmp/err"
    kill -TERM $pid; wait $pid
    is "no longer than wanted" 0 $?
    until_true sh -c '! kill -0 $(cat "$0")' "$tmp/pid2"
    is "then it is killed" 0 $?
}

if ! "$lapse" audit true 2>"$tmp/err"; then
    if grep -q "may not trace another one" "$tmp/err"; then
        skip audit "$(cat "$tmp/err")"; exit 77
    fi
fi
make_victims
for part in planted blind victims programs same signals left_behind; do
    $part
done
exit $failed
