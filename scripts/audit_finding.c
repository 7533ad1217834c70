/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Findings are few (places in code), what is counted at them may be much:
 * each move to the front of its list makes the next look-up short.
 */
#include <stdlib.h>
#include <string.h>

#include "audit.h"

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* Code made at run time stands elsewhere in each process: one finding. */
static bool is_same(const struct audit_finding *a,
                    const struct audit_finding *b)
{
    return a->call == b->call && (!a->module || a->at == b->at) &&
           same_text(a->module, b->module) && !strcmp(a->program, b->program);
}

static struct audit_finding *finding_new(const struct audit_finding *like)
{
    struct audit_finding *finding = malloc(sizeof(*finding));

    if (!finding)
        return NULL;
    *finding = *like;
    finding->count = 0;
    finding->program = strdup(like->program);
    finding->module = like->module ? strdup(like->module) : NULL;
    if (finding->program && (finding->module || !like->module))
        return finding;
    free(finding->program);
    free(finding->module);
    free(finding);
    return NULL;
}

void audit_find(struct audit *audit, const struct audit_finding *like)
{
    struct audit_finding **link = &audit->findings, *finding;

    audit->unseen++;
    while (*link && !is_same(*link, like))
        link = &(*link)->next;
    finding = *link;
    if (finding) {
        *link = finding->next;
    } else {
        finding = finding_new(like);
        if (!finding) {
            audit->lost++;
            return;
        }
        audit->findings_count++;
    }
    finding->count++;
    finding->next = audit->findings;
    audit->findings = finding;
}

void audit_find_blind(struct audit *audit, const char *program,
                      uint64_t count)
{
    struct audit_blind *blind = audit->blinds;

    audit->unseen += count;
    while (blind && strcmp(blind->program, program))
        blind = blind->next;
    if (!blind) {
        blind = calloc(1, sizeof(*blind));
        if (blind)
            blind->program = strdup(program);
        if (!blind || !blind->program) {
            free(blind);
            audit->lost++;
            return;
        }
        blind->next = audit->blinds;
        audit->blinds = blind;
    }
    blind->count += count;
    blind->processes++;
}

static int order(const void *left, const void *right)
{
    const struct audit_finding *a = *(const struct audit_finding *const *)left;
    const struct audit_finding *b =
        *(const struct audit_finding *const *)right;

    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

void audit_findings_sort(struct audit *audit)
{
    size_t n = audit->findings_count;
    struct audit_finding **all = calloc(n + 1, sizeof(*all));

    if (!all)
        return; /* as they came */
    for (size_t i = 0; i < n; i++) {
        all[i] = audit->findings;
        audit->findings = all[i]->next;
    }
    qsort(all, n, sizeof(*all), order);
    for (size_t i = n; i > 0; i--) {
        all[i - 1]->next = audit->findings;
        audit->findings = all[i - 1];
    }
    free(all);
}

void audit_findings_free(struct audit *audit)
{
    while (audit->findings) {
        struct audit_finding *finding = audit->findings;

        audit->findings = finding->next;
        free(finding->program);
        free(finding->module);
        free(finding);
    }
    while (audit->blinds) {
        struct audit_blind *blind = audit->blinds;

        audit->blinds = blind->next;
        free(blind->program);
        free(blind);
    }
}
