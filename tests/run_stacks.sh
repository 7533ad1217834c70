#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# `lapse run --stacks`: every release is in a stack or counted as missing, and
# nothing stays behind. That the stacks are right is stacks_gdb.sh's matter.
# run_stacks.sh [BUILD]
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${1:-build}")
lapse=$build/lapse
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/tmp"
export TMPDIR=$tmp/tmp
unset LAPSE_REPORT LAPSE_TRACE LAPSE_STACKS LAPSE_TRACE_RING LD_PRELOAD
failed=0
good() { echo "ok: $1"; }
bad() { echo "FAILED: $1"; failed=1; }
is() {
    if [ "$2" = "$3" ]; then good "$1"; else
        bad "$1"; printf '  wanted: %s\n  got:    %s\n' "$2" "$3"
    fi
}
stacks() { "$lapse" run --output "$tmp/report" "$@"; }

# judge NAME EXPRESSION: of the JSON report; p: its processes, busiest first.
judge() {
    is "$1" True "$(python3 - "$tmp/report" "$2" 2>&1 <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
def releases(p):
    return sum(q["releases"] for q in p["paths"] if q["path"] != "free")
def told(p):
    return sum(s["count"] for s in p["stacks"])
def missing(p):
    return p["without_stack"] + p["overwritten"] + p["lost"]
def names(p):
    return {f["symbol"] for s in p["stacks"] for f in s["frames"]}
def ends(p):
    return {s["end"] for s in p["stacks"]}
def modules(p):
    return {(f["module"], f["build_id"]) for s in p["stacks"]
            for f in s["frames"]}
p = sorted(r["processes"], key=releases, reverse=True)
scope = dict(globals())
value = eval(sys.argv[2], scope)
print(value if value is True else
      (value, [(q["name"], releases(q), told(q), missing(q)) for q in p]))
PY
)"
}

stacks --stacks --json "$build/tests/stacks_victim"
judge "each release is in a stack" \
    'releases(p[0]) > 80 and told(p[0]) == releases(p[0]) and not missing(p[0])'
judge "with the functions of the program" \
    '{"main", "busy", "recurse", "with_alloca", "with_cleanup", "compare",
      "on_signal", "coroutine", "thread", "free", "munmap"} <= names(p[0])'
judge "through code with cleanups" \
    'all("main" in f for f in ({f["symbol"] for f in s["frames"]}
                               for s in p[0]["stacks"])
         if "with_cleanup" in f)'
judge "down to where each thread began" \
    'ends(p[0]) - {"no table"} == {"whole"}'
id=$(readelf -n "$build/tests/stacks_victim" | sed -n 's/.*Build ID: //p')
judge "the build id is the file's" \
    "('$build/tests/stacks_victim', '$id' or None) in modules(p[0])"

(cd "$build/tests/victims" && stacks --stacks --json /usr/bin/python3 -S -c \
    'import ctypes; ctypes.CDLL("./lib_release.so")')
judge "a module that was opened by a relative name" \
    "any(m == '$build/tests/victims/lib_release.so' for m, i in modules(p[0]))"

# Two libraries at the same place, one after the other: the callers are kept by
# address, and must not be taken for those of the second.
cp "$build/tests/victims/lib_release.so" "$tmp/second.so"
stacks --stacks --json /usr/bin/python3 -S -c '
import ctypes, _ctypes, sys
open_ = lambda name: _ctypes.dlopen(name, 2)
for i in range(9):
    _ctypes.dlclose(open_(sys.argv[1]))
open_(sys.argv[2])' "$build/tests/victims/lib_release.so" "$tmp/second.so"
judge "what an unloaded module did is not the next one's" \
    "[sum(c['count'] for c in p[0]['callers'] if c['path'] == 'madvise' and
          c['module'] == m) for m in (None, '$tmp/second.so')] == [18, 2]"
judge "and the stacks tell whose it was" \
    "sum(s['count'] for s in p[0]['stacks'] if s['path'] == 'madvise' and
         s['frames'][1]['module'].endswith('/lib_release.so')) == 18"

stacks --stacks --top 2 "$build/tests/stacks_victim"
is "people see two stacks" 1 \
    "$(grep -c 'Stacks, the first 2 of' "$tmp/report")"
is "with names" yes "$(grep -q ' stacks_victim+0x.* (main)$' "$tmp/report" &&
    echo yes)"
stacks --stacks --top 0 "$build/tests/stacks_victim"
is "none, if that was asked for" 0 "$(grep -c 'Stacks' "$tmp/report")"

cat > "$tmp/busy.py" <<'PY'
import mmap, os, sys
def f(n):
    for i in range(n):
        mmap.mmap(-1, 4096).close()
n = int(sys.argv[1])
if os.fork():
    f(n)
    os.wait()
else:
    f(n)
    if len(sys.argv) > 2:
        os.kill(os.getpid(), 9)
    os.execv("/usr/bin/env", ["env", "-i", "/bin/true"])
PY
stacks --stacks=4 --json /usr/bin/python3 -S "$tmp/busy.py" 300
judge "a forked child has stacks of its own" \
    'all(told(q) >= 300 and told(q) + missing(q) == releases(q) and
         "munmap" in names(q) and "whole" in ends(q)
         for q in p[:2]) and len(p) > 2'
stacks --stacks=4 --json /usr/bin/python3 -S "$tmp/busy.py" 300 die
judge "one that was killed too" \
    'all(told(q) >= 300 and told(q) + missing(q) == releases(q)
         for q in p[:2])'
LAPSE_TRACE_RING=1024 stacks --stacks=64 --json \
    /usr/bin/python3 -S "$tmp/busy.py" 20000
judge "what was written over is counted to the last one" \
    '(all(told(q) + missing(q) == releases(q) >= 20000 for q in p[:2]) and
      sum(missing(q) for q in p) > 0)'
stacks --stacks=1 --json "$build/tests/stacks_victim"
judge "a stack that was cut says so" \
    '{"cut", "whole"} <= ends(p[0]) and told(p[0]) == releases(p[0])'

stacks --stacks sh -c 'i=0
    while [ $i -lt 100 ]; do /bin/true; i=$((i + 1)); done
    sleep 1; du -sk "$LAPSE_TRACE" 2> /dev/null' > "$tmp/used"
is "processes that are over take no memory" yes \
    "$([ "$(cut -f 1 "$tmp/used")" -lt 2500 ] && echo yes || cat "$tmp/used")"

stacks --stacks sh -c 'cd "$LAPSE_TRACE"; echo junk > 1.0.trace
    mkfifo 2.0.trace; head -c 300000 /dev/urandom > 3.0.trace
    f=$(echo $$.0.trace); head -c 3000 /dev/urandom > 4.0.trace; :'
is "junk among the traces" 0 $?

stacks --stacks sh -c 'ulimit -v 1000000; /usr/bin/python3 -S -c \
    "b = [bytes(3000) for i in range(999)]"' 2> "$tmp/err"
is "a process that can have no trace" 1 \
    "$(grep -c 'No stacks: this process' "$tmp/report")"

for bad in 0 65 x -1 99999999999999999999; do
    "$lapse" run --stacks="$bad" touch "$tmp/ran" 2> "$tmp/err"
    is "--stacks=$bad" 2 $?
done
[ ! -e "$tmp/ran" ]
is "then nothing ran" 0 $?
is "nothing stays" "" "$(ls "$TMPDIR")"
if [ -w /dev/shm ]; then
    was=$(ls -d /dev/shm/lapse.* 2> /dev/null | wc -l)
    is "in /dev/shm, where nobody says otherwise" /dev/shm \
        "$(env -u TMPDIR "$lapse" run --stacks --output "$tmp/report" \
            sh -c 'echo "$LAPSE_TRACE"' | cut -d / -f 1-3)"
    is "and nothing stays there" "$was" \
        "$(ls -d /dev/shm/lapse.* 2> /dev/null | wc -l)"
else
    echo "skip: no /dev/shm that can be written to"
fi
exit $failed
