/* SPDX-License-Identifier: BSD-3-Clause */
/* From the ticks of records to ns, by the pairs that the file has. */
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "trace_impl.h"

enum {
    CLOSE_NS = 1000000,      /* pairs nearer than that tell nothing new */
    SPAN_NS = 1000000000 /* that long, and the pairs give a good rate */
};

/* How many of the pairs are not later than these ticks. */
static size_t pairs_below(const struct trace_pairs *pairs, uint64_t ticks)
{
    size_t low = 0, high = pairs->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (pairs->pair[middle].ticks <= ticks)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Every second one goes, but for the last. */
static void pairs_thin(struct trace_pairs *pairs)
{
    size_t kept = 0;

    for (size_t i = 0; i < pairs->count; i++)
        if (i % 2 == 0 || i + 1 == pairs->count)
            pairs->pair[kept++] = pairs->pair[i];
    pairs->count = kept;
}

/* One that contradicts those we have is not believed. */
void trace_pairs_add(struct trace_pairs *pairs, uint64_t ticks, uint64_t ns)
{
    size_t i;
    uint64_t least = pairs->count < 2 ? 1 : CLOSE_NS;

    if (!ticks)
        return;
    if (pairs->count == TRACE_PAIRS)
        pairs_thin(pairs);
    i = pairs_below(pairs, ticks);
    if (i && (pairs->pair[i - 1].ticks == ticks ||
              pairs->pair[i - 1].ns >= ns ||
              ns - pairs->pair[i - 1].ns < least))
        return;
    if (i < pairs->count && (pairs->pair[i].ns <= ns ||
                             pairs->pair[i].ns - ns < least))
        return;
    memmove(&pairs->pair[i + 1], &pairs->pair[i],
            (pairs->count - i) * sizeof(pairs->pair[0]));
    pairs->pair[i] = (struct trace_pair){ticks, ns};
    pairs->count++;
}

#ifdef __x86_64__
static bool this_boot(const char *boot)
{
    char now[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, now, sizeof(now) - 1);

    if (fd >= 0)
        close(fd);
    now[strcspn(now, "\n")] = 0;
    return n > 0 && !strcmp(now, boot);
}
#endif

void trace_pairs_add_now(struct trace_pairs *pairs, const char *boot)
{
#ifdef __x86_64__
    size_t n = pairs->count;
    struct timespec now;
    uint64_t ticks;

    if (!n || pairs->pair[n - 1].ns - pairs->pair[0].ns >= SPAN_NS ||
        !this_boot(boot))
        return;
    clock_gettime(CLOCK_MONOTONIC, &now); /* the way is known then */
    ticks = __builtin_ia32_rdtsc();
    clock_gettime(CLOCK_MONOTONIC, &now);
    trace_pairs_add(pairs, ticks,
                    (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
#else
    (void)pairs;
    (void)boot;
#endif
}

/* The line through a and b at these ticks, within what the type can say. */
static uint64_t line(const struct trace_pair *from, const struct trace_pair *a,
                     const struct trace_pair *b, uint64_t ticks)
{
    unsigned __int128 far = ticks > from->ticks ? ticks - from->ticks
                                                : from->ticks - ticks;

    if (a != b)
        far = far * (b->ns - a->ns) / (b->ticks - a->ticks);
    if (ticks < from->ticks)
        return far > from->ns ? 0 : from->ns - (uint64_t)far;
    return far > UINT64_MAX - from->ns ? UINT64_MAX
                                       : from->ns + (uint64_t)far;
}

/* Between two pairs their line; outside of all, from the nearest at the rate
 * between the first and the last, as near ones are not exact enough for it. */
uint64_t trace_pairs_ns(const struct trace_pairs *pairs, uint64_t ticks)
{
    size_t i = pairs_below(pairs, ticks), n = pairs->count;
    const struct trace_pair *pair = pairs->pair;

    if (!n)
        return ticks;
    if (i && i < n)
        return line(&pair[i - 1], &pair[i - 1], &pair[i], ticks);
    return line(i ? &pair[n - 1] : &pair[0], &pair[0], &pair[n - 1], ticks);
}
