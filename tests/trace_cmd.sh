#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The command `lapse trace`, on traces of real programs: against a reader that
# knows only the manual, filters, --follow, pids, wrong use.
# BUILD=dir says where the programs are (default: build).
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${BUILD:-build}")
lapse=$build/lapse
tmp=$(mktemp -d) || exit 1
writer=
trap 'rm -rf "$tmp"; [ -z "$writer" ] || kill -9 "$writer" 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM
failed=0
unset LAPSE_TRACE LAPSE_REPORT LD_PRELOAD

good() { echo "ok: $1"; }
bad() { echo "FAILED: $1"; failed=1; }
is() { # NAME WANTED GOT
    if [ "$2" = "$3" ]; then good "$1"; else
        bad "$1"; printf '  wanted: %s\n  got:    %s\n' "$2" "$3"
    fi
}
says() { # NAME WORDS: on stderr of the last status
    if grep -qF -- "$2" "$tmp/err"; then good "$1"; else
        bad "$1"; echo "  wanted: $2"; sed 's/^/  got:    /' "$tmp/err"
    fi
}
status() { "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; echo $?; }
until_true() {
    local n=0
    until "$@" 2>/dev/null; do
        n=$((n + 1)); [ $n -lt 200 ] || return 1
        sleep 0.05
    done
}
# traced DIR COMMAND...: under the library, with a trace in the new DIR
traced() {
    mkdir -m 700 "$1"
    LAPSE_TRACE=$1 LD_PRELOAD=$build/liblapse.so "${@:2}"
}
begun() { "$lapse" trace --summary "$1" 2>/dev/null | grep -q ' records'; }

# The same records, whoever reads them.
compare() { # NAME FILE
    "$lapse" trace --json "$2" >"$tmp/ours" || bad "$1: exit status"
    /usr/bin/python3 tests/trace_reader.py "$2" >"$tmp/theirs" ||
        bad "$1: the other reader"
    is "$1: both readers agree" "agree" "$(
        /usr/bin/python3 - "$tmp/ours" "$tmp/theirs" shim/lapse.h <<'PY'
import json, re, sys
header = open(sys.argv[3]).read()
names = {}
for what, start in (("reason", "LAPSE_REASON_"), ("path", "LAPSE_PATH_")):
    found = re.findall(start + r"([A-Z_]+)\b *[=,]", header)
    names[what] = [n.lower() for n in found]
def key(r): return r["ring"], r["number"]
ours = [json.loads(l) for l in open(sys.argv[1])]
theirs = [json.loads(l) for l in open(sys.argv[2])]
a, b = ours.pop(), theirs.pop()
problems = ["%s: %s, %s" % (k, a[k], b[k]) for k in b if a[k] != b[k]]
if len(ours) != len(theirs):
    problems.append("%d, %d records" % (len(ours), len(theirs)))
if [r["ticks"] for r in ours] != sorted(r["ticks"] for r in ours):
    problems.append("not in the order of time")
for x, y in zip(sorted(ours, key=key), sorted(theirs, key=key)):
    for what in ("reason", "path"):
        if what in y:
            y[what] = None if "watch" in y["kind"] else \
                names[what][y[what]]
    problems += ["%s: %s, %s" % (k, x, y) for k in y if x[k] != y[k]]
if not ours:
    problems.append("nothing was read")
print("\n".join(problems[:3]) if problems else "agree")
PY
)"
}

wrong_use() {
    is "no trace named" 2 "$(status "$lapse" trace)"
    is "unknown path" 2 "$(status "$lapse" trace --path nosuch x)"
    says "unknown path" "munmap"
    is "a size that is none" 2 "$(status "$lapse" trace --min-size 4X x)"
    is "a range backwards" 2 "$(status "$lapse" trace --address 20-10 x)"
    is "no such file" 125 "$(status "$lapse" trace "$tmp/nosuch")"
    says "no such file" "No such file"
    is "a file that is no trace" 125 "$(status "$lapse" trace Makefile)"
    says "a file that is no trace" "not a trace"
    is "an empty directory" 125 "$(status "$lapse" trace tests/victims)"
    says "an empty directory" "LAPSE_TRACE"
    is "a process without the library" 125 "$(status "$lapse" trace $$)"
    says "a process without the library" "LAPSE_TRACE=DIR"
    mkfifo "$tmp/fifo.trace"
    is "a pipe" 125 "$(status timeout 5 "$lapse" trace "$tmp/fifo.trace")"
}

# One that releases a lot, by several paths, and ends.
ended() {
    traced "$tmp/ended" /usr/bin/python3 scripts/example.py >/dev/null 2>&1
    local all first
    for first in "$tmp"/ended/*.trace; do
        begun "$first" || bad "$first: cannot be read"
        "$lapse" trace --json "$first" | grep -q '"kind":"release"' &&
            compare "python3" "$first"
    done
    all=$("$lapse" trace "$tmp/ended" | wc -l)
    [ "$all" -gt 50 ] || bad "the directory has only $all records"
    is "--path" "munmap" "$("$lapse" trace --path munmap "$tmp/ended" |
        awk '{ print $4 }' | sort -u)"
    is "--reason" "madvise" "$("$lapse" trace --reason madvise "$tmp/ended" |
        awk '{ print $5 }' | sort -u)"
    is "--min-size, --max-size" "1M" "$("$lapse" trace --min-size 1M \
        --max-size 1024K "$tmp/ended" | awk '{ print $7 }' | sort -u)"
    is "--tid of nobody" 0 "$("$lapse" trace --tid 1 "$tmp/ended" | wc -l)"
    is "two kinds are as many as all" "$all" "$("$lapse" trace --kind release \
        --kind publish "$tmp/ended" | wc -l)"
    first=$("$lapse" trace --min-size 1M "$tmp/ended" | awk 'NR == 1 {
        sub(/-.*/, "", $6); print $6 }')
    is "--address within a range" "0 more" "$(
        "$lapse" trace --address "$(printf %x $((0x$first + 4097)))" \
            "$tmp/ended" | /usr/bin/python3 -c '
import sys
at, n, wrong = int(sys.argv[1], 16) + 4097, 0, 0
for line in sys.stdin:
    start, end = (int(x, 16) for x in line.split()[5].split("-"))
    n += 1
    wrong += not start <= at < end
print(wrong, "more" if n else "none")' "$first")"
    is "times go up" "" "$("$lapse" trace "$tmp/ended" | awk '{ print $1 }' |
        sort -c -n 2>&1)"
}

killed() {
    mkdir -m 700 "$tmp/killed"
    LAPSE_TRACE=$tmp/killed "$build/tests/api_trace_read" --write 0 &
    writer=$!
    until_true begun "$tmp/killed"
    is "by its pid" 0 "$(status "$lapse" trace --summary $writer)"
    is "by its pid: is running" 1 "$(grep -c running "$tmp/out")"
    timeout 20 "$lapse" trace --follow --kind event $writer \
        >"$tmp/follow" 2>"$tmp/err" &
    local follower=$!
    until_true test -s "$tmp/follow"
    kill -9 $writer; wait $writer 2>/dev/null; writer=
    wait $follower
    is "--follow ends when the program was killed" 0 $?
    is "--follow: events by their layout" 1 "$(tail -n 1 "$tmp/follow" |
        grep -cE ' event counted n=[0-9]+ thread=[01] length=[0-9]+')"
    compare "killed" "$tmp"/killed/*.trace
    is "killed: how it ended" 1 "$("$lapse" trace --summary "$tmp/killed" |
        grep -c 'ended without exit')"
    "$lapse" trace "$tmp/killed" 2>"$tmp/err" | head -n 1 >/dev/null
    is "who reads the output stops: SIGPIPE, silence" "141 0" \
        "${PIPESTATUS[0]} $(wc -c <"$tmp/err")"
}

# A directory that is empty yet, and a program that ends by itself.
follow() {
    mkdir -m 700 "$tmp/later"
    timeout 20 "$lapse" trace --follow --json "$tmp/later" >"$tmp/follow" \
        2>"$tmp/err" &
    local follower=$!
    sleep 0.1
    LAPSE_TRACE=$tmp/later "$build/tests/api_trace_read" --write 1000
    wait $follower
    is "--follow ends when the program has" 0 $?
    is "--follow shows all events" 1000 "$(grep -c '"event":"counted"' \
        "$tmp/follow")"
}

interrupted() {
    mkdir -m 700 "$tmp/int"
    LAPSE_TRACE=$tmp/int "$build/tests/api_trace_read" --write 0 &
    writer=$!
    until_true begun "$tmp/int"
    timeout --preserve-status -s INT 0.5 "$lapse" trace --follow --json \
        $writer >"$tmp/follow" 2>"$tmp/err"
    is "--follow ends by SIGINT" 0 $?
    is "and has summed up" summary "$(tail -n 1 "$tmp/follow" |
        sed 's/.*"kind":"\([a-z]*\)".*/\1/')"
    kill -9 $writer; wait $writer 2>/dev/null; writer=
}

# In a container, whose processes know themselves by other numbers.
namespace() {
    if ! unshare -p -f true 2>/dev/null; then
        echo "skip: --follow into a namespace, as none can be made"; return
    fi
    mkdir -m 700 "$tmp/ns"
    # shellcheck disable=SC2016 # for that shell
    LAPSE_TRACE=$tmp/ns unshare -p -f --kill-child sh -c \
        '"$1" --write 0 & wait' sh "$build/tests/api_trace_read" &
    writer=$!
    until_true begun "$tmp/ns"
    timeout 20 "$lapse" trace --follow --kind watch "$tmp/ns" 2>/dev/null &
    local follower=$!
    sleep 0.5
    is "namespace: it runs" 1 "$("$lapse" trace --summary "$tmp/ns" |
        grep -c running)"
    is "namespace: --follow goes on" 0 "$(kill -0 $follower 2>&1; echo $?)"
    kill -9 $writer; wait $writer 2>/dev/null; writer=
    wait $follower
    is "namespace: --follow ends when all were killed" 0 $?
}

wrong_use
ended
killed
follow
interrupted
namespace
exit $failed
