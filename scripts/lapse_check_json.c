/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of `lapse check` as one JSON document, a row a line. */
#include <inttypes.h>
#include <stdio.h>

#include "check.h"
#include "reports.h"

static const char *const verdicts[] = {
    [VERDICT_TOLD] = "told",           [VERDICT_KEPT] = "kept",
    [VERDICT_UNCOVERED] = "uncovered", [VERDICT_SILENT] = "not told",
    [VERDICT_SKIPPED] = "skipped",     [VERDICT_BROKEN] = "failed",
};

/* What is not ASCII, in names of files, becomes a question mark. */
static void put_string(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else
            putchar(*text < ' ' || *text > '~' ? '?' : *text);
    putchar('"');
}

void check_json_head(const struct check_table *table)
{
    fputs("{\n  \"version\": 1,\n  \"allocator\": ", stdout);
    if (table->allocator)
        put_string(table->allocator);
    else
        fputs("null", stdout);
    fputs(",\n  \"rows\": [", stdout);
}

static void put_reasons(uint32_t reasons)
{
    bool any = false;

    fputs("[", stdout);
    for (unsigned i = 0; i <= LAPSE_REASON_OVERFLOW; i++)
        if (reasons >> i & 1) {
            printf("%s\"%s\"", any ? ", " : "", reports_reason_name(i));
            any = true;
        }
    fputs("]", stdout);
}

static void put_done(const struct check_result *r)
{
    char judges[32];

    check_judges(r->by, judges);
    fputs(", \"seen_as\": ", stdout);
    if (r->path[0])
        put_string(r->path);
    else
        fputs("null", stdout);
    printf(", \"mechanism\": \"%s\", \"told\": \"%s\", \"reasons\": ",
           check_mechanism_name(r->mechanism), check_range_name(r->range));
    put_reasons(r->reasons);
    printf(", \"told_pages\": %" PRIu64 ", \"stale_pages\": %" PRIu64
           ", \"judged_pages\": %" PRIu64 ", \"disagreed_pages\": %" PRIu64
           ", \"judged_by\": \"%s\"", r->told, r->verdict.stale,
           r->verdict.judged, r->verdict.disagree, judges);
}

void check_json_row(const struct check_row *row, const struct check_result *r,
                    bool more)
{
    static const char *const outcomes[] = {"done", "skipped", "crashed",
                                           "hung", "trouble"};

    printf("%s\n    {\"name\": \"%s\", \"verdict\": \"%s\", \"outcome\": "
           "\"%s\", \"why\": ", more ? "," : "", row->name,
           verdicts[check_verdict(row, r)], outcomes[r->outcome]);
    put_string(r->why);
    if (r->outcome == CHECK_DONE)
        put_done(r);
    putchar('}');
}

void check_json_end(const struct check_table *table)
{
    printf("],\n  \"total\": {");
    for (unsigned i = 0; i <= VERDICT_BROKEN; i++)
        printf("%s\"%s\": %u", i ? ", " : "", verdicts[i], table->count[i]);
    printf("}\n}\n");
}
