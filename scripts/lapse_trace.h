/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of `lapse trace` share. */
#ifndef LAPSE_TRACE_COMMAND_H
#define LAPSE_TRACE_COMMAND_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "trace.h"

/* One trace, and its record that is to be shown next. */
struct source {
    struct trace *trace;
    char *name; /* of the file, as it was asked for or found */
    char *real; /* its path, as /proc/PID/maps has it; NULL: not known */
    dev_t dev;
    ino_t ino;
    const struct trace_record *record; /* NULL: none is there now */
    uint64_t realtime;                 /* of it */
    unsigned ring;
    uint64_t kinds[TRACE_USER + 1]; /* how many, shown or not */
    pid_t pid; /* of who writes; in a namespace it knows itself by another */
    bool over; /* nobody writes there any more */
    struct told {
        uint64_t subscribers; /* PUBLISH of this turn, before the RELEASE */
        uint32_t turn;
    } *told; /* of each ring */
};

struct sources {
    struct source *one;
    size_t count;
    char **dir; /* directories: more files may come */
    size_t dirs;
};

/* Add FILE, DIR or PID. 0 or the exit status, said. `later`: nothing in a
 * directory is no mistake. */
int sources_add(struct sources *all, const char *what, bool later);
/* Files that came into the directories meanwhile. */
void sources_look(struct sources *all);
/* Find out who is over; true: all are. */
bool sources_over(struct sources *all);
void sources_free(struct sources *all);
/* The source whose record is the earliest; NULL: there are none now. */
struct source *sources_next(struct sources *all);

/* Which records are shown. */
struct trace_filter {
    uint32_t kinds, paths, reasons; /* bit masks; 0: all */
    uint64_t min_size, max_size;
    uint64_t address, address_end;
    const char *module;
    uint32_t tid;
    bool sized, placed;
};
/* Reads the value of an option. 0 or EXIT_USAGE, said. */
int filter_path(struct trace_filter *f, const char *name);
int filter_reason(struct trace_filter *f, const char *name);
int filter_kind(struct trace_filter *f, const char *name);
int filter_size(uint64_t *size, const char *option, const char *text);
int filter_address(struct trace_filter *f, const char *text);
int filter_tid(struct trace_filter *f, const char *text);
bool filter_passes(const struct trace_filter *f, struct source *s);

/* Names as options and output have them; "?": not known. */
const char *trace_kind_name(unsigned kind);
const char *trace_inside_name(unsigned inside);

/* Of the call before that address. */
struct place {
    const struct trace_segment *segment; /* NULL: not known */
    uint64_t offset;                     /* of pc, in the file's addresses */
    const char *symbol;                  /* NULL: not known */
};
struct place place_of(struct trace *t, uint64_t pc, uint64_t ticks);

/* The record of a source. */
void trace_print(FILE *out, struct source *s, uint64_t zero);
void trace_print_json(FILE *out, struct source *s);
/* What there is, by numbers. */
void trace_print_summary(FILE *out, struct source *s);
void trace_print_summary_json(FILE *out, struct source *s);
/* The data of an event, by its layout. */
void trace_print_event(FILE *out, const struct trace_user *user,
                       const struct trace_type *type, bool json);

#endif
