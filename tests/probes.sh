#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The static probes: readelf lists each with its arguments, and gdb, stopping
# at them, sees the values that the program knows to be right. A nop at each.
set -u
cd "$(dirname "$0")/.." || exit 2
build=${BUILD:-build}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
bad=0
fail() {
    echo "FAILED  $*"
    bad=1
}

# listed FILE NAME ARGUMENTS
listed() {
    readelf -n "$build/$1" > "$tmp/notes" 2> /dev/null
    awk -v name="$2" '$1 == "Provider:" { ours = $2 == "lapse" }
        $1 == "Name:" { here = ours && $2 == name }
        here && $1 == "Location:" { at = $2 }
        here && $1 == "Arguments:" { print NF - 1, at }' "$tmp/notes" \
        > "$tmp/found"
    [ -s "$tmp/found" ] || fail "$1 has no probe $2"
    while read -r n at; do
        [ "$n" = "$3" ] || fail "$1: $2 has $n arguments, not $3"
        at=$((${at%,}))
        objdump -d --no-show-raw-insn --start-address="$at" \
            --stop-address=$((at + 1)) "$build/$1" |
            grep -q '[[:space:]]nop' ||
            fail "$1: $2 at $at is no nop"
    done < "$tmp/found"
}
listed liblapse.so publish 5
listed liblapse.so deliver 6
listed liblapse.so overflow 1
listed liblapse.so watch 3
listed liblapse.so unwatch 3
listed liblapse-rcache.so hit 4
listed liblapse-rcache.so miss 3
listed liblapse-rcache.so evict 2

# The cache subscribes, too: subscriber 0 again, its probes are left out.
LAPSE_RECORDS=64 env -u DEBUGINFOD_URLS gdb -nx -batch \
    -ex "set \$client_out = \"$tmp/client\"" -x tests/probes_gdb.py \
    "$build/tests/probes_client" > "$tmp/gdb" 2>&1
sed -n 's/^PROBE //p' "$tmp/gdb" > "$tmp/probes"
[ -s "$tmp/probes" ] || { fail "gdb stopped at no probe"; tail "$tmp/gdb"; }
while read -r line; do
    grep -qxF -- "$line" "$tmp/probes" || fail "no probe said: $line"
done < "$tmp/client"
[ "$(grep -c . "$tmp/client")" -gt 12 ] || fail "the client said too little"
for name in hit miss; do
    [ "$(grep -c "^$name " "$tmp/probes")" = 2 ] || fail "$name: not twice"
done
[ "$(grep -c "^evict " "$tmp/probes")" = 1 ] || fail "evict: not once"
# 81 releases: one finds the 64 records used up, before and after its call.
[ "$(grep -c '^publish 0 ' "$tmp/probes")" = 80 ] || fail "publish: not 80"
[ "$(grep -c '^overflow 0$' "$tmp/probes")" = 2 ] || fail "overflow: not 2"
[ $bad = 0 ] && echo "ok      probes"
[ $bad = 0 ] || { tail -n 5 "$tmp/gdb"; cat "$tmp/client"; }
exit $bad
