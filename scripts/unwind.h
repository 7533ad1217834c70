/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unwinding the stack of a release from its copy, with the tables of the
 * modules' files; a file whose build id is another one is not used.
 */
#ifndef SCRIPTS_UNWIND_H
#define SCRIPTS_UNWIND_H

#include "trace.h"

#define UNWIND_FRAMES 256

struct frame {
    uint64_t pc; /* in the process; of a caller, the return address */
    const struct trace_segment *segment; /* NULL: not known */
    uint64_t offset;    /* in the module's file's addresses */
    const char *symbol; /* NULL: not known */
    uint64_t symbol_offset;
};

enum unwind_end {
    UNWIND_WHOLE,     /* down to where the thread began */
    UNWIND_CUT,       /* to where the copy ends */
    UNWIND_NO_TABLE,  /* into code that no table describes */
    UNWIND_NO_MODULE, /* into memory that no known module had then */
    UNWIND_NO_STACK
};

/* Innermost first, without the frames of liblapse at that end. Returns how
 * many. The strings live until symbols_free(). */
size_t unwind(struct trace *t, const struct trace_record *release,
              struct frame frames[UNWIND_FRAMES], enum unwind_end *end);
/* Of this trace, which is about to be closed, nothing need be remembered. */
void unwind_forget(struct trace *t);
/* Forget the tables and files that were opened. */
void unwind_free(void);

#endif
