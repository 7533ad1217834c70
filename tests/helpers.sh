# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh
# Sourced by tests of commands at their beginning: what is said of each
# check, with $failed as what the script exits with, and $tmp, a directory that
# goes when it ends.
tmp=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
failed=0
unset LAPSE_REPORT LD_PRELOAD

good() { echo "ok: $1"; }
bad() { echo "FAILED: $1"; failed=1; }
skip() { echo "skip: $1: $2"; }
# is NAME WANTED GOT
is() {
    if [ "$2" = "$3" ]; then good "$1"; else
        bad "$1"; printf '  wanted: %s\n  got:    %s\n' "$2" "$3"
    fi
}
# says NAME WORDS: the words are in $tmp/err, stderr of what ran last
says() {
    if grep -qF -- "$2" "$tmp/err"; then good "$1"; else
        bad "$1"; echo "  wanted: $2"; sed 's/^/  got:    /' "$tmp/err"
    fi
}
# How a command ended, as its parent sees it: "exit N" or "signal N core C".
ended() {
    perl -e 'system { $ARGV[0] } @ARGV; print $? & 127
        ? "signal " . ($? & 127) . " core " . ($? >> 7 & 1)
        : "exit " . ($? >> 8)' "$@" 2>"$tmp/err"
}
# until_true COMMAND...: waits up to 10 s for it to succeed
until_true() {
    turns=0
    until "$@" 2>/dev/null; do
        turns=$((turns + 1)); [ $turns -lt 200 ] || return 1
        sleep 0.05
    done
}
