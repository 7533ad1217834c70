#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Does the manual name all there is? Exported functions (in the synopsis and
# under FUNCTIONS), constants of lapse.h, environment variables, commands and
# options of lapse, make targets, rows of the coverage table, system calls of
# hooks. That it also says what is true, people have to see to.
# docs.sh [BUILD]
# shellcheck disable=SC2013 # words are wanted
set -u
cd "$(dirname "$0")/.." || exit 2
build=${1:-build}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
bad=0
asked=0

# Plain text, without the hyphenation of lines that were filled.
for page in docs/man/*; do
    MANWIDTH=200 man -l --no-hyphenation "$page" \
        > "$tmp/$(basename "$page")" 2> /dev/null
    man -l --warnings "$page" 2>&1 > /dev/null | grep . && bad=1
    [ -s "$tmp/$(basename "$page")" ] || { echo "FAILED  no $page"; exit 1; }
done

# has PAGE WORD WHAT: as a whole word
has() {
    asked=$((asked + 1))
    grep -qw -- "$2" "$tmp/$1" && return
    echo "FAILED  $3 $2 is not in docs/man/$1"
    bad=1
}

exported() { sed -n 's/^ *\(lapse_[a-z_]*\);.*/\1/p' "$1"; }

sed -n '/^SYNOPSIS/,/^DESCRIPTION/p' "$tmp/lapse.3" > "$tmp/synopsis"
sed -n '/^FUNCTIONS/,/^COVERAGE/p' "$tmp/lapse.3" |
    grep '^   lapse_' > "$tmp/functions"
for name in $(exported shim/lapse.map) lapse_pending; do
    has synopsis "$name" "of shim/lapse.map,"
    has functions "$name" "of shim/lapse.map,"
done
for name in $(exported bridges/lapse_jemalloc.map); do
    has lapse-jemalloc.3 "$name" "exported"
done
for name in $(sed -n 's/^ *\(LAPSE_[A-Z_]*\) = .*/\1/p
                      s/^#define \(LAPSE_[A-Z_]*\) 0x.*/\1/p' shim/lapse.h); do
    has lapse.3 "$name" "of lapse.h,"
done
for name in $(sed -n 's/^ *{"\(LAPSE_[A-Z]*\)", .*/\1/p' shim/config.c); do
    has lapse.3 "$name" "the variable"
done
for name in $(sed -n 's/.*getenv("\([A-Z_]*\)").*/\1/p' scripts/preload.c \
    scripts/lapse_*.c); do
    has lapse.1 "$name" "the variable"
done

for command in $("$build/lapse" help | sed -n 's/^  \([a-z]*\)  .*/\1/p'); do
    has lapse.1 "lapse $command" "the command"
    [ "$command" = help ] && continue
    "$build/lapse" help "$command" > "$tmp/help"
    for option in $(sed -n 's/^  \(--[a-z]*\).*/\1/p' "$tmp/help"); do
        has lapse.1 "$option" "lapse $command's"
    done
done

# What hooks call besides the call that they are around.
section() { sed -n "/^   $1/,/^   [^ ]/p" "$tmp/lapse.3"; }
section "System calls that are added" > "$tmp/calls"
hot=$(make -s --no-print-directory BUILD="$build" print-hot)
for object in $hot; do
    [ -f "$object.c" ] || continue
    for call in $(sed '/LAPSE_TEST_HOOKS/,/^#endif/d' "$object.c" |
        grep -o '[^l]sys(SYS_[a-z0-9_]*' | sed 's/.*SYS_//'); do
        has calls "$call" "$object.c calls what"
    done
done

for path in $(sed -n 's/^ *SITE("\([a-z_]*\)", .*/\1/p' hooks/coverage.c); do
    has lapse-paths.7 "$path" "the path"
done
sed -n '/^NOT COVERED/,/^SEE ALSO/p' "$tmp/lapse-paths.7" > "$tmp/gaps"
sed -n 's/^ *GAP("\([a-z_ ]*\)", .*/\1/p' hooks/coverage.c | sort -u > "$tmp/rows"
while read -r path; do
    has gaps "$path" "the path that is not covered,"
done < "$tmp/rows"
for target in $(make -s --no-print-directory help | tr -d '#.:' |
    sed -n 's/.*Targets \(.*\)(.*/\1/p'); do
    case $target in all | help) continue ;; esac
    asked=$((asked + 1))
    grep -q "make $target" README.md && continue
    echo "FAILED  make $target is not in README.md"
    bad=1
done
[ "$asked" -gt 100 ] || { echo "FAILED  only $asked names found"; bad=1; }
[ $bad = 0 ] && echo "ok      $asked names are in the manual"
exit $bad
