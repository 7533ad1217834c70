#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The command `lapse run`: the program cannot tell, and the report is right.
# BUILD=dir says where the programs are (default: build).
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${BUILD:-build}")
lapse=$build/lapse
. tests/helpers.sh
mkdir "$tmp/tmp"
export TMPDIR=$tmp/tmp
# Where lapse itself has something preloaded; a sanitizer in it would object.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0

# status COMMAND...: runs it, prints its status; $tmp/out and $tmp/err
status() { "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; echo $?; }
run() { "$lapse" run --output "$tmp/report" -- "$@"; }
# The words of a file on one line.
words() { tr -s '\n' ' ' <"$1" | sed 's/ $//'; }

# What is freed is a row of its own, and no part of the total.
frees() {
    "$lapse" run --free --json --output "$tmp/free.json" -- \
        python3 -c 'import ctypes
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
for i in range(5000): c.free(ctypes.c_void_p(c.malloc(100000)))'
    is "--free: exit status" 0 $?
    is "--free: frees are counted" yes "$(python3 - "$tmp/free.json" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
p = max(r["processes"], key=lambda p: [q["releases"] for q in p["paths"]
                                       if q["path"] == "free"][0])
f = [q for q in p["paths"] if q["path"] == "free"][0]
print("yes" if f["releases"] >= 5000 and f["bytes"] >= 5e8 and
      r["total"]["releases"] < 5000 else f)
PY
)"
}

usage() {
    is "--version" 0 "$(status "$lapse" --version)"
    is "--help" 0 "$(status "$lapse" --help)"
    is "help run" 0 "$(status "$lapse" help run)"
    is "run --help" 0 "$(status "$lapse" run --help)"
    is "no command" 2 "$(status "$lapse")"
    is "unknown command" 2 "$(status "$lapse" nosuch)"
    says "unknown command is named" "'nosuch'"
    is "nothing to run" 2 "$(status "$lapse" run)"
    is "wrong option" 2 "$(status "$lapse" run --nosuch true)"
    says "wrong option is named" "'--nosuch'"
    says "wrong option points at help" "--help"
    is "wrong letter" 2 "$(status "$lapse" run -x true)"
    says "wrong letter is named" "'-x'"
    is "option without value" 2 "$(status "$lapse" run --top)"
    for bad in x -1 1x '' 99999999999999999999; do
        is "--top '$bad'" 2 "$(status "$lapse" run --top "$bad" true)"
    done
    is "--output that cannot be" 2 \
        "$(status "$lapse" run --output /nosuch/file touch "$tmp/ran")"
    says "--output says why" "'/nosuch/file'"
    [ ! -e "$tmp/ran" ]; is "then nothing ran" 0 $?
    is "no such library" 125 \
        "$(LAPSE_LIBRARY=/nosuch.so status "$lapse" run true)"
    says "no such library is named" "/nosuch.so"
    is "no such TMPDIR" 125 "$(TMPDIR=/nosuch status "$lapse" run true)"
    says "no such TMPDIR is named" "'/nosuch'"
}

not_runnable() {
    # Other directories might be closed to us, which is another error.
    is "no such program" 127 \
        "$(PATH=/usr/bin:/bin status "$lapse" run nosuchprogram)"
    says "no such program is named" "'nosuchprogram'"
    is "no such file" 127 "$(status "$lapse" run ./nosuch/program)"
    is "not executable" 126 "$(status "$lapse" run /etc/passwd)"
    is "a directory" 126 "$(status "$lapse" run /tmp)"
    printf '#!/nosuch/interpreter\n' >"$tmp/script"; chmod +x "$tmp/script"
    is "no interpreter" 127 "$(status "$lapse" run "$tmp/script")"
    says "no interpreter is said" "interpreter"
}

same() {
    is "exit status 0" "exit 0" "$(ended "$lapse" run true)"
    is "exit status 7" "exit 7" "$(ended "$lapse" run sh -c 'exit 7')"
    is "exit status 255" "exit 255" "$(ended "$lapse" run sh -c 'exit 255')"
    is "standard output is the program's" hi "$(run echo hi)"
    is "standard error too, with --output" hi "$(run sh -c 'echo hi >&2' 2>&1)"
    is "standard input" hi "$(echo hi | run cat)"
    is "options of the program" "--json -n" "$(run printf '%s %s' --json -n)"
    is "without --" "-x" "$("$lapse" run echo -x 2>/dev/null)"
    is "its zeroth argument" cat "$(run sh -c 'cat /proc/self/cmdline' |
        tr '\0' '\n' | head -n 1)"
    is "no stderr to write to" 0 "$("$lapse" run true 2>&-; echo $?)"
    is "no descriptor at all" 0 "$("$lapse" run true <&- >&- 2>&-; echo $?)"
    is "a stderr nobody reads" "exit 3" "$(perl -e '
        pipe(R, W); close(R); open(STDERR, ">&W");
        system(@ARGV); print "exit ", $? >> 8' "$lapse" run sh -c 'exit 3')"
    local state="grep -E 'Sig(Blk|Ign|Cgt)|NoNewPrivs' /proc/self/status;
        ls /proc/self/fd; umask; pwd; ulimit -a; ps -o pgid=,tty= -p \$\$"
    is "signals, descriptors, limits" "$(bash -c "$state")" \
        "$(run bash -c "$state")"
    is "inherited ignored signals" \
        "$(trap '' HUP CHLD USR1; grep SigIgn /proc/self/status)" \
        "$(trap '' HUP CHLD USR1; run grep SigIgn /proc/self/status)"
    is "status although SIGCHLD was ignored" 7 \
        "$(perl -e '$SIG{CHLD} = "IGNORE"; exec @ARGV' \
            "$lapse" run sh -c 'exit 7' 2>/dev/null; echo $?)"
}

environment() {
    local mine
    env | sort >"$tmp/before"
    run env | sort | grep -v '^_=' >"$tmp/after"
    mine=$(grep -v '^_=' "$tmp/before" | diff - "$tmp/after" |
        grep '^[<>]' | sed 's/=.*//')
    is "environment: two variables more" \
        "> LAPSE_REPORT > LD_PRELOAD" "$(echo $mine)"
    is "LD_PRELOAD kept behind ours" "liblapse.so:libpthread.so.0" \
        "$(LD_PRELOAD=libpthread.so.0 run sh -c 'echo $LD_PRELOAD' |
            sed 's|.*/||; s|\.so\.0:|.so:|')"
    is "directory is for the owner only" 700 \
        "$(run sh -c 'stat -c %a "$LAPSE_REPORT"')"
    is "small limit of file sizes" 5 "$(ulimit -f 100
        status "$lapse" run sh -c 'true & wait; exit 5')"
    says "then it is not reported" "(error 27); this process is not reported"
    is "relative TMPDIR" "$tmp/tmp" "$(cd "$tmp" &&
        TMPDIR=tmp run sh -c 'dirname "$LAPSE_REPORT"')"
    is "directory is gone" "" "$(ls "$TMPDIR")"
}

signals() {
    local sig pid code loop='
        trap "echo got; exit 3" USR1 USR2 HUP INT QUIT WINCH
        echo ready; while :; do sleep 0.05; done'
    for sig in KILL TERM SEGV HUP; do
        is "dies by $sig" "signal $(kill -l $sig) core 0" \
            "$(ulimit -c unlimited 2>/dev/null; cd "$tmp" || exit
                ended "$lapse" run sh -c "ulimit -c 0; kill -$sig \$\$")"
    done
    for sig in USR1 USR2 HUP INT QUIT WINCH TERM; do
        # Children in the background of a shell ignore INT and QUIT.
        perl -e '$SIG{INT} = $SIG{QUIT} = "DEFAULT"; exec @ARGV' "$lapse" \
            run --output "$tmp/report" sh -c "$loop" >"$tmp/out" &
        pid=$!
        until_true grep -q ready "$tmp/out"
        kill -$sig $pid
        { wait $pid; } 2>/dev/null
        code=$?
        if [ $sig = TERM ]; then is "TERM is passed on" 143 $code
        else is "$sig is passed on" "3 ready got" "$code $(words "$tmp/out")"
        fi
        : >"$tmp/out"
    done
    is "directory is gone after signals" "" "$(ls "$TMPDIR")"
    "$lapse" run --output "$tmp/report" sh -c 'echo ready
        kill -STOP $$; echo back' >"$tmp/out" &
    pid=$!
    until_true grep -q ready "$tmp/out"
    sleep 0.2
    kill -CONT $pid; wait $pid
    is "CONT wakes the program" "ready back" "$(words "$tmp/out")"
    if ! python3 -c 'import pty' 2>/dev/null; then
        skip "terminal" "no python3 to play one"; return
    fi
    for key in intr stop; do
        is "terminal: $key" good \
            "$(python3 tests/run_cmd_tty.py $key "$lapse" "$tmp/report")"
    done
}

blind() {
    printf 'int main(void){return 4;}' >"$tmp/s.c"
    if ${CC:-cc} -static -o "$tmp/static" "$tmp/s.c" 2>/dev/null; then
        is "static program runs" 4 "$(status "$lapse" run "$tmp/static")"
        says "static program is said" "statically linked"
        says "then there is no report" "no report"
        printf '#!%s\n' "$tmp/static" >"$tmp/script"; chmod +x "$tmp/script"
        is "script of one runs" 4 "$(status "$lapse" run "$tmp/script")"
        says "script of one is said" "interpreter that is statically linked"
        is "found in PATH" 4 "$(PATH=$tmp:$PATH status "$lapse" run static)"
        says "found in PATH, said" "statically linked"
        is "no report in JSON" 4 "$(status "$lapse" run --json \
            --output "$tmp/report" "$tmp/static")"
        if grep -q '"processes": \[\]' "$tmp/report"; then
            good "then it is empty"; else bad "then it is empty"; fi
    else
        skip "static program" "cannot link one"
    fi
    if [ -e "$build/tests/victims/lib_patcher.so" ]; then
        is "somebody patches later" 0 "$(status "$lapse" run python3 -c '
import ctypes, sys
functions = (ctypes.c_void_p * 3).in_dll(ctypes.CDLL(sys.argv[1]),
                                         "lib_patcher")
patch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int,
                         ctypes.c_int)(functions[0])
sys.exit(patch(b"madvise", 12, 0))' "$build/tests/victims/lib_patcher.so")"
        says "and is named in the report" \
            "overwritten since by a patch of $build/tests/victims/lib_patcher"
    else
        skip "somebody patches later" "the tests are not built"
    fi
    if musl-gcc -o "$tmp/musl" "$tmp/s.c" 2>/dev/null; then
        is "program of another C library runs" 4 \
            "$(status "$lapse" run "$tmp/musl")"
        says "program of another C library is said" "uses another C library"
        is "as a child, too" 4 "$(status "$lapse" run sh -c "$tmp/musl")"
        is "with the library itself" 4 "$(status env \
            LD_PRELOAD="${lapse%/*}/liblapse.so" "$tmp/musl")"
        says "which says it" "no release of memory is seen"
    else
        skip "program of another C library" "no musl-gcc (musl-tools)"
    fi
    if ${CC:-cc} -fsanitize=address -o "$tmp/asan" "$tmp/s.c" 2>/dev/null &&
        [ "$(status "$tmp/asan")" = 4 ]; then
        is "program with AddressSanitizer" 4 "$(ASAN_OPTIONS=verbosity=0 \
            status "$lapse" run "$tmp/asan")"
        says "program with AddressSanitizer, seen" "asan (pid"
    else
        skip "program with AddressSanitizer" "cannot make one"
    fi
    cp "$(type -P true)" "$tmp/suid"
    if [ "$(id -u)" = 0 ] && chown nobody "$tmp/suid" &&
        chmod 4755 "$tmp/suid"; then
        is "setuid program runs" 0 "$(status "$lapse" run "$tmp/suid")"
        says "setuid program is said" "is setuid"
    else
        skip "setuid program" "only root can make one for somebody else"
    fi
    is "ordinary program" 0 "$(status "$lapse" run true)"
    if grep -q "cannot see" "$tmp/err"; then bad "ordinary: no complaint"
    else good "ordinary: no complaint"; fi
    is "script by way of env" 0 "$(printf '#!/usr/bin/env sh\n' \
        >"$tmp/script"; status "$lapse" run "$tmp/script")"
    if grep -q "cannot see" "$tmp/err"; then bad "by way of env: no complaint"
    else good "by way of env: no complaint"; fi
}

# Releases for certain: large strings are mappings of their own.
release() { "$@" perl -e '$x = "a" x 10_000_000; undef $x'; }
busy() { "$@" sh -c 'cat /etc/passwd | sort >/dev/null; sort /etc/passwd'; }

report() {
    busy "$lapse" run >/dev/null 2>"$tmp/err"
    says "report on stderr" "lapse: sort (pid "
    says "report has a table" "in allocator"
    says "report has a total" "processes"
    busy "$lapse" run --output "$tmp/report" >/dev/null 2>"$tmp/err"
    is "--output leaves stderr alone" "" "$(cat "$tmp/err")"
    if grep -q 'lapse: sort (pid' "$tmp/report"; then good "--output"
    else bad "--output"; fi
    release "$lapse" run 2>"$tmp/err"
    says "callers are listed" "Callers"
    says "callers have a module" "+0x"
    says "the danger is said" " from inside an allocator"
    release "$lapse" run --top 0 2>"$tmp/err"
    is "--top 0" 0 "$(grep -c Callers "$tmp/err")"
    release "$lapse" run --top 1 2>"$tmp/err"
    is "--top 1" 1 "$(sed '1,/Callers/d' "$tmp/err" | grep -c '0x')"
    # Attaches and detaches; how long the segment is must be asked for, though
    # nobody is subscribed.
    run perl -e '$id = shmget(0, 20480, 01600); shmread($id, $b, 0, 1);
        shmctl($id, 0, 0)'
    is "the whole segment is counted" "shmdt 1 1 20K" \
        "$(awk '$1 == "shmdt" { print $1, $2, $3, $4; exit }' "$tmp/report")"
    # The shell, ten forks of it, and what these execute.
    "$lapse" run bash -c 'for i in 1 2 3 4 5 6 7 8 9 10; do
        perl -e "\$x = q(a) x 10_000_000; undef \$x"; done; :' 2>"$tmp/err"
    says "many processes: all together" "lapse: all 21 processes"
    is "many processes: the first 8" 8 "$(grep -c '(pid' "$tmp/err")"
    says "many processes: how many more" "lapse: 13 more processes"
    "$lapse" run --json "$lapse" run --json --output "$tmp/report" \
        sort /etc/passwd >/dev/null 2>"$tmp/err"
    says "a run in a run: the outer report" '"name": "lapse"'
    mv "$tmp/report" "$tmp/err"
    says "a run in a run: the inner report" '"name": "sort"'
}

json() {
    if ! command -v python3 >/dev/null; then
        skip json "no python3 to read it with"; return
    fi
    "$lapse" run --json --output "$tmp/report" -- sh -c 'sort /etc/passwd
        perl -e "for (1..5) { my \$x = q(a) x 10_000_000; undef \$x }"
        exit 9' $'a"\\\n\377é' >/dev/null
    is "json" good "$(python3 - "$tmp/report" <<'PY'
import json, os, sys
r = json.load(open(sys.argv[1]))
assert r["version"] == 1
assert os.fsencode(r["command"][3]) == b'a"\\\n\xff\xc3\xa9', r["command"]
assert r["exit"] == {"code": 9}, r["exit"]
names = [p["name"] for p in r["processes"]]
assert "sh" in names and "sort" in names, names
fields = ["calls", "releases", "bytes", "inside_allocator", "inside_loader",
          "inside_libc"]
for f in fields:
    whole = sum(p[f] for q in r["processes"] for p in q["paths"])
    assert whole == r["total"][f], f
sort = r["processes"][names.index("sort")]
assert len(sort["paths"]) == 16
assert sum(p["calls"] for p in sort["paths"]) > 0
perl = r["processes"][names.index("perl")]
munmap = perl["paths"][0]
assert munmap["path"] == "munmap" and munmap["inside_allocator"] >= 1, munmap
assert munmap["bytes"] >= 5_000_000, munmap
assert any("libc" in (c["module"] or "") for c in perl["callers"])
for q in r["processes"]:
    counts = [c["count"] for c in q["callers"]]
    assert counts == sorted(counts, reverse=True)
    counted = sum(p["releases"] for p in q["paths"] if p["path"] != "publish")
    assert sum(counts) + q["callers_lost"] == counted, (counts, counted)
print("good")
PY
)"
    ended "$lapse" run --json --output "$tmp/report" sh -c 'kill -9 $$' \
        >/dev/null
    is "json of a killed one" "{'signal': 9}" "$(python3 -c '
import json, sys
print(json.load(open(sys.argv[1]))["exit"])' "$tmp/report")"
}

# Report files are not to be believed: the program may have written them.
distrust() {
    "$lapse" run sh -c 'cd "$LAPSE_REPORT"; echo junk >1.0; mkfifo 2.0
        head -c 700000 /dev/zero >3.0; ln -s /etc/passwd 4.0
        head -c 700000 /dev/urandom >5.0' 2>"$tmp/err"
    says "files that are no reports" "5 reports could not be read"
    "$lapse" run sh -c 'cd "$LAPSE_REPORT"; f=$(echo $$.*)
        (printf "lapse1\0\0"; head -c 700000 /dev/urandom) >9.0
        cat 9.0 >"$f"' >/dev/null 2>"$tmp/err"
    is "random numbers in a report" 0 $?
    is "directory is gone after junk" "" "$(ls "$TMPDIR")"
}

wrapper() {
    if [ ! -x build/lapse ] || [ ! -e build/liblapse.so ]; then
        skip "scripts/lapse" "nothing in build/, and building is not for here"
        return
    fi
    ln -s "$PWD/scripts/lapse" "$tmp/link"
    is "scripts/lapse by a link" "$("$lapse" --version)" \
        "$(cd / && "$tmp/link" --version)"
}

for part in usage frees not_runnable same environment signals blind report json \
    distrust wrapper; do
    $part
done
exit $failed
