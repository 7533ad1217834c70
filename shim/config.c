/* SPDX-License-Identifier: BSD-3-Clause */
#include "config.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "log.h"
#include "release.h"
#include "trace_file.h"

#define RECORDS_DEFAULT 4096
#define RECORDS_MIN 64
#define RECORDS_MAX (1u << 20)
#define WATCHDOG_MAX 1000000

struct lapse_config lapse_config = {.records = RECORDS_DEFAULT};

static int parse(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t n = 0;

    if (!*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > (UINT64_MAX - 9) / 10)
            return -1;
        n = n * 10 + (uint64_t)(*text - '0');
    }
    if (n < min || n > max)
        return -1;
    *out = n;
    return 0;
}

static void set_number(const char *name, const char *value, uint64_t min,
                       uint64_t max, uint32_t *out, const char *instead)
{
    uint64_t n;

    if (parse(value, min, max, &n))
        log_warn("%s=%s: want a number from %lu to %lu; %s", name, value,
                 (unsigned long)min, (unsigned long)max, instead);
    else
        *out = (uint32_t)n;
}

static void set_records(const char *value)
{
    set_number("LAPSE_RECORDS", value, RECORDS_MIN, RECORDS_MAX,
               &lapse_config.records, "using 4096");
}

static void set_report(const char *value)
{
    if (*value)
        lapse_config.report = value;
    else
        log_warn("LAPSE_REPORT is empty: want a directory; no report kept");
}

static void set_stacks(const char *value)
{
    set_number("LAPSE_STACKS", value, 1, TRACE_STACK_KB_MAX,
               &lapse_config.stacks, "no stacks are kept");
}

static void set_trace_ring(const char *value)
{
    set_number("LAPSE_TRACE_RING", value, 64, 65536, &lapse_config.trace_ring,
               "using the default");
}

static void set_trace(const char *value)
{
    if (*value)
        lapse_config.trace = value;
    else
        log_warn("LAPSE_TRACE is empty: want a directory; no trace kept");
}

static void set_free(const char *value)
{
    if (!strcmp(value, "0") || !strcmp(value, "1"))
        lapse_config.free = *value == '1';
    else
        log_warn("LAPSE_FREE=%s: want 0 or 1; using 0", value);
}

static void set_backstop(const char *value)
{
    if (!strcmp(value, "none") || !strcmp(value, "uffd"))
        lapse_config.backstop = *value == 'u';
    else
        log_warn("LAPSE_BACKSTOP=%s: want uffd or none; using none", value);
}

static void set_watchdog(const char *value)
{
    uint64_t n;

    if (parse(value, 0, WATCHDOG_MAX, &n))
        log_warn("LAPSE_WATCHDOG=%s: want a number of seconds from 0 to %u; "
                 "using 0",
                 value, WATCHDOG_MAX);
    else
        lapse_config.watchdog = (uint32_t)n;
}

static void set_nothing(const char *value)
{
    (void)value; /* read by the lapse command */
}

#ifdef LAPSE_TEST_HOOKS
extern uint64_t release_test_ns[2];
extern int poll_test_no_redelivery;

static void set_before(const char *v)
{
    parse(v, 0, UINT32_MAX, &release_test_ns[0]);
}
static void set_after(const char *v)
{
    parse(v, 0, UINT32_MAX, &release_test_ns[1]);
}
static void set_no_redelivery(const char *v)
{
    poll_test_no_redelivery = *v == '1';
}
#endif

static const struct variable {
    const char *name;
    void (*set)(const char *value);
} variables[] = {
    {"LAPSE_RECORDS", set_records},
    {"LAPSE_REPORT", set_report},
    {"LAPSE_TRACE", set_trace},
    {"LAPSE_STACKS", set_stacks},
    {"LAPSE_TRACE_RING", set_trace_ring},
    {"LAPSE_FREE", set_free},
    {"LAPSE_BACKSTOP", set_backstop},
    {"LAPSE_WATCHDOG", set_watchdog},
    {"LAPSE_LIBRARY", set_nothing},
#ifdef LAPSE_TEST_HOOKS
    {"LAPSE_TEST_DELAY_BEFORE", set_before},
    {"LAPSE_TEST_DELAY_AFTER", set_after},
    {"LAPSE_TEST_NO_REDELIVERY", set_no_redelivery},
#endif
};

static void read_one(const char *entry)
{
    size_t name = strcspn(entry, "=");
    char shown[64];

    if (entry[name] != '=')
        return;
    for (unsigned i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        if (strlen(variables[i].name) == name &&
            !memcmp(variables[i].name, entry, name)) {
            variables[i].set(entry + name + 1);
            return;
        }
    if (name >= sizeof(shown))
        name = sizeof(shown) - 1;
    memcpy(shown, entry, name);
    shown[name] = 0;
    log_warn("unknown variable %s in the environment: ignored", shown);
}

/*
 * secure_getenv cannot be asked: our constructor runs before libc has set its
 * environ. This is what it does.
 */
void config_read(char **environment)
{
    if (!environment || getauxval(AT_SECURE))
        return;
    for (; *environment; environment++)
        if (!strncmp(*environment, "LAPSE_", 6))
            read_one(*environment);
}
