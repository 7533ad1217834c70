#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Does lapse see every call that strace sees, and no other? Both watch the same
# run; the numbers of every path in every process must be equal.
# BUILD=dir says where the programs are (default: build).
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
lapse=$build/lapse
victim=$build/tests/victims/releases
. tests/helpers.sh

paths='munmap mmap mremap brk madvise shmdt shmat process_madvise
remap_file_pages fallocate ftruncate truncate open'
traced=$(echo $paths | tr ' ' ,),openat,creat,execve,clone,clone3,fork,vfork

if ! command -v strace >/dev/null; then
    skip strace_counts "strace is not installed"; exit 0
fi
if ! strace -f -o "$tmp/probe" true 2>/dev/null; then
    skip strace_counts "strace may not trace here"; exit 0
fi
if [ ! -x "$victim" ]; then
    victim=$tmp/releases
    ${CC:-cc} -D_GNU_SOURCE -O1 -g -pthread -o "$victim" \
        tests/victims/releases.c || exit 1
fi

# "PID INDEX PATH CALLS" of every program image that has a report: INDEX is
# that of the image in its process. What the loader did before the library was
# ready, and what the library did itself after a fork, lies outside marks that
# the library sets: madvise(NULL, 0, 0x4c42) begins and 0x4c41 ends it. A child
# of fork has such a pair, a child of vfork none, and no report either.
cat > "$tmp/strace.awk" <<'AWK'
function process(tid) {
    while (tid in thread) tid = parent[tid]
    return tid
}
function born(child, of, flags) {
    parent[child] = of
    if (flags ~ /CLONE_THREAD/) thread[child] = 1
}
function start_image(p) {
    if (p in watched && !(p in marked)) {
        for (i = 1; i <= names; i++) delete calls[p, index_[p], name[i]]
        index_[p]--
    }
    delete watched[p]; delete marked[p]
}
function watch(p) {
    watched[p] = 1
    index_[p]++
    for (i = 1; i <= names; i++) calls[p, index_[p], name[i]] = 0
}
BEGIN { names = split(paths, name, " "); for (i in name) known[name[i]] = 1 }
NR == FNR {
    if ($2 ~ /^(clone3?|v?fork)\(/) {
        if (/<unfinished/) pending[$1] = $0
        else if ($NF ~ /^[0-9]+$/) born($NF, $1, $0)
    } else if ($2 == "<..." && $3 ~ /^(clone3?|v?fork)$/ && $NF ~ /^[0-9]+$/)
        born($NF, $1, pending[$1])
    next
}
{
    p = process($1)
    if (!(p in met)) {
        met[p] = 1
        if (p in parent && process(parent[p]) in watched) watch(p)
    }
    if (/^[0-9]+ +(execve\(|<... execve resumed).* = 0$/) {
        start_image(p)
        next
    }
    call = $2
    sub(/\(.*/, "", call)
    # of these, only such as may cut something off a file
    if (call == "fallocate" && !/, FALLOC_FL_(.*\|FALLOC_FL_)?(PUNCH_HOLE|COLL|INS|ZERO)/)
        next
    if (call == "openat" || call == "open") {
        if (!/O_TRUNC/ || /O_CREAT\|O_EXCL/) next
        call = "open"
    }
    if (call == "creat") call = "open"
    if (!(call in known)) next
    if (/madvise\(NULL, 0, 0x4c42/) { aside[$1] = 1; marked[p] = 1; next }
    if (/madvise\(NULL, 0, 0x4c41/) {
        if (!(p in watched)) watch(p)
        delete aside[$1]; marked[p] = 1
        next
    }
    if (p in watched && !($1 in aside)) calls[p, index_[p], call]++
}
END {
    for (p in watched) if (!(p in marked)) start_image(p)
    for (key in calls) {
        split(key, k, SUBSEP)
        print k[1], k[2], k[3], calls[key]
    }
}
AWK

# The same out of the report, whose JSON has one path a line.
cat > "$tmp/json.awk" <<'AWK'
function value(key) {
    if (!match($0, "\"" key "\": \"?[a-z_0-9]+")) return ""
    text = substr($0, RSTART, RLENGTH)
    sub(/.*[ "]/, "", text)
    return text
}
/"total":/ { exit }
/\{"pid":/ { pid = value("pid"); n[pid]++ }
/\{"path":/ && value("path") !~ /^(publish|free|backstop)$/ {
    print pid, n[pid], value("path"), value("calls")
}
AWK

# compare NAME COMMAND...
compare() {
    what=$1; shift
    if ! strace -f -qq -e signal=none -o "$tmp/strace" -e trace="$traced" \
        "$lapse" run --json --output "$tmp/json" -- "$@" >"$tmp/out" 2>&1
    then
        bad "$what: it did not run:"; cat "$tmp/out"
        : >"$tmp/seen"; return
    fi
    awk -v paths="$(echo $paths)" -f "$tmp/strace.awk" "$tmp/strace" \
        "$tmp/strace" | sort > "$tmp/seen"
    awk -f "$tmp/json.awk" "$tmp/json" | sort > "$tmp/told"
    if [ ! -s "$tmp/told" ]; then
        bad "$what: the report is empty"; return
    fi
    if cmp -s "$tmp/seen" "$tmp/told"; then
        good "$what: $(awk '{ n += $4; p[$1 " " $2] } END {
            for (i in p) k++; print n " calls in " k " processes" }' \
            "$tmp/told") as strace saw them"
    else
        bad "$what: PID INDEX PATH CALLS, < strace, > lapse"
        diff "$tmp/seen" "$tmp/told" | grep '^[<>]'
    fi
}

compare releases "$victim"
# A comparison of nothing with nothing would be no test.
for path in $paths; do
    if ! grep -q " $path [1-9]" "$tmp/seen"; then
        bad "releases: strace saw no $path at all"
    fi
done

python=$(PATH=/usr/bin:/bin command -v python3)
if [ -n "$python" ]; then
    compare python "$python" -c '
import ctypes, mmap, threading
for i in range(20):
    m = mmap.mmap(-1, 1 << 20)
    m.write(b"x" * 8192)
    m.close()
libc = ctypes.CDLL(None)
keep = [bytes(3000) for i in range(3000)]
del keep
libc.malloc_trim(0)
dlclose = libc.dlclose
dlclose.argtypes = [ctypes.c_void_p]
for i in range(3):
    dlclose(ctypes.CDLL("libresolv.so.2")._handle)
threads = [threading.Thread(target=lambda: bytearray(1 << 22)) for i in "abc"]
for t in threads:
    t.start()
for t in threads:
    t.join()
'
else
    skip python "there is no python3 in /usr/bin"
fi

# Several programs in one process, and children of a shell.
compare shell sh -c 'true | cat >/dev/null; (exec true); exec true'
exit $failed
