/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data of an event by the layout it was registered with: fields
 * "name:type", a blank between them. Where the layout or the data end too
 * early, or a type is not known, the rest is shown as bytes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "lapse_trace.h"

struct field {
    const char *name;
    size_t name_length;
    char kind; /* u i x f s */
    size_t bytes;
};

/* The field at *layout, which is moved behind it. */
static bool field_read(const char **layout, struct field *f)
{
    const char *colon, *type;
    size_t length;

    *layout += strspn(*layout, " ");
    length = strcspn(*layout, " ");
    colon = memchr(*layout, ':', length);
    if (!colon || colon == *layout)
        return false;
    *f = (struct field){.name = *layout,
                        .name_length = (size_t)(colon - *layout)};
    type = colon + 1;
    *layout += length;
    length -= f->name_length + 1;
    if (length == 3 && !memcmp(type, "str", 3)) {
        f->kind = 's';
        return true;
    }
    if (length < 2 || length > 3 || !strchr("uixf", *type))
        return false;
    f->kind = *type;
    f->bytes = strtoul(type + 1, NULL, 10) / 8;
    return f->kind == 'f' ? f->bytes == 8
                          : f->bytes == 1 || f->bytes == 2 || f->bytes == 4 ||
                                f->bytes == 8;
}

/* Names and text are the program's: they must not drive the terminal. */
static void put_text(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];

        putc(c < 0x20 || c == 0x7f ? '?' : c, out);
    }
}

static void put_number(FILE *out, const struct field *f, const uint8_t *data,
                       bool json)
{
    uint64_t value = 0;
    double real;

    memcpy(&value, data, f->bytes);
    if (f->kind == 'f') {
        memcpy(&real, data, sizeof(real));
        /* JSON has no word for those that are no number */
        if (json && !(real - real == 0))
            fputs("null", out);
        else
            fprintf(out, "%.17g", real);
    } else if (f->kind == 'x') {
        fprintf(out, json ? "\"0x%" PRIx64 "\"" : "0x%" PRIx64, value);
    } else if (f->kind == 'u') {
        fprintf(out, "%" PRIu64, value);
    } else {
        unsigned shift = 64 - 8 * (unsigned)f->bytes;

        fprintf(out, "%" PRId64, (int64_t)(value << shift) >> shift);
    }
}

static void put_bytes(FILE *out, const uint8_t *data, size_t length)
{
    for (size_t i = 0; i < length; i++)
        fprintf(out, "%02x", data[i]);
}

static void put_field(FILE *out, const struct field *f, const uint8_t *data,
                      size_t length, bool json)
{
    if (json) {
        json_string(out, f->name, f->name_length);
        putc(':', out);
    } else {
        putc(' ', out);
        put_text(out, f->name, f->name_length);
        putc('=', out);
    }
    if (f->kind != 's')
        put_number(out, f, data, json);
    else if (json)
        json_string(out, (const char *)data, length);
    else
        put_text(out, (const char *)data, length);
}

/* As JSON: "fields":{...},"data":"hex of what no field says". */
void trace_print_event(FILE *out, const struct trace_user *user,
                       const struct trace_type *type, bool json)
{
    const uint8_t *data = (const uint8_t *)(user + 1);
    const char *layout = type ? type->layout : "";
    size_t left = user->len;
    struct field f;

    if (json)
        fputs("\"fields\":{", out);
    for (bool first = true; field_read(&layout, &f); first = false) {
        size_t length = f.kind == 's' ? left : f.bytes;

        if (length > left)
            break;
        if (json && !first)
            putc(',', out);
        put_field(out, &f, data, length, json);
        data += length;
        left -= length;
    }
    if (json)
        fputs("},\"data\":\"", out);
    else if (left)
        putc(' ', out);
    put_bytes(out, data, left);
    if (json)
        putc('"', out);
}
