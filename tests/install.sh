#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# make install into an empty directory; then build a program by pkg-config,
# run it, read the manual pages, and use the installed command.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
make -s BUILD="$build" DESTDIR="$tmp" PREFIX=/usr LIBDIR=/usr/lib install
export PKG_CONFIG_PATH="$tmp/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$tmp"
export PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1
# pkg-config prints words
# shellcheck disable=SC2046
cc -std=c11 -Wall -Werror -D_GNU_SOURCE tests/example_protocol.c \
    -o "$tmp/example" $(pkg-config --cflags --libs lapse)
LD_LIBRARY_PATH="$tmp/usr/lib" "$tmp/example"
# shellcheck disable=SC2046
sed 's|"rcache/\(lapse_rcache.h\)"|<\1>|' tests/example_rcache.c > "$tmp/rcache.c"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Werror -D_GNU_SOURCE "$tmp/rcache.c" -o "$tmp/rcache" \
    $(pkg-config --cflags --libs lapse-rcache)
LD_LIBRARY_PATH="$tmp/usr/lib" "$tmp/rcache"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Werror -D_GNU_SOURCE "$tmp/rcache.c" -o "$tmp/static" \
    "$tmp/usr/lib/liblapse-rcache.a" -pthread $(pkg-config --cflags --libs lapse)
LD_LIBRARY_PATH="$tmp/usr/lib" "$tmp/static"
echo 'int main(void) { return lapse_pending((lapse_handle){0}) ? 0 : 1; }' |
    cat shim/lapse.h rcache/lapse_rcache.h - > "$tmp/header.c"
for std in c11 c17; do
    cc -std=$std -Wall -Wextra -Wpedantic -Werror "$tmp/header.c" -o "$tmp/h"
    "$tmp/h"
done
test -f "$tmp/usr/share/man/man7/lapse-paths.7"
test -f "$tmp/usr/share/man/man5/lapse-trace.5"
for page in "$tmp"/usr/share/man/man*/*; do
    man -l --warnings "$page" 2>&1 > /dev/null | grep . && exit 1
done
"$tmp/usr/bin/lapse" run --output "$tmp/out" -- ls / > /dev/null
grep -q '^lapse: ls' "$tmp/out"
"$tmp/usr/bin/lapse" check --only sbrk > /dev/null
cat > "$tmp/bridge.c" << 'END'
#include <errno.h>
#include <lapse_jemalloc.h>
int main(void) { return lapse_jemalloc_install() != -ENOTSUP; }
END
# shellcheck disable=SC2046
cc -std=c11 -Wall -Werror -Wpedantic "$tmp/bridge.c" -o "$tmp/bridge" \
    $(pkg-config --cflags --libs lapse) -llapse-jemalloc
LD_LIBRARY_PATH="$tmp/usr/lib" "$tmp/bridge"
echo "ok      installed, linked by pkg-config, run"
