#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# G3: "cannot allocate memory in static TLS block". The library is opened when
# a library with 1600 bytes of initial-exec TLS has taken what there was to
# spare; and it is preloaded where there is an LD_AUDIT library too, which has
# a libc of its own. With --expect-fault: one more library with as much TLS
# must not load, or there was something to spare.
# Usage: tests/case_g3.sh [--expect-fault] BUILD-DIRECTORY
set -u
control=
[ "$1" = --expect-fault ] && { control=1; shift; }
build=$(realpath "$1")
tests=$build/tests
bad=0

if [ -n "$control" ]; then
    tmp=$(mktemp -d) || exit 2
    trap 'rm -rf "$tmp"' EXIT
    cp "$tests/victims/lib_tls.so" "$tmp/another.so"
    out=$("$tests/victims/tls_poor" "$tmp/another.so" 0)
    case $out in
        *"static TLS block"*)
            echo "ok      G3: another one: $out" | head -n 1 ;;
        *) echo "FAILED  G3: another library with 1600 bytes: $out"; exit 1 ;;
    esac
    exit 0
fi

if "$tests/victims/tls_poor" "$build/liblapse.so" 5; then
    echo "ok      G3: opened when little static TLS is left"
else
    bad=1
    echo "FAILED  G3: opened when little static TLS is left"
fi

export LD_AUDIT="$tests/victims/lib_audit.so" LD_PRELOAD="$build/liblapse.so"
if [ "$(env LD_PRELOAD= cat /proc/self/maps | grep -c lib_audit)" = 0 ]; then
    echo "FAILED  G3: no LD_AUDIT library is loaded"
    bad=1
fi
for now in "" 1; do
    if env ${now:+LD_BIND_NOW=1} "$tests/case_c1"; then
        echo "ok      G3: preloaded with LD_AUDIT${now:+, bound now}"
    else
        echo "FAILED  G3: preloaded with LD_AUDIT${now:+, bound now}"
        bad=1
    fi
done
exit $bad
