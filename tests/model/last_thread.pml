/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glibc's count of threads and what shim/thread.c does with it, as a spin
 * model: the program's threads, of which the first starts one of ours; ours,
 * which may start further ones; and those that are made to be the last. One
 * atomic block is one step: an atomic of the source or of glibc's, a load with
 * its compare-and-exchange by their linearisation point.
 *
 * Properties, as assertions:
 *  G5 exit() is called by a thread that ends, once, and not before all of the
 *     program's have ended; and it is called, whether ours end or go on for
 *     ever. But for a maker for whom nobody can be made to be the last: it is
 *     when he ends.
 *
 * Left out: memory orders (all are relaxed: it is one number); a thread of the
 * program's that a callback makes while exit() runs; fork.
 */
#ifndef PROGRAMS /* threads of the program's */
#define PROGRAMS 2
#endif
#ifndef STARTS /* threads of ours, at most */
#define STARTS 3
#endif
#ifndef FAILS /* threads that cannot be made, at most */
#define FAILS 1
#endif

byte count = PROGRAMS; /* __nptl_nthreads */
byte programs = PROGRAMS;
byte starts, fails, exits;
bool for_ever; /* ours never end by themselves */

/* A thread's end */
inline end_thread()
{
    atomic {
        count--;
        if
        :: count == 0 ->
            assert(programs == 0 && exits == 0);
            exits++;
            in_exit = true
        :: else
        fi
    }
}

/* pthread_create() */
#define CREATE(what) \
    atomic { count++ }; \
    if \
    :: atomic { run what() }; \
       made = true \
    :: atomic { fails < FAILS -> fails++; count-- }; \
       made = false \
    fi

inline take_out(done)
{
    atomic {
        if
        :: count > 1 -> count--; done = true
        :: else -> done = false
        fi
    }
}

inline take_maker_out()
{
    take_out(done);
    if
    :: done
    :: else ->
        CREATE(be_last);
#ifdef MUT_MAKER_TRIES
        take_out(done)
#else
        if
        :: made
        :: else -> uncounted = false
        fi
#endif
    fi
}

/* lapse_thread_start() */
inline start()
{
    atomic {
        maker_in = uncounted;
        if
        :: uncounted -> count = count + 1 + (count == 0)
        :: else -> count = count + (count == 0)
        fi
    };
#ifdef MUT_MAKER_OUT /* T4 */
    if
    :: uncounted -> count--; maker_in = false
    :: else
    fi;
#endif
    CREATE(ours);
    if
    :: made -> take_out(done); assert(done)
    :: else
    fi;
    if
    :: maker_in -> take_maker_out()
    :: else
    fi
}

/* They may start one: T3 */
inline exit_handlers()
{
    if
    :: atomic { in_exit && starts < STARTS -> starts++ };
       start()
    :: true
    fi
}

proctype be_last()
{
    bool uncounted, made, done, maker_in, in_exit;

#ifndef MUT_MAKER_TRIES
    take_out(done);
    assert(done);
#endif
    end_thread();
    exit_handlers()
}

proctype ours()
{
    bool uncounted = true, made, done, maker_in, in_exit;

    do
    :: atomic { starts < STARTS -> starts++ };
       start()
    :: break
    od;
end:
    !for_ever || !uncounted;
    if
    :: uncounted ->
#ifndef MUT_ENDS_OUT /* T2 */
        atomic {
#ifdef MUT_ONCE_MORE /* T3 */
            count++
#else
            count = count + 1 + (count == 0)
#endif
        }
#else
        skip
#endif
    :: else
    fi;
    end_thread();
    exit_handlers()
}

proctype program(bool first)
{
    bool uncounted, made, done, maker_in, in_exit;

    if
    :: first ->
        atomic { starts < STARTS -> starts++ };
        start()
    :: else
    fi;
    atomic { programs-- };
    end_thread();
    exit_handlers()
}

init
{
    byte i;

    atomic {
        if
        :: for_ever = true
        :: for_ever = false
        fi;
        for (i : 0 .. PROGRAMS - 1) {
            run program(i == 0)
        }
    }
    timeout; /* nobody else has anything to do */
    assert(exits == 1)
}
