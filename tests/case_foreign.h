/* SPDX-License-Identifier: BSD-3-Clause */
/* Other people's hooks, as small as they come, for cases I1 and I2. */
#ifndef CASE_FOREIGN_H
#define CASE_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#define PROLOGUE 14 /* jmp *0(%rip); address */

/* One that writes over the begin of a function, and puts back what it saved. */
struct prologue {
    uint8_t *at;
    uint8_t saved[PROLOGUE], written[PROLOGUE];
};
void prologue_install(struct prologue *p, void *function, void *hook);
void prologue_remove(struct prologue *p);
bool prologue_is_there(const struct prologue *p);

/* One that writes into the caller's table of imported functions. */
bool import_replace(const char *name, void *hook, void **was);

#endif
