/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every release of a trace, with its stack: for tests to compare.
 * stacks_dump FILE
 *   release TID PATH START END FLAGS HOW-IT-ENDS
 *   frame PC MODULE+OFFSET SYMBOL+OFFSET
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "scripts/symbols.h"
#include "scripts/trace.h"
#include "scripts/unwind.h"

static void put_frame(const struct frame *f)
{
    const char *base = f->segment ? strrchr(f->segment->name, '/') : NULL;

    printf("frame %#" PRIx64, f->pc);
    if (f->segment)
        printf(" %s+%#" PRIx64, base ? base + 1 : f->segment->name, f->offset);
    else
        printf(" ?");
    if (f->symbol)
        printf(" %s+%" PRIu64, f->symbol, f->symbol_offset);
    putchar('\n');
}

int main(int argc, char **argv)
{
    static const char *const ends[] = {"whole", "cut", "no-table",
                                       "no-module", "no-stack"};
    static struct frame frames[UNWIND_FRAMES];
    const struct trace_record *r;
    const char *why = "wants one file";
    struct trace *t = argc == 2 ? trace_open(argv[1], &why) : NULL;
    enum unwind_end end;
    unsigned ring;

    if (!t) {
        fprintf(stderr, "'%s' %s\n", argc == 2 ? argv[1] : "", why);
        return 2;
    }
    while ((r = trace_next(t, &ring))) {
        const struct trace_release *release = (const void *)r;
        size_t n;

        if (r->kind != TRACE_RELEASE)
            continue;
        n = unwind(t, r, frames, &end);
        printf("release %" PRIu32 " %d %#" PRIx64 " %#" PRIx64 " %d %s\n",
               r->tid, release->path, release->start, release->end, r->flags,
               ends[end]);
        for (size_t i = 0; i < n; i++)
            put_frame(&frames[i]);
    }
    printf("end %" PRIu64 " read %" PRIu64 " overwritten %" PRIu64
           " without stack %" PRIu64 " modules lost\n",
           trace_read(t), trace_overwritten(t), trace_head(t)->stackless,
           trace_head(t)->segments_lost);
    trace_close(t);
    unwind_free();
    symbols_free();
    return 0;
}
