#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs the models (protocol.pml, last_thread.pml): configurations in which the
# properties must hold, and mutations of them that must be caught. One line
# each; exit status 1 if one is not as it must be.
# Usage: tests/model/run.sh [--short]
set -u
cd "$(dirname "$0")" || exit 2
models=$PWD
model=$models/protocol.pml
short=${1:-}
command -v spin > /dev/null || {
    echo "skip: no spin: run scripts/setup"
    exit 77
}
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 2
bad=0

# search OPTION...: leaves what pan says in ./out
search() {
    rm -f pan.* out
    spin -a "$@" "$model" > spin.out 2>&1 || { cat spin.out; exit 2; }
    # -O0: the searches are short, what spin writes is long
    "${CC:-gcc}" -O0 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=1024 -o pan \
        pan.c || exit 2
    ./pan -m1000000 -w20 > out 2>&1
}

# A search that was cut short by depth or memory has shown nothing.
complete() {
    ! grep -qE 'max search depth|Search not completed|out of memory' out &&
        grep -q 'errors: 0$' out
}

holds() { # NAME OPTION...
    name=$1
    shift
    search "$@"
    if complete; then
        states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' out)
        echo "ok      property holds: $name: $states states"
    else
        bad=1
        echo "FAILED  $name: $(grep -m 1 '^pan:' out) ($*)"
    fi
}

caught() { # NAME HOW OPTION...
    name=$1 how=$2
    shift 2
    search "$@"
    if grep -qE "^pan:[0-9]*: $how" out; then
        echo "ok      mutation caught: $name:" \
            "$(sed -n 's/^pan:[0-9]*: \(.*\) (at.*/\1/p' out)"
    else
        bad=1
        echo "FAILED  not caught: $name ($*)"
    fi
}

assertion="assertion violated"

if [ "$short" = --short ]; then
    holds "one producer, one record" -DPRODUCERS=1 -DRECORDS=1
else
    holds "two producers, one record" -DRECORDS=1 -DLOOKUPS=1
    holds "two producers, two records" -DLOOKUPS=1
    holds "two producers, one slot" -DSLOTS=1 -DRECORDS=1 -DLOOKUPS=1
    holds "one producer, three releases, three lookups" \
        -DPRODUCERS=1 -DRELEASES=3 -DLOOKUPS=3
    holds "one producer, two users" \
        -DPRODUCERS=1 -DUSERS=2 -DRELEASES=2 -DRECORDS=1
    holds "one of two producers stops" -DRECORDS=1 -DLOOKUPS=1 -DSTOPS=1
    holds "LAPSE_ALL, two releases at once, one record" \
        -DALL=1 -DRECORDS=1
    holds "LAPSE_ALL, one slot" -DALL=1 -DSLOTS=1 -DRECORDS=1
    holds "fork between two producers' steps" -DRECORDS=1 -DLOOKUPS=1 -DFORKS=1
    holds "fork, one slot" -DRECORDS=1 -DSLOTS=1 -DLOOKUPS=1 -DFORKS=1
fi
caught "published after the call" "$assertion" \
    -DPRODUCERS=1 -DMUT_PUBLISH_AFTER
# A watch meets the release again; who never watches needs it told again.
caught "no redelivery of open records" "$assertion" \
    -DPRODUCERS=1 -DALL=1 -DMUT_NO_REDELIVERY
caught "no OVERFLOW when a queue collapses" "$assertion" \
    -DPRODUCERS=2 -DRECORDS=1 -DMUT_NO_OVERFLOW
caught "watch does not look at the table" "$assertion" \
    -DPRODUCERS=1 -DMUT_NO_LOOK
caught "slot closed before the call" "$assertion" \
    -DPRODUCERS=1 -DMUT_CLOSE_BEFORE
if [ "$short" != --short ]; then
    # as above
    caught "no blind mark" "$assertion" \
        -DPRODUCERS=2 -DRECORDS=1 -DALL=1 -DMUT_NO_BLIND
    caught "the filter read before the claim" "$assertion" \
        -DPRODUCERS=1 -DMUT_LOOK_BEFORE_CLAIM
    caught "slots of other threads kept in the forked child" "$assertion" \
        -DPRODUCERS=1 -DFORKS=1 -DMUT_FORK_KEEPS
    caught "the subscriber's lock taken in a hook" "invalid end state" \
        -DPRODUCERS=1 -DSTOPS=1 -DMUT_LOCK_IN_HOOK
fi

model=$models/last_thread.pml
if [ "$short" = --short ]; then
    holds "the last thread, one that starts ours" -DPROGRAMS=1 -DSTARTS=2
else
    holds "the last of two threads, three of ours, one cannot be made"
    holds "the last thread, four of ours" -DPROGRAMS=1 -DSTARTS=4 -DFAILS=0
    holds "the last thread, two of ours cannot be made" -DPROGRAMS=1 -DFAILS=2
fi
caught "the maker tries to leave the count itself" "$assertion" \
    -DSTARTS=2 -DFAILS=0 -DMUT_MAKER_TRIES
caught "a maker of ours is not counted" "$assertion" \
    -DSTARTS=2 -DFAILS=0 -DMUT_MAKER_OUT
if [ "$short" != --short ]; then
    caught "ours end uncounted" "$assertion" -DSTARTS=2 -DMUT_ENDS_OUT
    caught "the last one's exit() is called once more" "$assertion" \
        -DSTARTS=2 -DMUT_ONCE_MORE
fi
exit $bad
