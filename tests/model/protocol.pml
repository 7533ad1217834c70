/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The protocol of shim/ as a spin model: releases (release.h, inflight.h,
 * release.c), the queue (queue.c), a poller (poll.c), registration (watch.c,
 * meet.c), a cache that follows lapse.h, and fork. `make model` runs it, run.sh says in
 * which configurations. One atomic block is one step on shared memory, and
 * labels name the atomic of the source that it stands for.
 *
 * Properties, as assertions:
 *  G1 a release that began while the page was watched is told after it
 *     happened: it waits (pending) until it was, and none is left at the end;
 *  G2 a lookup gives no registration of memory that was released before the
 *     lookup began, also where somebody else has the address already;
 *  G4 a producer that stops at any step (STOPS) hinders nobody: all others
 *     come to their end, or spin reports an invalid end state;
 *  and in the end nothing is pending and no record is lost from the pool.
 *
 * Left out: memory orders weaker than sequential consistency (labels in the
 * source argue those); more than one subscriber, page, and process after fork;
 * CAS loops, pool and queue links (each is one step here, by their
 * linearisation points; records are sets, in any order, not lists); the
 * filter's insides (one bit here); INLINE and CALLBACK delivery; generations
 * (nobody unsubscribes); `last`, which bounds scans of the table; a lapse_poll
 * with room for fewer events than there are. Bounds are those of run.sh.
 */
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef RELEASES /* by each producer, one after the other */
#define RELEASES 1
#endif
#ifndef USERS /* threads that use the cache; more than one share its lock */
#define USERS 1
#endif
#ifndef LOOKUPS /* by each user */
#define LOOKUPS 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef RECORDS
#define RECORDS 2
#endif
#ifndef STOPS /* one producer may stop, until all others have ended */
#define STOPS 0
#endif
#ifndef FORKS /* one user may fork; what follows is the child */
#define FORKS 0
#endif
#ifndef ALL /* a LAPSE_ALL subscriber: nothing is watched */
#define ALL 0
#endif
#define NO_SLOT SLOTS
#define NO_RECORD RECORDS
#define IDS (PRODUCERS * RELEASES)
#define NO_ID IDS
#define EVERYBODY (PRODUCERS + USERS)

/* The table of releases in flight: inflight.h. */
typedef in_flight {
    bool range;
    byte turn;
    bool blind;
    byte id /* ghost: which release */
};
in_flight slot[SLOTS];
byte unslotted;

/* Records: where each one is, and what it says. */
mtype = { FREE, TAKEN, HAND, QUEUED, WAITING, PASSED };
typedef record {
    mtype where = FREE;
    byte slot, turn;
    byte id /* ghost */
};
record rec[RECORDS];
bool overflow_flag, held_flag; /* of the queue's word */
bool overflow;                 /* of the subscriber */
byte overflow_told;            /* 0 no, 1 this round, 2 an earlier one */
bool subscriber_lock;
bool filter = ALL;

/* The kernel, and the cache. */
byte version;
bool mapped = 1;
bool cache_lock, entry;
byte entry_version;

/* Ghosts of the properties. */
bool watched = ALL;
bool began_watched[IDS + 1], owed[IDS + 1];
byte done;
bool stopped, forked;

/* First in each step of a thread that may be gone (after fork, in the child)
 * or stop here. */
#define STEP                                                                  \
    if                                                                        \
    :: forked && !survives -> goto gone                                       \
    :: !forked || survives                                                    \
    :: STOPS && !stopped && producing -> stopped = 1; (done == EVERYBODY - 1) \
    fi

#define OPEN(r)                                                               \
    (slot[rec[r].slot].turn == rec[r].turn ||                                 \
     (slot[rec[r].slot].turn + 1 == rec[r].turn && slot[rec[r].slot].range))

inline give(r)
{
    rec[r].where = FREE;
    rec[r].slot = 0;
    rec[r].turn = 0;
    rec[r].id = 0
}

inline take(r)
{
    r = 0;
    do
    :: r < RECORDS && rec[r].where != FREE -> r++
    :: else -> break
    od;
    if
    :: r < RECORDS -> rec[r].where = TAKEN
    :: else
    fi
}

inline is_pending(yes)
{
    yes = overflow_flag || held_flag;
    n = 0;
    do
    :: n < RECORDS -> yes = yes || rec[n].where == QUEUED; n++
    :: else -> break
    od;
    n = 0
}

/* queue_collapse: `mine` keeps apart what several of them hold. */
inline collapse()
{
    atomic { /* Q3 */
        STEP;
        n = 0;
        do
        :: n < RECORDS ->
            if
            :: rec[n].where == QUEUED -> rec[n].where = HAND; mine[n] = 1
            :: else
            fi;
            n++
        :: else -> break
        od;
        n = 0;
#ifndef MUT_NO_OVERFLOW
        overflow_flag = 1
#endif
    }
    i = 0;
    do
    :: i < RECORDS ->
        if
        :: mine[i] ->
            atomic { /* T2 */
                STEP;
                open = OPEN(i)
            }
            atomic { /* Q2, or P2 */
                STEP;
                mine[i] = 0;
                if
                :: open -> rec[i].where = QUEUED; open = 0
                :: else -> give(i)
                fi
            }
        :: else
        fi;
        i++
    :: else -> i = 0; break
    od
}

/* queue_push */
inline push(r)
{
#ifdef MUT_LOCK_IN_HOOK
    if
    :: producing ->
        atomic { STEP; !subscriber_lock -> subscriber_lock = 1 }
    :: else
    fi;
#endif
    atomic { /* Q2 */
        STEP;
        rec[r].where = QUEUED;
        r = 0
    }
#ifdef MUT_LOCK_IN_HOOK
    if
    :: producing -> atomic { STEP; subscriber_lock = 0 }
    :: else
    fi
#endif
}

/* publish_one */
inline publish()
{
    if
    :: s == NO_SLOT || !see
    :: else ->
        atomic { /* P1 */
            STEP;
            take(r);
            if
            :: r != NO_RECORD ->
                rec[r].slot = s;
                rec[r].turn = slot[s].turn;
                rec[r].id = id
            :: else
            fi
        }
        if
        :: r != NO_RECORD -> push(r)
        :: else ->
            r = 0;
#ifndef MUT_NO_BLIND
            atomic { STEP; slot[s].blind = 1 } /* B1 */
#endif
            collapse()
        fi
    fi
}

inline claim()
{
    atomic { /* C1 */
        STEP;
        id = me * RELEASES + k;
        began_watched[id] = watched;
        s = 0;
        do
        :: s < SLOTS && slot[s].range -> s++
        :: else -> break
        od;
        if
        :: s != NO_SLOT -> slot[s].range = 1; slot[s].id = id
        :: else -> unslotted++ /* B1 */
        fi
    }
    if
    :: s != NO_SLOT -> atomic { STEP; slot[s].turn++ }
    :: else -> collapse()
    fi
}

inline look()
{
    atomic { STEP; see = filter } /* F1 */
}

inline system_call()
{
    atomic {
        STEP;
        version++;
        mapped = 0;
        owed[id] = began_watched[id]
    }
}

/* release_end */
inline end()
{
    if
    :: s == NO_SLOT ->
        collapse();
        atomic { STEP; unslotted-- }
    :: else ->
        atomic { STEP; see = slot[s].blind }
        if
        :: see ->
            collapse();
            atomic { STEP; slot[s].blind = 0 }
        :: else
        fi;
        atomic { STEP; slot[s].turn++ } /* T1 */
        atomic { STEP; slot[s].range = 0; slot[s].id = 0 } /* C3 */
    fi;
    see = 0;
    s = 0
}

proctype producer(byte me)
{
    byte k, s, r, i, n, id;
    bool see, open, mine[RECORDS];
    bool producing = 1, survives;

    do
    :: k < RELEASES ->
#ifdef MUT_LOOK_BEFORE_CLAIM
        look(); claim();
#else
        claim(); look();
#endif
#ifdef MUT_PUBLISH_AFTER
        system_call(); publish(); end();
#elif defined(MUT_CLOSE_BEFORE)
        publish(); end(); system_call();
#else
        publish(); system_call(); end();
#endif
        k++
    :: else -> break
    od;
gone:
    done++
}

/* The ghost side of telling the user of a release. */
inline told(x)
{
    owed[x] = 0;
    hit = 1
}

inline tell_all()
{
    n = 0;
    do
    :: n < IDS -> owed[n] = 0; n++
    :: else -> break
    od;
    n = 0;
    hit = 1
}

/* in_flight_blind */
inline look_blind()
{
    atomic { STEP; blind = unslotted > 0 } /* B2 */
    i = 0;
    do
    :: i < SLOTS ->
        atomic { STEP; blind = blind || (slot[i].blind && slot[i].range); i++ }
    :: else -> i = 0; break
    od
}

inline poll_take()
{
    n = 0;
    do
    :: n < RECORDS ->
        if
        :: rec[n].where == QUEUED -> rec[n].where = WAITING; held_flag = 1
        :: else
        fi;
        n++
    :: else -> break
    od;
    n = 0;
    if
    :: overflow_flag ->
        overflow_flag = 0;
        overflow = 1;
        overflow_told = 0;
        held_flag = 1
    :: else
    fi
}

inline next_waiting(x)
{
    x = 0;
    do
    :: x < RECORDS && rec[x].where != WAITING -> x++
    :: else -> break
    od
}

inline end_round()
{
    n = 0;
    more = 0;
    do
    :: n < RECORDS ->
        if
        :: rec[n].where == PASSED -> rec[n].where = WAITING
        :: else
        fi;
        more = more || rec[n].where == WAITING;
        n++
    :: else -> break
    od;
    n = 0
}

/* lapse_poll, with room for everything: one round. */
inline poll()
{
    atomic { STEP; !subscriber_lock -> subscriber_lock = 1 }
    atomic { STEP; poll_take() } /* Q3 */
    atomic {
        STEP;
        if
        :: overflow && overflow_told != 1 ->
            overflow_told = 1;
            all = 1
        :: else
        fi
    }
    do
    :: atomic {
        STEP;
        next_waiting(r);
        if
        :: r == NO_RECORD -> break
        :: else
        fi;
        open = OPEN(r); /* T2 */
#ifdef MUT_NO_REDELIVERY
        open = 0;
#endif
        told(rec[r].id);
        if
        :: open -> rec[r].where = PASSED; open = 0
        :: else -> give(r)
        fi;
        r = 0
       }
    od;
    r = 0;
    if
    :: overflow && overflow_told > 0 ->
        look_blind();
        if
        :: !blind -> overflow = 0; overflow_told = 0
        :: else -> overflow_told = 2; blind = 0
        fi
    :: else
    fi;
    atomic { /* Q4 */
        STEP;
        end_round();
        if
        :: !more && !overflow -> held_flag = 0
        :: else -> more = 0
        fi
    }
    atomic { /* the user has the events now */
        STEP;
        subscriber_lock = 0;
        if
        :: all -> all = 0; tell_all()
        :: else
        fi
    }
}

/* lapse_watch; tell_in_flight */
inline watch()
{
    atomic { STEP; !subscriber_lock -> subscriber_lock = 1 }
    atomic { STEP; filter = 1 } /* F2 */
#ifndef MUT_NO_LOOK
    j = 0;
    do
    :: j < SLOTS ->
        atomic { STEP; busy = slot[j].range } /* C2 */
        if
        :: busy ->
            atomic {
                STEP;
                busy = 0;
                turn = slot[j].turn;
                turn = (turn % 2 -> turn : turn + 1);
                id = (slot[j].range -> slot[j].id : NO_ID)
            }
            atomic { /* P1 */
                STEP;
                take(r);
                if
                :: r != NO_RECORD ->
                    rec[r].slot = j;
                    rec[r].turn = turn;
                    rec[r].id = id
                :: else
                fi;
                turn = 0;
                id = 0
            }
            if
            :: r != NO_RECORD -> push(r)
            :: else ->
                r = 0;
                atomic { STEP; slot[j].blind = 1 }
                collapse()
            fi
        :: else
        fi;
        j++
    :: else -> j = 0; break
    od;
    atomic { STEP; busy = unslotted > 0 }
    if
    :: busy -> busy = 0; collapse()
    :: else
    fi;
#endif
    atomic { STEP; subscriber_lock = 0; watched = 1 }
}

/* From here on nobody is owed: the user gave the watch back. */
inline unwatch()
{
    atomic { STEP; !subscriber_lock -> subscriber_lock = 1; watched = ALL;
        n = 0;
        do
        :: n < IDS ->
            if
            :: !ALL -> owed[n] = 0; began_watched[n] = 0
            :: else
            fi;
            n++
        :: else -> break
        od;
        n = 0
    }
    atomic { STEP; filter = ALL; subscriber_lock = 0 }
}

inline drain()
{
    atomic {
        STEP;
        is_pending(wait);
        n = 0;
        do
        :: n < IDS -> assert(!owed[n] || wait); n++ /* G1 */
        :: else -> break
        od;
        n = 0
    }
    hit = 0;
    if
    :: wait -> wait = 0; poll()
    :: else
    fi
}

inline lookup()
{
    atomic { STEP; !cache_lock -> cache_lock = 1 }
    atomic { STEP; mapped = 1 } /* whoever got the address; or as it was */
    atomic { STEP; seen = version }
    drain();
    if
    :: hit && entry -> entry = 0; entry_version = 0; unwatch()
    :: else
    fi;
    hit = 0;
    if
    :: entry -> assert(entry_version == seen) /* G2 */
    :: else ->
        if
        :: !ALL -> watch()
        :: else
        fi;
        atomic { STEP; was = version; can = mapped } /* pin */
        drain();
        if
        :: hit || !can ->
            if
            :: !ALL -> unwatch()
            :: else
            fi
        :: else -> atomic { STEP; entry = 1; entry_version = was }
        fi;
        hit = 0;
        was = 0;
        can = 0
    fi;
    seen = 0;
    atomic { STEP; cache_lock = 0 }
}

/* fork.c, in_flight_fork_child, poll_fork_child: this thread goes on alone. */
inline fork_here()
{
    atomic {
        !subscriber_lock && !cache_lock && !forked ->
        forked = 1;
        n = 0;
        do
        :: n < SLOTS ->
            if
            :: slot[n].range ->
                overflow_flag = overflow_flag || slot[n].blind;
#ifndef MUT_FORK_KEEPS
                slot[n].blind = 0;
                slot[n].turn = slot[n].turn + (slot[n].turn % 2 -> 1 : 2);
                slot[n].range = 0
#endif
            :: else
            fi;
            n++
        :: else -> break
        od;
        if
        :: unslotted -> overflow_flag = 1; unslotted = 0
        :: else
        fi;
        poll_take();
        n = 0;
        do
        :: n < RECORDS ->
            if
            :: rec[n].where == TAKEN || rec[n].where == HAND -> give(n)
            :: else
            fi;
            n++
        :: else -> break
        od;
        n = 0
    }
}

#define USER_LOCALS                                                           \
    byte k, r, i, j, n, turn, id, seen, was;                                  \
    bool all, open, hit, wait, more, blind, busy, can, mine[RECORDS];         \
    bool producing, survives

proctype user()
{
    USER_LOCALS;

    do
    :: k < LOOKUPS -> lookup(); k++
    :: else -> break
    od;
gone:
    done++
}

init
{
    USER_LOCALS;

    atomic {
        do
        :: k < RECORDS -> rec[k].where = FREE; k++
        :: else -> k = 0; break
        od;
        do
        :: k < PRODUCERS -> run producer(k); k++
        :: else -> k = 0; break
        od;
        do
        :: k < USERS -> run user(); k++
        :: else -> k = 0; break
        od
    }
    /* The thread that forks is this one, which then goes on in the child as a
     * user; without a fork it is the last one that looks. */
    if
    :: FORKS -> fork_here(); survives = 1; lookup()
    :: true
    fi;
    (done == EVERYBODY);
    lookup();
    lookup();
    drain(); /* a record that was told open is told closed, and no more */
    atomic {
        is_pending(wait);
        assert(!wait);
        for (k : 0 .. RECORDS - 1) {
            assert(rec[k].where == FREE)
        }
    }
gone:
    skip
}
