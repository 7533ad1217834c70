/* SPDX-License-Identifier: BSD-3-Clause */
/* What belongs together in the records of a trace. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "scripts/command.h"
#include "scripts/past.h"

#define P(page) ((uint64_t)(page)*4096)

static struct past past;
static struct past_process *process;
static uint64_t number[4];

void say(const char *format, ...)
{
    (void)format;
    abort();
}

static void begin(void)
{
    static const struct trace_header head = {.pid = 7, .name = "made"};

    process = past_process_add(&past, "made.trace", &head, 0);
    cr_assert(process);
}

static void release_by(unsigned ring, uint64_t ns, uint32_t turn,
                       uint64_t start, uint64_t end, uint32_t stack)
{
    struct trace_release r = {.head = {.bytes = sizeof(r),
                                       .kind = TRACE_RELEASE,
                                       .tid = 7,
                                       .turn = turn,
                                       .number = number[ring]++},
                              .start = start,
                              .end = end,
                              .path = LAPSE_PATH_MADVISE,
                              .reason = LAPSE_REASON_MADVISE,
                              .inside = 1};

    past_take(process, &r.head, ring, ns, stack);
}

static void release(unsigned ring, uint64_t ns, uint32_t turn, uint64_t start,
                    uint64_t end)
{
    release_by(ring, ns, turn, start, end, UINT32_MAX);
}

static void told(unsigned kind, uint64_t ns, uint32_t turn, unsigned flags,
                 uint32_t subscriber, uint64_t seq, uint64_t start,
                 uint64_t end)
{
    struct trace_told t = {.head = {.bytes = sizeof(t),
                                    .kind = (uint16_t)kind,
                                    .flags = (uint16_t)flags,
                                    .tid = 7,
                                    .turn = turn,
                                    .number = number[1]++},
                           .start = start,
                           .end = end,
                           .seq = seq,
                           .subscriber = subscriber};

    past_take(process, &t.head, 1, ns, 0);
}

static void publish(uint64_t ns, uint32_t turn, uint32_t subscriber,
                    uint64_t seq)
{
    told(TRACE_PUBLISH, ns, turn, 0, subscriber, seq, P(1), P(2));
}

static void watch(uint64_t ns, uint64_t start, uint64_t end)
{
    told(TRACE_WATCH, ns, 0, 0, 3, 0, start, end);
}

static void unwatch(uint64_t ns, uint64_t start, uint64_t end)
{
    told(TRACE_UNWATCH, ns, 0, 0, 3, 0, start, end);
}

static void done(void)
{
    past_settle(&past);
}

/* The release that was made then. */
static uint32_t hits_of(uint64_t ns)
{
    for (size_t i = 0; i < process->events; i++)
        if (process->event[i].ns == ns)
            return process->event[i].hits;
    cr_assert(false);
    return 0;
}

static const struct past_watch *watch_of(uint64_t start, uint64_t from)
{
    for (size_t i = 0; i < process->watches; i++)
        if (process->watch[i].start == start && process->watch[i].from == from)
            return &process->watch[i];
    cr_assert(false, "no watch of %#lx", (unsigned long)start);
    return NULL;
}

Test(past, hits_are_of_the_same_turn_and_ring, .init = begin)
{
    publish(10, 4, 0, 1);
    publish(11, 4, 2, 1);
    release(1, 12, 4, P(1), P(2));
    release(1, 13, 5, P(1), P(2));
    publish(14, 6, 0, 2);
    release(2, 15, 6, P(1), P(2)); /* another ring */
    release(1, 16, 6, P(1), P(2));
    release(1, 17, 7, P(1), P(2));
    publish(18, 7, 0, 3); /* behind its release */
    done();
    cr_assert_eq(hits_of(12), 2);
    cr_assert_eq(hits_of(13), 0);
    cr_assert_eq(hits_of(15), 0);
    cr_assert_eq(hits_of(16), 1);
    cr_assert_eq(hits_of(17), 1);
    cr_assert_eq(process->sum.hits, 4);
    cr_assert_eq(process->sum.count, 5);
    cr_assert_eq(process->sum.bytes, P(5));
    cr_assert_eq(process->sum.inside[1], 5);
    cr_assert_eq(process->by[LAPSE_PATH_MADVISE][LAPSE_REASON_MADVISE].hits, 4);
}

Test(past, a_hit_of_a_release_that_comes_late, .init = begin)
{
    release(2, 50, 1, P(1), P(2));
    publish(20, 1, 0, 1);
    release(1, 21, 1, P(1), P(2));
    done();
    cr_assert_eq(process->event[0].ns, 20);
    cr_assert_eq(hits_of(21), 1);
    cr_assert_eq(hits_of(50), 0);
}

Test(past, watches_end_with_their_unwatch, .init = begin)
{
    watch(10, P(1), P(3));
    watch(11, P(1), P(3)); /* once more */
    watch(12, P(8), P(9));
    unwatch(20, P(1), P(3));
    unwatch(30, P(1), P(3));
    done();
    cr_assert_eq(process->watches, 3);
    cr_assert_eq(watch_of(P(1), 11)->to, 20);
    cr_assert_eq(watch_of(P(1), 10)->to, 30);
    cr_assert(watch_of(P(8), 12)->open);
    cr_assert_eq(process->watched_most, P(5));
    cr_assert_eq(process->watched_last, P(1));
}

Test(past, a_part_is_taken_back, .init = begin)
{
    watch(10, P(1), P(9));
    unwatch(20, P(3), P(5));
    unwatch(30, P(1), P(3));
    done();
    cr_assert_eq(process->watches, 3);
    cr_assert_eq(watch_of(P(3), 10)->to, 20);
    cr_assert_eq(watch_of(P(3), 10)->end, P(5));
    cr_assert_eq(watch_of(P(1), 10)->to, 30);
    cr_assert_eq(watch_of(P(1), 10)->end, P(3));
    cr_assert(watch_of(P(5), 10)->open);
    cr_assert_eq(process->watched_last, P(4));
}

Test(past, one_unwatch_of_several_watches, .init = begin)
{
    watch(10, P(1), P(3));
    watch(11, P(3), P(6));
    unwatch(20, P(1), P(6));
    done();
    cr_assert_eq(watch_of(P(1), 10)->to, 20);
    cr_assert_eq(watch_of(P(3), 11)->to, 20);
    cr_assert_eq(process->watched_last, 0);
}

Test(past, all_are_taken_back, .init = begin)
{
    watch(10, P(1), P(3));
    watch(11, P(7), P(8));
    told(TRACE_UNWATCH, 20, 0, 0, 3, 0, 0, UINT64_MAX);
    watch(21, P(7), P(8));
    done();
    cr_assert_eq(watch_of(P(1), 10)->to, 20);
    cr_assert_eq(watch_of(P(7), 11)->to, 20);
    cr_assert(watch_of(P(7), 21)->open);
}

Test(past, an_unwatch_whose_watch_was_overwritten, .init = begin)
{
    unwatch(20, P(1), P(3));
    release(1, 25, 1, P(1), P(2));
    done();
    cr_assert_eq(process->watches, 0);
    process->overwritten = 1;
    past_settle_watches(process, 25);
    cr_assert_eq(process->watches, 1);
    cr_assert_eq(process->watch[0].from, 0);
    cr_assert_eq(process->watch[0].to, 20);
}

Test(past, what_a_release_meets, .init = begin)
{
    watch(10, P(1), P(100)); /* long, and begins before all */
    watch(11, P(4), P(5));
    watch(12, P(120), P(130));
    unwatch(40, P(1), P(100));
    unwatch(30, P(4), P(5));
    release(1, 60, 1, P(1), P(2));
    done();
    cr_assert_neq(past_meets(process, 35, P(50), P(51)), SIZE_MAX);
    cr_assert_eq(past_meets(process, 45, P(50), P(51)), SIZE_MAX);
    cr_assert_eq(past_meets(process, 5, P(50), P(51)), SIZE_MAX);
    cr_assert_eq(past_meets(process, 20, P(100), P(120)), SIZE_MAX);
    cr_assert_neq(past_meets(process, 20, P(100), P(121)), SIZE_MAX);
    cr_assert_neq(past_meets(process, 20, P(99), P(100)), SIZE_MAX);
    cr_assert_neq(past_meets(process, 59, P(129), P(300)), SIZE_MAX);
    cr_assert_eq(past_meets(process, 59, P(130), P(300)), SIZE_MAX);
}

Test(past, waits_until_told_first, .init = begin)
{
    struct past_subscriber *s = &process->subscriber[2];

    publish(100, 1, 2, 1);
    publish(200, 2, 2, 2);
    publish(300, 3, 2, 3);
    publish(310, 3, 5, 3); /* the same number, somebody else's */
    told(TRACE_DELIVER, 150, 0, TRACE_EVENT_OPEN, 2, 1, P(1), P(2));
    told(TRACE_DELIVER, 190, 0, 0, 2, 1, P(1), P(2));
    told(TRACE_DELIVER, 900, 0, 0, 2, 2, P(1), P(2));
    done();
    cr_assert_eq(s->published, 3);
    cr_assert_eq(s->delivered, 3);
    cr_assert_eq(s->open, 1);
    cr_assert_eq(s->told, 2);
    cr_assert_eq(s->untold, 1);
    cr_assert_eq(s->median, 50);
    cr_assert_eq(s->most, 700);
    cr_assert_eq(process->subscriber[5].untold, 1);
}

Test(past, overflow_ends_what_waited, .init = begin)
{
    publish(100, 1, 2, 1);
    publish(150, 1, 4, 1);
    told(TRACE_OVERFLOW, 200, 0, 0, 2, 0, 0, UINT64_MAX);
    publish(300, 2, 2, 2);
    release(1, 400, 2, P(1), P(2));
    done();
    cr_assert_eq(process->subscriber[2].overflows, 1);
    cr_assert_eq(process->subscriber[2].untold, 2);
    cr_assert_eq(process->wait[0].to, 200);
    cr_assert_eq(process->wait[1].to, 400);
    cr_assert_eq(process->wait[2].subscriber, 4);
    cr_assert_eq(process->wait[2].to, 400);
}

Test(past, inline_handlers_are_not_waited_for, .init = begin)
{
    told(TRACE_PUBLISH, 100, 1, TRACE_INLINE, 2, 1, P(1), P(2));
    done();
    cr_assert_eq(process->subscriber[2].called, 1);
    cr_assert_eq(process->subscriber[2].untold, 0);
}

Test(past, complete_from_the_last_gap_on, .init = begin)
{
    release(2, 10, 1, P(1), P(2));
    number[1] = 5;
    release(1, 20, 1, P(1), P(2));
    release(1, 30, 2, P(1), P(2));
    cr_assert_eq(process->complete, 20);
    number[2] += 3;
    release(2, 40, 2, P(1), P(2));
    cr_assert_eq(process->complete, 40);
}

static uint32_t stack(bool copied, uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t frames[] = {a, b, c};

    return past_stack(&past, frames, 3, copied, false);
}

Test(past, the_caller_is_outside_of_libc, .init = begin)
{
    uint32_t libc = past_frame(&past, "/lib/libc.so.6", "ab", 1, "munmap");
    uint32_t free_ = past_frame(&past, "/lib/libc.so.6", "ab", 2, "free");
    uint32_t mine = past_frame(&past, "/bin/made", "cd", 3, "f");
    uint32_t ours = stack(true, libc, free_, mine);

    cr_assert_eq(past_frame(&past, "/lib/libc.so.6", "ab", 2, "free"), free_);
    cr_assert_neq(past_frame(&past, "/lib/libc.so.6", "xx", 2, "free"), free_);
    cr_assert_eq(stack(true, libc, free_, mine), ours);
    release_by(1, 10, 1, P(1), P(3), ours);
    release_by(1, 11, 2, P(1), P(2), ours);
    release_by(1, 12, 3, P(1), P(2), stack(true, libc, free_, free_));
    done();
    cr_assert_eq(process->callers, 2);
    past_sort_callers(process, PAST_BY_COUNT);
    cr_assert_eq(process->caller[0].frame, mine);
    cr_assert_eq(process->caller[0].via, free_);
    cr_assert_eq(process->caller[0].sum.count, 2);
    cr_assert_eq(process->caller[0].sum.bytes, P(3));
    cr_assert_eq(process->caller[1].frame, free_); /* all libc's */
}

Test(past, many_frames_are_kept_once, .init = begin)
{
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 5000; i++) {
            cr_assert_eq(past_frame(&past, "/bin/made", "", i, NULL), i);
            cr_assert_eq(past_stack(&past, &i, 1, true, false), i);
        }
    cr_assert_eq(past.frames, 5000);
    cr_assert_eq(past.stacks, 5000);
}

Test(past, folded_stacks, .init = begin)
{
    uint32_t munmap = past_frame(&past, "/lib/libc.so.6", "", 1, "madvise");
    uint32_t f = past_frame(&past, "/bin/made", "", 0x30, "f(int; x)");
    uint32_t g = past_frame(&past, "/bin/made", "", 0x40, NULL);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    publish(9, 1, 0, 1);
    release_by(1, 10, 1, P(1), P(3), stack(true, munmap, f, g));
    release_by(1, 11, 2, P(1), P(2), stack(true, munmap, f, g));
    done();
    past_folded(&past, out, PAST_BY_COUNT);
    past_folded(&past, out, PAST_BY_BYTES);
    past_folded(&past, out, PAST_BY_HITS);
    fclose(out);
    cr_assert_str_eq(text, "made;made+0x40;f(int:_x);madvise;[madvise] 2\n"
                           "made;made+0x40;f(int:_x);madvise;[madvise] 12288\n"
                           "made;made+0x40;f(int:_x);madvise;[madvise] 1\n");
    free(text);
}

/* An event whose type found no room in the file. */
Test(past, a_type_without_a_name, .init = begin)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    process->type = calloc(2, sizeof(*process->type));
    cr_assert_not_null(process->type);
    process->types = 2;
    process->type[1].count = 3;
    done();
    past_print(&past, out, 10);
    past_json(&past, out, 10);
    fclose(out);
    cr_assert_not_null(strstr(text, "event of type 1: 3\n"));
    cr_assert_not_null(strstr(text, "\"name\": null"));
    free(text);
    past_free(&past);
}

/* A clock that lies, by more than a double tells apart: the axis has an end. */
Test(past, centuries, .init = begin, .timeout = 20)
{
    enum { MOST = 1 << 20 };
    const uint64_t late = 3700240657885485000;
    char *text = malloc(MOST);
    FILE *out = fmemopen(text, MOST, "w");

    cr_assert(text && out);
    release(1, 10, 1, P(1), P(2));
    for (unsigned i = 0; i < 20; i++)
        release(1, late + 30 * i, 2 + i, P(1), P(2));
    done();
    past_picture(&past, out, 10);
    cr_assert_eq(fflush(out), 0);
    cr_assert(!ferror(out) && ftell(out) < MOST / 2);
    fclose(out);
    free(text);
    past_free(&past);
}

/* Numbers at random in each record: nothing may crash, of what is shown. */
Test(past, nonsense, .init = begin)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    uint64_t room[16];

    srand(1);
    for (int i = 0; i < 20000; i++) {
        struct trace_record *r = (void *)room;

        for (size_t k = 0; k < 16; k++)
            room[k] = (uint64_t)rand() << (rand() % 48);
        r->kind = (uint16_t)(rand() % 12);
        r->bytes = (uint32_t)(rand() % 17 * 8);
        past_take(process, r, (unsigned)rand(), (uint64_t)rand() % 100000,
                  UINT32_MAX);
    }
    memset(process->head.name, 0xff, 8);
    done();
    past_print(&past, out, 10);
    past_json(&past, out, 10);
    past_folded(&past, out, PAST_BY_COUNT);
    past_perfetto(&past, out);
    past_picture(&past, out, 10);
    fclose(out);
    cr_assert_gt(size, 100000);
    free(text);
    past_free(&past);
}
