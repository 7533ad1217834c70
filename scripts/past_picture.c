/* SPDX-License-Identifier: BSD-3-Clause */
/* The past as one page of HTML that needs nothing from anywhere. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "past.h"
#include "picture.h"
#include "reports.h"
#include "text.h"

enum { SHOWN = 6 }; /* processes */

static const char style[] =
    "body{font:13px/1.4 system-ui,sans-serif;margin:16px;color:#222;"
    "background:#fff;max-width:1210px}\n"
    "h2{font-size:17px;margin:0}p{margin:2px 0 8px;color:#555}\n"
    "code{background:#f3f3f3;padding:0 3px}\n"
    ".n{display:flex;gap:26px;margin:8px 0 4px}.n b{display:block;"
    "font-size:20px;font-weight:600}.n span{color:#555;font-size:12px}\n"
    ".n .bad b{color:#c00}\n"
    "svg{display:block}svg text{font:11px system-ui,sans-serif;fill:#222}\n"
    "svg text.m{fill:#777;font-size:10px}svg .z{fill:#f5f5f3}\n"
    "svg .w{fill:#6aa3d8;fill-opacity:.22;stroke:#4d86bd;"
    "stroke-opacity:.45;stroke-width:.5}\n"
    "svg circle.h{fill:none;stroke:#d00;stroke-width:1.6}"
    "svg rect.h{stroke:#d00;stroke-width:1}\n"
    "svg .f{fill:#fff}svg .v{fill:#000;fill-opacity:.07}"
    "svg rect.d{fill:#e33;stroke:#d00;stroke-width:.6}\n"
    "svg .aw{fill:#6aa3d8;fill-opacity:.6}svg .ap{fill:#d98c3f;"
    "fill-opacity:.75}svg .o{fill:#000}svg .u{fill:#7a3fb5}\n"
    "svg .g{stroke:#000;stroke-opacity:.1;pointer-events:none}"
    "svg text.c{font-size:10.5px;paint-order:stroke;stroke:#fff;"
    "stroke-width:3px;stroke-opacity:.85;pointer-events:none}\n"
    "svg rect:hover{stroke:#000;stroke-width:1}\n"
    ".l{margin:6px 0 14px 220px;color:#555}.l i{display:inline-block;"
    "width:11px;height:11px;margin:0 4px -1px 14px}\n"
    "table{border-collapse:collapse;margin:0 0 28px}"
    "td,th{padding:2px 10px 2px 0;text-align:right;white-space:nowrap}"
    "th{font-weight:400;color:#777}td.t,th.t{text-align:left}"
    "td.b div{background:#9ab;height:9px}\n";

const char *picture_colour(unsigned reason)
{
    static const char *const colours[PAST_REASONS] = {
        [LAPSE_REASON_MUNMAP] = "#3b6fb6",   [LAPSE_REASON_REPLACE] = "#e08214",
        [LAPSE_REASON_MREMAP] = "#8e5bb5",   [LAPSE_REASON_BRK] = "#3f9b4f",
        [LAPSE_REASON_SHMDT] = "#c64f8e",    [LAPSE_REASON_MADVISE] = "#c9a100",
        [LAPSE_REASON_UNLOAD] = "#8c5a3c",   [LAPSE_REASON_FILE] = "#2aa5a5",
        [LAPSE_REASON_FREE] = "#999999",     [LAPSE_REASON_USER] = "#d66f6f",
        [LAPSE_REASON_OVERFLOW] = "#000000",
    };

    return colours[reason < PAST_REASONS ? reason : LAPSE_REASON_OVERFLOW];
}

/* What is no ASCII is shown as '?': it need not be UTF-8. */
void put_xml(FILE *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '<')
            fputs("&lt;", out);
        else if (c == '&')
            fputs("&amp;", out);
        else if (c == '"')
            fputs("&quot;", out);
        else
            putc(c < 0x20 || c > 0x7e ? '?' : c, out);
    }
}

void picture_label(struct picture *p, double y, const char *text,
                   const char *more)
{
    fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
            PICTURE_LEFT - 8, y);
    put_xml(p->out, text);
    fputs("</text>", p->out);
    if (!more)
        return;
    fprintf(p->out,
            "<text class=\"m\" x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">",
            PICTURE_LEFT - 8, y + 12);
    put_xml(p->out, more);
    fputs("</text>", p->out);
}

static void number(FILE *out, const char *class, const char *what,
                   const char *value)
{
    fprintf(out, "<div class=\"%s\"><b>%s</b><span>%s</span></div>", class,
            value, what);
}

static void count(FILE *out, const char *class, const char *what,
                  uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    number(out, class, what, text);
}

static void put_numbers(FILE *out, const struct past_process *p)
{
    uint64_t overflows = 0, untold = 0, wait = 0;
    char text[16];

    for (unsigned i = 0; i < PAST_SUBSCRIBERS; i++) {
        overflows += p->subscriber[i].overflows;
        untold += p->subscriber[i].untold;
        if (p->subscriber[i].most > wait)
            wait = p->subscriber[i].most;
    }
    fputs("<div class=\"n\">", out);
    count(out, "", "releases", p->sum.count);
    number(out, "", "released", human(p->sum.bytes, text));
    count(out, "", "inside an allocator", p->sum.inside[1]);
    count(out, "", "inside the loader", p->sum.inside[2]);
    if (p->watches || p->sum.hits) {
        count(out, "", "watches", p->watches);
        count(out, "", "records for subscribers", p->sum.hits);
        number(out, "", "longest until told", duration(wait, text));
    }
    if (untold)
        count(out, "", "not told in this trace", untold);
    if (overflows)
        count(out, "bad", "OVERFLOW", overflows);
    if (p->overwritten)
        count(out, "bad", "records overwritten before", p->overwritten);
    if (p->head.lost)
        count(out, "bad", "records without a ring", p->head.lost);
    fputs("</div>\n", out);
}

static void put_head(FILE *out, const struct past_process *p)
{
    time_t seconds = (time_t)(p->head.start.realtime / 1000000000u);
    char when[64] = "", span[16];
    struct tm tm;

    if (gmtime_r(&seconds, &tm))
        strftime(when, sizeof(when), "%F %T UTC", &tm);
    fputs("<h2>", out);
    put_xml(out, p->head.name);
    fprintf(out, " (pid %" PRIu32 ")</h2><p><code>", p->head.pid);
    put_xml(out, p->head.arguments);
    fprintf(out, "</code> from %s, %s%s</p>\n", when,
            duration(p->last - p->begin, span),
            p->head.ended ? ", until it ended" : "; it did not end by exit");
}

static void put_legend(FILE *out, const struct past_process *p)
{
    bool seen[PAST_REASONS] = {false};

    for (unsigned path = 0; path < LAPSE_PATH_COUNT; path++)
        for (unsigned reason = 0; reason < PAST_REASONS; reason++)
            if (p->by[path][reason].count && path != LAPSE_PATH_FREE)
                seen[reason] = true;
    fputs("<div class=\"l\">", out);
    for (unsigned reason = 0; reason < PAST_REASONS; reason++)
        if (seen[reason])
            fprintf(out, "<i style=\"background:%s\"></i>%s",
                    picture_colour(reason), reports_reason_name(reason));
    if (p->watches)
        fputs("<i style=\"background:#6aa3d866;outline:1px solid "
              "#4d86bd88\"></i>watched<i style=\"border:2px solid #d00;"
              "border-radius:50%;width:7px;height:7px\"></i>hit: released "
              "while watched",
              out);
    fputs(". Wider: more bytes. Unused addresses are folded.</div>\n", out);
}

static void put_aside(FILE *out, const struct past_caller *c,
                      const struct past_frame *f, const struct past_frame *via)
{
    fputs(" <span style=\"color:#888\">", out);
    if (f->symbol && f->module)
        put_xml(out, base_name(f->module));
    if (c->via != c->frame && via->symbol) {
        fputs(" by ", out);
        put_xml(out, via->symbol);
    }
    fputs("</span>", out);
}

static void put_callers(FILE *out, const struct past *past,
                        struct past_process *p, size_t top)
{
    char bytes[16], room[512];
    double most;

    past_sort_callers(p, PAST_BY_BYTES);
    if (!p->callers || !top)
        return;
    most = (double)p->caller[0].sum.bytes;
    fputs("<table><tr><th class=\"t\">callers by bytes<th class=\"t\">path"
          "<th>releases<th>bytes<th>",
          out);
    fputs(p->sum.hits ? "<th>hits\n" : "\n", out);
    for (size_t i = 0; i < p->callers && i < top; i++) {
        const struct past_caller *c = &p->caller[i];
        const struct past_frame *f = &past->frame[c->frame];

        fputs("<tr><td class=\"t\">", out);
        put_xml(out, past_frame_name(f, room, sizeof(room)));
        put_aside(out, c, f, &past->frame[c->via]);
        fprintf(out,
                "<td class=\"t\">%s<td>%" PRIu64 "<td>%s<td class=\"b\">"
                "<div style=\"width:%.0fpx\"></div>",
                reports_path_name(c->path), c->sum.count,
                human(c->sum.bytes, bytes),
                most > 0 ? 1 + 200 * (double)c->sum.bytes / most : 0);
        if (p->sum.hits)
            fprintf(out, "<td>%" PRIu64, c->sum.hits);
        putc('\n', out);
    }
    fputs("</table>\n", out);
}

/* The height is known when all is drawn: it is drawn aside. */
static void put_drawing(struct picture *p, FILE *out)
{
    char *text[2] = {NULL, NULL};
    size_t size[2];
    double bottom;

    p->out = open_memstream(&text[0], &size[0]);
    p->over = open_memstream(&text[1], &size[1]);
    if (!p->out || !p->over)
        return;
    picture_time(p);
    picture_lanes(p);
    picture_space(p);
    bottom = p->y;
    picture_axis(p, bottom);
    fclose(p->out);
    fclose(p->over);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
            "height=\"%.0f\">\n",
            PICTURE_LEFT + PICTURE_WIDTH + PICTURE_RIGHT, bottom + 22);
    fwrite(text[0], 1, size[0], out);
    fwrite(text[1], 1, size[1], out);
    fputs("</svg>\n", out);
    free(text[0]);
    free(text[1]);
}

static void put_process(const struct past *past, struct past_process *process,
                        FILE *out, size_t top)
{
    struct picture p = {.past = past, .process = process};

    put_head(out, process);
    put_numbers(out, process);
    put_drawing(&p, out);
    put_legend(out, process);
    put_callers(out, past, process, top);
}

void past_picture(struct past *past, FILE *out, size_t top)
{
    size_t n = past->processes < SHOWN ? past->processes : SHOWN;

    if (past->processes)
        qsort(past->process, past->processes, sizeof(*past->process), past_rank);
    fprintf(out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta "
            "charset=\"utf-8\"><title>lapse report</title>\n<style>%s"
            "</style></head><body>\n",
            style);
    for (size_t i = 0; i < n; i++)
        if (past->process[i]->events || n == 1)
            put_process(past, past->process[i], out, top);
    if (n < past->processes)
        fprintf(out, "<p>%zu more processes, which released less</p>\n",
                past->processes - n);
    fputs("</body></html>\n", out);
}
