#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The rules of the house, checked on the source and on what was built:
#  1. hook objects call nothing outside their closed set (G4);
#  2. the library exports what the version script says, and nothing else;
#  3. hooks/ may include shim/, shim/ nothing of hooks/, tools only lapse.h,
#     report.h and trace_file.h, bridges and rcache/ only lapse.h and what is
#     theirs;
#  4. hook objects use no vector or x87 register;
#  5. little thread-local storage, and no library dragged in but libc;
#  6. every source says its licence.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
bad=0

say() {
    if [ -n "$2" ]; then
        bad=1
        echo "FAILED  $1:"
        echo "$2" | sed 's/^/        /'
    else
        echo "ok      $1"
    fi
}

hot=$(make -s --no-print-directory BUILD="$build" print-hot)
objects=
for h in $hot; do objects="$objects $build/$h.o"; done
[ -n "$objects" ] || { echo "FAILED  no hook objects named"; exit 1; }
# $objects is a list
# shellcheck disable=SC2086
undefined=$(nm -u $objects | awk 'NF == 2 { print $2 }' | sort -u)
# shellcheck disable=SC2086
defined=$(nm --defined-only $objects | awk 'NF == 3 { print $3 }' | sort -u)
# Data of other files of shim/ and hooks/ that hooks read, and nothing else;
# libc's pthread_setcanceltype changes a word of the thread (hooks/file.c).
data="pthread_setcanceltype lapse_report lapse_fork_mark lapse_subscribers _GLOBAL_OFFSET_TABLE_"
say "hooks call nothing outside their closed set" "$(for u in $undefined; do
    echo "$defined $data" | tr ' ' '\n' | grep -qx "$u" || echo "$u"
done)"

exports() { # LIBRARY MAP HEADER
    say "exports of $1 equal the version script" "$(
        nm -D --defined-only "$build/$1" |
            awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
            sort > "$build/exports.is"
        sed -n 's/^ *\(lapse_[a-z_]*\);/\1/p' "$2" |
            sort > "$build/exports.must"
        diff "$build/exports.is" "$build/exports.must")"
    say "$3 declares every export" "$(
        while read -r f; do
            grep -qE "\b$f(\(|;)" "$3" || echo "$f"
        done < "$build/exports.must")"
}
exports liblapse.so shim/lapse.map shim/lapse.h
exports liblapse-jemalloc.so bridges/lapse_jemalloc.map \
    bridges/lapse_jemalloc.h

say "shim/ includes nothing of hooks/" \
    "$(grep -n '#include.*hooks/' shim/*.c shim/*.h)"
say "tools include of the library only lapse.h, report.h and trace_file.h" \
    "$(grep -nE '#include "((\.\./)?(shim|hooks)/|queue|pool|filter)' \
        scripts/*.c scripts/*.h | grep -vE '(lapse|report|trace_file)\.h"')"

say "bridges include only lapse.h of the library" \
    "$(grep -n '#include "' bridges/*.[ch] | grep -vE '"(lapse\.h|bridges/.*)"')"

say "rcache/ includes only lapse.h and its own files" "$(
    grep -n '#include "' rcache/*.[ch] | grep -vE '"lapse\.h"' |
        while IFS= read -r line; do
            f=${line#*\"}
            [ -f "rcache/${f%\"*}" ] || echo "$line"
        done)"
say "liblapse-rcache.so exports its version script" "$(
    nm -D --defined-only "$build/liblapse-rcache.so" |
        awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort \
        > "$build/exports.is"
    sed -n 's/^ *\(lapse_[a-z_]*\);/\1/p' rcache/lapse-rcache.map | sort |
        diff "$build/exports.is" -)"
say "liblapse-rcache.a defines no other name" "$(
    nm --defined-only -g "$build/liblapse-rcache.a" |
        awk 'NF == 3 && $3 != "_.stapsdt.base" { print $3 }' | sort |
        diff "$build/exports.is" -)"
# shellcheck disable=SC2086
say "hooks use general registers only" \
    "$(objdump -d --no-show-raw-insn $objects |
        grep -E '%([xyz]mm|st|mm[0-7])' | head -n 3)"

say "at most 64 bytes of thread-local storage" "$(
    for lib in liblapse liblapse-rcache; do
        size=$(readelf -lW "$build/$lib.so" | awk '$1 == "TLS" { print $6 }')
        [ $((size)) -le 64 ] || echo "$lib: $size"
    done)"
say "no dependency but libc and the loader" "$(
    readelf -dW "$build/liblapse.so" | grep NEEDED |
        grep -vE 'libc\.so|ld-linux|lib(a|t|ub)san')"
say "no text is writable" "$(readelf -lW "$build/liblapse.so" |
    awk '$1 == "LOAD" && / RWE /')"

say "every source names its licence" "$(
    for f in shim/*.[ch] hooks/*.[chS] bridges/*.[ch] rcache/*.[ch] \
        scripts/* scripts/zoo.d/* tests/*.* tests/victims/*; do
        [ -d "$f" ] && continue
        head -n 3 "$f" | grep -q SPDX-License-Identifier: || echo "$f"
    done)"
say "the example in lapse-rcache.3 is tests/example_rcache.c" "$(
    sed -n '/^\.EX$/,/^\.EE$/p' docs/man/lapse-rcache.3 |
        sed 's/\\-/-/g; s/\\e/\\/g' > "$build/example.is"
    sed -n '/^struct device/,$p' tests/example_rcache.c |
        while IFS= read -r line; do
            grep -qxF -e "$line" "$build/example.is" || echo "$line"
        done | head -n 3)"
say "no line is longer than 80 columns" "$(
    grep -nE '^.{81,}' shim/*.[ch] hooks/*.[chS] bridges/*.[ch] rcache/*.[ch] | head)"
exit $bad
