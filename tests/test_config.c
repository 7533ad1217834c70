/* SPDX-License-Identifier: BSD-3-Clause */
/* Made-up environments, and what is said on stderr about them. */
#include "shim/config.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char said[4096];

/* Read this environment; what was printed is then in said[]. */
static void read_with(char **environment)
{
    int to = memfd_create("stderr", MFD_CLOEXEC), old = dup(2);
    ssize_t n;

    dup2(to, 2);
    config_read(environment);
    dup2(old, 2);
    n = pread(to, said, sizeof(said) - 1, 0);
    said[n > 0 ? n : 0] = 0;
    close(to);
    close(old);
}

static void read_one(const char *entry)
{
    char *environment[] = {(char *)entry, NULL};

    read_with(environment);
}

static unsigned lines(void)
{
    unsigned n = 0;

    for (const char *p = said; *p; p++)
        n += *p == '\n';
    return n;
}

Test(config, has_defaults)
{
    char *environment[] = {(char *)"PATH=/bin", (char *)"XLAPSE_RECORDS=64",
                           (char *)"LAPSE=1", (char *)"", NULL};

    read_with(NULL);
    read_with(environment);
    cr_assert_eq(lapse_config.records, 4096);
    cr_assert_null(lapse_config.report);
    cr_assert_str_empty(said);
}

Test(config, takes_values)
{
    char *environment[] = {(char *)"LAPSE_RECORDS=100",
                           (char *)"LAPSE_REPORT=/tmp/x=y",
                           (char *)"LAPSE_LIBRARY=/lib/l.so", NULL};

    read_with(environment);
    cr_assert_eq(lapse_config.records, 100);
    cr_assert_str_eq(lapse_config.report, "/tmp/x=y");
    cr_assert_str_empty(said);
}

Test(config, takes_the_edges)
{
    read_one("LAPSE_RECORDS=64");
    cr_assert_eq(lapse_config.records, 64);
    read_one("LAPSE_RECORDS=1048576");
    cr_assert_eq(lapse_config.records, 1048576);
    cr_assert_str_empty(said);
}

Test(config, warns_of_a_bad_number_and_keeps_the_default)
{
    static const char *const bad[] = {
        "LAPSE_RECORDS=",
        "LAPSE_RECORDS=63",
        "LAPSE_RECORDS=1048577",
        "LAPSE_RECORDS=-64",
        "LAPSE_RECORDS=+64",
        "LAPSE_RECORDS= 64",
        "LAPSE_RECORDS=64k",
        "LAPSE_RECORDS=0x64",
        "LAPSE_RECORDS=18446744073709551680", /* 2^64 + 64 */
        "LAPSE_RECORDS=99999999999999999999999999999999",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        read_one(bad[i]);
        cr_expect_eq(lapse_config.records, 4096, "%s", bad[i]);
        cr_expect_eq(lines(), 1, "%s: %s", bad[i], said);
        cr_expect(strstr(said, bad[i]), "%s is not named: %s", bad[i], said);
    }
}

Test(config, takes_seconds_of_the_watchdog)
{
    static const char *const bad[] = {"LAPSE_WATCHDOG=", "LAPSE_WATCHDOG=-1",
                                      "LAPSE_WATCHDOG=1s",
                                      "LAPSE_WATCHDOG=1000001"};

    read_one("LAPSE_WATCHDOG=1000000");
    cr_assert_eq(lapse_config.watchdog, 1000000);
    read_one("LAPSE_WATCHDOG=0");
    cr_assert_eq(lapse_config.watchdog, 0);
    cr_assert_str_empty(said);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        read_one(bad[i]);
        cr_expect_eq(lapse_config.watchdog, 0, "%s", bad[i]);
        cr_expect_eq(lines(), 1, "%s: %s", bad[i], said);
        cr_expect(strstr(said, bad[i]), "%s is not named: %s", bad[i], said);
    }
}

Test(config, warns_of_an_empty_report)
{
    read_one("LAPSE_REPORT=");
    cr_assert_null(lapse_config.report);
    cr_assert_eq(lines(), 1);
    cr_assert(strstr(said, "LAPSE_REPORT"));
}

Test(config, warns_of_an_unknown_name)
{
    char *environment[] = {(char *)"LAPSE_RECORD=64",
                           (char *)"LAPSE_RECORDSS=64", (char *)"LAPSE_=1",
                           (char *)"LAPSE_RECORDS=128", NULL};

    read_with(environment);
    cr_assert_eq(lapse_config.records, 128);
    cr_assert_eq(lines(), 3, "%s", said);
    cr_assert(strstr(said, "LAPSE_RECORD "));
    cr_assert(strstr(said, "LAPSE_RECORDSS "));
    cr_assert(strstr(said, "LAPSE_ "));
}

Test(config, cuts_a_long_unknown_name)
{
    char entry[600] = "LAPSE_";

    memset(entry + 6, 'Z', 500);
    strcat(entry, "=1");
    read_one(entry);
    cr_assert_eq(lines(), 1);
    cr_assert(strstr(said, "LAPSE_ZZZ"));
    cr_assert_lt(strlen(said), 400);
}
