/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdint.h>
#include <string.h>

#include "json.h"

/* Length of the well-formed UTF-8 character at s, 0 when it is none. */
static size_t utf8_length(const unsigned char *s, size_t left)
{
    uint32_t value;
    size_t length = s[0] < 0x80   ? 1
                    : s[0] < 0xc2 ? 0
                    : s[0] < 0xe0 ? 2
                    : s[0] < 0xf0 ? 3
                    : s[0] < 0xf5 ? 4
                                  : 0;

    if (length <= 1 || length > left)
        return length > left ? 0 : length;
    value = s[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (s[i] & 0x3f);
    }
    if ((length == 3 && (value < 0x800 || (value >> 11) == 0x1b)) ||
        (length == 4 && (value < 0x10000 || value > 0x10ffff)))
        return 0;
    return length;
}

/*
 * A byte that is no UTF-8 becomes the lone surrogate U+DC00 + byte, as in
 * Python's surrogateescape: the document stays valid, nothing is lost.
 */
void json_string(FILE *out, const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;

    putc('"', out);
    for (size_t i = 0, n; i < length; i += n) {
        n = utf8_length(s + i, length - i);
        if (!n) {
            fprintf(out, "\\udc%02x", s[i]);
            n = 1;
        } else if (s[i] == '"' || s[i] == '\\') {
            fprintf(out, "\\%c", s[i]);
        } else if (s[i] < 0x20 || s[i] == 0x7f) {
            fprintf(out, "\\u%04x", s[i]);
        } else {
            fwrite(s + i, 1, n, out);
        }
    }
    putc('"', out);
}

void json_string_or_null(FILE *out, const char *text)
{
    if (text)
        json_string(out, text, strlen(text));
    else
        fputs("null", out);
}
