#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The command `lapse report`: its numbers are those of `lapse run` for the same
# process, of strace, and of the cache of lapse-cp; what it writes for other
# tools is what those want (trace_report.py).
# BUILD=dir says where the programs are (default: build).
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath "${BUILD:-build}")
lapse=$build/lapse
. tests/helpers.sh
unset LAPSE_TRACE LAPSE_STACKS
# says NAME WORDS: they are in what the last status printed
says() {
    if grep -qF -- "$2" "$tmp/out" "$tmp/err"; then good "$1"; else
        bad "$1"; echo "  wanted: $2"; sed 's/^/  got:    /' "$tmp/out" \
            "$tmp/err"
    fi
}
status() { "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; echo $?; }
check() { python3 tests/trace_report.py "$@" 2>&1; }
report() { "$lapse" report "$@" "$tmp/t"; }

usage() {
    is "report --help" 0 "$(status "$lapse" report --help)"
    is "help report" 0 "$(status "$lapse" help report)"
    is "no trace given" 2 "$(status "$lapse" report)"
    says "no trace given is said" "no trace"
    is "--by" 2 "$(status "$lapse" report --by size x)"
    is "--top" 2 "$(status "$lapse" report --top x y)"
    is "two formats" 2 "$(status "$lapse" report --json --folded x)"
    is "--output that cannot be" 2 \
        "$(status "$lapse" report --output /nosuch/x "$tmp")"
    is "no such file" 125 "$(status "$lapse" report /nosuch/file)"
    says "no such file is named" "'/nosuch/file'"
    is "no trace at all" 125 "$(status "$lapse" report /etc/passwd)"
    is "no trace in a directory" 125 "$(status "$lapse" report "$tmp")"
    is "a full disk" 125 "$(mkdir "$tmp/t"; LAPSE_TRACE=$tmp/t \
        LD_PRELOAD=$build/liblapse.so true; "$lapse" report "$tmp/t" \
        2>"$tmp/err" >/dev/full; echo $?)"
    rm -r "$tmp/t"
}

# formats NAME: all that can be written of $tmp/t, as $tmp/r.*
formats() {
    report --json >"$tmp/r.json" && report --perfetto >"$tmp/r.trace" &&
        report >"$tmp/r.txt" && report --html "$tmp/r.html" &&
        report --folded >"$tmp/r.count" &&
        report --folded --by bytes >"$tmp/r.bytes" &&
        report --folded --by hits >"$tmp/r.hits"
    is "$1: reports" 0 $?
    for what in perfetto folded html; do
        is "$1: $what" good "$(check $what "$tmp/r")"
    done
}

# One process, counted twice: by lapse run as it goes, and from its trace.
same() {
    mkdir "$tmp/t"
    # shellcheck disable=SC2086 # none, or one
    is "$1: runs" 0 "$(LAPSE_TRACE=$tmp/t status env $2 "$lapse" run --json \
        --output "$tmp/run" -- /usr/bin/python3 scripts/example.py)"
    formats "$1"
    is "$1: counts of lapse run" good "$(check counts "$tmp/run" "$tmp/r.json")"
}

example() {
    same "without stacks" A=b
    is "callers are those of lapse run" good \
        "$(check callers "$tmp/run" "$tmp/r.json")"
    rm -r "$tmp/t"
    same "with stacks" LAPSE_STACKS=16
    is "by whom: Python's mmap, 20 times" good \
        "$(check caller "$tmp/r.json" mmap.cpython munmap 20 20971520)"
    rm -r "$tmp/t"
}

# What the kernel was asked for, seen from outside.
seen_by_strace() {
    if ! strace -o /dev/null true 2>/dev/null; then
        skip "strace" "it is not there, or may not trace"; return
    fi
    mkdir "$tmp/t"
    LAPSE_TRACE=$tmp/t strace -f -e trace=munmap,madvise -o "$tmp/strace" \
        -E LD_PRELOAD="$build/liblapse.so" perl -e '
        for (1..7) { my $x = q(a) x 10_000_000; undef $x }' 2>/dev/null
    report --json >"$tmp/r.json"
    # Perl's strings are the only mappings as large.
    is "strace: as many munmaps of 10 MB" \
        "$(grep -cE 'munmap\(0x[0-9a-f]+, 1000[0-9]{4}\)' "$tmp/strace")" \
        "$(report --perfetto | python3 -c 'import json, sys
print(sum(e["name"] == "munmap" and 10**7 < e["args"]["bytes"] < 10.1e6
    for e in json.load(sys.stdin)["traceEvents"] if e["ph"] == "i"))')"
    rm -r "$tmp/t"
}

# A cache: what it says of itself, and what the trace says of it.
cache() {
    mkdir "$tmp/t"
    head -c 10M /dev/zero >"$tmp/from"
    # Buffers that come and go as mappings; 8 MiB may be pinned by anybody.
    MALLOC_MMAP_THRESHOLD_=131072 LAPSE_STACKS=16 LAPSE_TRACE=$tmp/t \
        "$build/lapse-cp" -v -b 1048576 -d 4 \
        "$tmp/from" "$tmp/to" >"$tmp/cp" 2>&1
    if ! grep -q 'cache:' "$tmp/cp"; then
        skip "a cache" "lapse-cp: $(tail -n 1 "$tmp/cp")"
        rm -r "$tmp/t"; return
    fi
    formats "a cache"
    is "a cache: watches and what was told" good \
        "$(check cache "$tmp/r.json" "$(cat "$tmp/cp")")"
    is "a cache: hits" good "$(check hits "$tmp/r")"
    is "a cache: watches have no reason" "0 0" "$(
        "$lapse" trace --reason munmap "$tmp/t" | grep -c watch) $(
        "$lapse" trace --json --kind watch "$tmp/t" |
            grep -c '"reason":"')"
    is "a cache: how its subscription ends" 1 "$(
        "$lapse" trace --kind unwatch "$tmp/t" | grep -c ' to 0 all, as the')"
    rm -r "$tmp/t" "$tmp/from" "$tmp/to"
}

# Stacks begin in the library.
replaced() {
    mkdir "$tmp/t"
    cp "$build/liblapse.so" "$tmp/lib.so"
    LAPSE_STACKS=4 LAPSE_TRACE=$tmp/t LD_PRELOAD=$tmp/lib.so \
        /usr/bin/python3 -S -c 'import mmap; mmap.mmap(-1, 9999999).close()'
    is "with the library there" 0 "$(report | grep -c 'cannot be read')"
    rm "$tmp/lib.so"
    is "the library is gone: reported all the same" 0 "$(status report)"
    says "the library is gone: is said" "stacks cannot be read"
    says "the library is gone: the caller" mmap.cpython
    rm -r "$tmp/t"
}

# module NAME: one whose constructor of that name releases, without a build id
module() {
    printf '%s\n' '#include <sys/mman.h>' "__attribute__((constructor)) void $1(void)" \
        '{ munmap(mmap(0, 4096, 3, 34, -1, 0), 4096); }' |
        ${CC:-cc} -shared -fPIC -Wl,--build-id=none -o "$tmp/new.so" -xc - &&
        mv "$tmp/new.so" "$tmp/plugin.so"
}

# What has no build id looks like another one of the same size.
no_build_id() {
    mkdir "$tmp/t"
    module loaded_one
    LAPSE_STACKS=4 LAPSE_TRACE=$tmp/t LD_PRELOAD=$build/liblapse.so \
        /usr/bin/python3 -S -c "import ctypes; ctypes.CDLL('$tmp/plugin.so')"
    is "without a build id" "1 1" "$(report --folded | grep -c loaded_one) $(
        "$lapse" trace "$tmp/t" | grep -c loaded_one)"
    module another_one
    is "without a build id: another one now" "0 0 1" "$(
        report --folded | grep -c another_one) $(
        "$lapse" trace "$tmp/t" | grep -c another_one) $(
        report --folded | grep -c 'plugin.so+0x')"
    rm -r "$tmp/t" "$tmp/plugin.so"
}

# A shell and what it starts; one that runs; one that was killed.
processes() {
    mkdir "$tmp/t"
    LAPSE_TRACE=$tmp/t LD_PRELOAD=$build/liblapse.so bash -c 'for i in \
        1 2 3 4 5 6 7 8 9; do perl -e "\$x = q(a) x 10_000_000; undef \$x"
        done; perl -e "\$x = q(a) x 10_000_000; undef \$x; kill 9, \$\$"
        :' 2>/dev/null
    formats "many processes"
    is "many processes: the first 8" 8 "$(grep -c '^lapse: .*(pid' "$tmp/r.txt")"
    is "many processes: killed ones too" good "$(check killed "$tmp/r.json")"
    set -- "$tmp"/t/*.trace
    is "one file" 1 "$("$lapse" report "$1" | grep -c '(pid')"
    head -c 100000 "$1" >"$tmp/cut.trace"
    is "a file that was cut" 125 "$(status "$lapse" report "$tmp/cut.trace" "$1")"
    says "then the others are shown" "(pid"
    rm -r "$tmp/t"
}

# Names that would drive a terminal or break a document.
names() {
    mkdir "$tmp/t"
    cp "$(type -P perl)" "$tmp/a<b&\"'"$'\e\n\377'
    LAPSE_TRACE=$tmp/t LD_PRELOAD=$build/liblapse.so \
        "$tmp/a<b&\"'"$'\e\n\377' -e '$x = "a" x 1e7; undef $x' \
        $'<script>\033[2J'
    formats "odd names"
    is "odd names: none reaches the terminal" 0 \
        "$(LC_ALL=C grep -c $'\033' "$tmp/r.txt" "$tmp/r.html" |
            awk -F: '{ n += $2 } END { print n }')"
    is "odd names: no script" 0 "$(grep -c '<script' "$tmp/r.html")"
    rm -r "$tmp/t"
}

if ! command -v python3 >/dev/null; then
    echo "no python3 to read the documents with"; exit 77
fi
for part in usage example seen_by_strace cache replaced no_build_id processes \
    names; do
    $part
done
exit $failed
