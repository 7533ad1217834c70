/* SPDX-License-Identifier: BSD-3-Clause */
/* `lapse trace`: the records of a trace, of a program that runs or ran. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "lapse_trace.h"
#include "symbols.h"

enum {
    POLL_MS = 20,
    LOOKS = 10 /* polls between two looks at whether a process is there */
};

struct options {
    bool follow, json, summary;
    struct trace_filter filter;
};

static volatile sig_atomic_t interrupted;

void lapse_trace_help(void)
{
    fputs("Usage: lapse trace [OPTION...] FILE|DIRECTORY|PID...\n"
          "Shows what a trace holds that a program keeps or kept with "
          "LAPSE_TRACE=DIR:\nits releases, who was told of them, watches, and "
          "the program's own events.\n\n"
          "  --follow          go on as they come, until the program ends\n"
          "  --json            a JSON object a line\n"
          "  --summary         only how much of what there is\n"
          "  --kind NAME       release, publish, deliver, overflow, watch, "
          "unwatch, event\n"
          "  --path NAME       releases by that path (munmap, madvise, ...)\n"
          "  --reason NAME     of that reason (munmap, unload, free, ...)\n"
          "  --min-size BYTES  of that size or more; 64K, 1M\n"
          "  --max-size BYTES  of that size or less\n"
          "  --address A[-B]   that touch the address, or the range\n"
          "  --module NAME     called from a module with NAME in its name\n"
          "  --tid N           of that thread\n"
          "  --help            say this\n\n"
          "--kind, --path and --reason can be given more than once. The "
          "manual is lapse(1).\n",
          stdout);
}

static void on_signal(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* Unless that was ignored, as by a job in the background. */
static void stop_by(int signal)
{
    struct sigaction stop = {.sa_handler = on_signal}, before;

    if (!sigaction(signal, &stop, &before) && before.sa_handler == SIG_IGN)
        sigaction(signal, &before, NULL);
}

/* One option; 0, EXIT_USAGE, or -1 for --help. */
static int option(struct options *o, int letter, char **argv)
{
    struct trace_filter *f = &o->filter;

    switch (letter) {
    case 'f':
        o->follow = true;
        return 0;
    case 'j':
        o->json = true;
        return 0;
    case 's':
        o->summary = true;
        return 0;
    case 'k':
        return filter_kind(f, optarg);
    case 'p':
        return filter_path(f, optarg);
    case 'r':
        return filter_reason(f, optarg);
    case 'm':
        f->sized = true;
        return filter_size(&f->min_size, "--min-size", optarg);
    case 'M':
        f->sized = true;
        return filter_size(&f->max_size, "--max-size", optarg);
    case 'a':
        return filter_address(f, optarg);
    case 'o':
        f->module = optarg;
        return 0;
    case 't':
        return filter_tid(f, optarg);
    case 'h':
        return -1;
    default:
        return command_wrong_option(letter, argv);
    }
}

static int parse(struct options *o, int argc, char **argv)
{
    static const struct option options[] = {
        {"follow", no_argument, NULL, 'f'},
        {"json", no_argument, NULL, 'j'},
        {"summary", no_argument, NULL, 's'},
        {"kind", required_argument, NULL, 'k'},
        {"path", required_argument, NULL, 'p'},
        {"reason", required_argument, NULL, 'r'},
        {"min-size", required_argument, NULL, 'm'},
        {"max-size", required_argument, NULL, 'M'},
        {"address", required_argument, NULL, 'a'},
        {"module", required_argument, NULL, 'o'},
        {"tid", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int letter, error = 0;

    o->filter.max_size = UINT64_MAX;
    opterr = 0;
    optind = 1;
    while (!error &&
           (letter = getopt_long(argc, argv, ":h", options, NULL)) != -1)
        error = option(o, letter, argv);
    if (!error && !argv[optind])
        return misuse("no trace was named: a file, a directory of them, or "
                      "the pid of a program");
    return error;
}

/* PUBLISH comes before the RELEASE that it is of, in the same ring. */
static void remember(struct source *s)
{
    const struct trace_told *told = (const void *)s->record;
    struct told *ring = &s->told[s->ring];

    if (s->record->turn != ring->turn)
        *ring = (struct told){.turn = s->record->turn};
    if (s->record->kind == TRACE_PUBLISH && told->subscriber < 64)
        ring->subscribers |= (uint64_t)1 << told->subscriber;
}

static void show_all(struct sources *all, const struct options *o,
                     uint64_t zero)
{
    struct source *s;

    while (!interrupted && (s = sources_next(all))) {
        remember(s);
        if (s->record->kind <= TRACE_USER)
            s->kinds[s->record->kind]++;
        if (!o->summary && filter_passes(&o->filter, s)) {
            if (o->json)
                trace_print_json(stdout, s);
            else
                trace_print(stdout, s, zero);
        }
        if (s->record->kind == TRACE_RELEASE)
            s->told[s->ring].subscribers = 0;
        s->record = NULL;
    }
    fflush(stdout);
}

/* When the first of them began: from there on times are shown. */
static uint64_t zero_of(const struct sources *all)
{
    uint64_t zero = UINT64_MAX;

    for (size_t i = 0; i < all->count; i++)
        if (trace_head(all->one[i].trace)->start.realtime < zero)
            zero = trace_head(all->one[i].trace)->start.realtime;
    return zero;
}

/* Over is looked at before the last look at what is there. */
static void follow(struct sources *all, const struct options *o)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    uint64_t zero = UINT64_MAX;
    bool over = false;

    for (unsigned n = 0; !over && !interrupted && !ferror(stdout); n++) {
        if (n % LOOKS == 0) {
            sources_look(all);
            over = sources_over(all);
        }
        if (zero == UINT64_MAX)
            zero = zero_of(all);
        show_all(all, o, zero);
        if (!over && !interrupted)
            nanosleep(&pause, NULL);
    }
}

/* What is not among what was shown, for those who do not ask. */
static void missing(struct source *s)
{
    const struct trace_header *h = trace_head(s->trace);

    if (trace_overwritten(s->trace))
        say("pid %" PRIu32 ": %" PRIu64 " older records were overwritten "
            "(LAPSE_TRACE_RING=KB sets how many are kept)", h->pid,
            trace_overwritten(s->trace));
    if (h->lost)
        say("pid %" PRIu32 ": %" PRIu64 " records found no room", h->pid,
            h->lost);
    if (trace_damaged(s->trace))
        say("'%s': %" PRIu64 " places are damaged", s->name,
            trace_damaged(s->trace));
}

/* By when they began. */
static int age(const void *left, const void *right)
{
    const struct source *a = left, *b = right;
    uint64_t x = trace_head(a->trace)->start.realtime;
    uint64_t y = trace_head(b->trace)->start.realtime;

    return x < y ? -1 : x > y;
}

static void finish(struct sources *all, const struct options *o)
{
    sources_over(all);
    if (all->count)
        qsort(all->one, all->count, sizeof(*all->one), age);
    for (size_t i = 0; i < all->count; i++) {
        struct source *s = &all->one[i];

        trace_refresh(s->trace);
        if (o->json)
            trace_print_summary_json(stdout, s);
        else if (o->summary)
            trace_print_summary(stdout, s);
        else
            missing(s);
    }
}

int lapse_trace(int argc, char **argv)
{
    struct options o = {0};
    struct sources all = {0};
    int error = parse(&o, argc, argv);

    if (error < 0) {
        lapse_trace_help();
        return 0;
    }
    /* Who reads us may have had enough: that is no fault. */
    signal(SIGPIPE, SIG_DFL);
    for (int i = optind; !error && i < argc; i++)
        error = sources_add(&all, argv[i], o.follow);
    if (!error) {
        if (o.follow) {
            stop_by(SIGINT);
            stop_by(SIGTERM);
            follow(&all, &o);
        } else {
            show_all(&all, &o, zero_of(&all));
        }
        finish(&all, &o);
        if (fflush(stdout) || ferror(stdout)) {
            say("the output could not be written in full");
            error = EXIT_TROUBLE;
        }
    }
    sources_free(&all);
    symbols_free();
    return error;
}
