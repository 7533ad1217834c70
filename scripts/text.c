/* SPDX-License-Identifier: BSD-3-Clause */
#include "text.h"

#include <inttypes.h>
#include <string.h>

void put_text(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];

        putc(c < 0x20 || c == 0x7f ? '?' : c, out);
    }
}

void put_name(FILE *out, const char *name)
{
    put_text(out, name, strlen(name));
}

const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

const char *human(uint64_t bytes, char text[16])
{
    static const char units[] = "BKMGTPE";
    double value = (double)bytes;
    size_t unit = 0;

    for (; value >= 1023.95 && units[unit + 1]; unit++)
        value /= 1024;
    if (!unit)
        snprintf(text, 16, "%" PRIu64, bytes);
    else if (value * 10 - (double)(uint64_t)value * 10 < 0.5)
        snprintf(text, 16, "%.0f%c", value, units[unit]);
    else
        snprintf(text, 16, "%.1f%c", value, units[unit]);
    return text;
}

const char *duration(uint64_t ns, char text[16])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double value = (double)ns;
    size_t unit = 0;

    for (; value >= 999.5 && unit < 3; unit++)
        value /= 1000;
    if (!unit || value >= 99.95)
        snprintf(text, 16, "%.0f %s", value, units[unit]);
    else
        snprintf(text, 16, "%.*f %s", value >= 9.995 ? 1 : 2, value,
                 units[unit]);
    return text;
}
