/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

static bool find_beside(const char *program_dir, char library[PATH_MAX])
{
    static const char *const places[] = {
        "", "/../lib", "/../lib64",
#ifdef __x86_64__
        "/../lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
        "/../lib/aarch64-linux-gnu",
#endif
    };
    static const char *const names[] = {"liblapse.so.0", "liblapse.so"};
    char path[PATH_MAX], dir[PATH_MAX];

    for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
            if (snprintf(path, sizeof(path), "%s%s", program_dir, places[p]) >=
                    PATH_MAX || !realpath(path, dir) ||
                snprintf(library, PATH_MAX, "%s/%s", dir, names[n]) >=
                    PATH_MAX)
                continue;
            if (!access(library, R_OK))
                return true;
        }
    }
    return false;
}

int preload_find(char library[PATH_MAX])
{
    const char *named = getenv("LAPSE_LIBRARY");
    char self[PATH_MAX], *slash;
    ssize_t length;

    if (named && *named) {
        if (!realpath(named, library) || access(library, R_OK)) {
            say("cannot read the library that LAPSE_LIBRARY names, '%s': %s",
                named, strerror(errno));
            return EXIT_TROUBLE;
        }
    } else {
        length = readlink("/proc/self/exe", self, sizeof(self) - 1);
        self[length > 0 ? length : 0] = 0;
        slash = strrchr(self, '/');
        if (slash)
            *slash = 0;
        if (!slash || !find_beside(self, library)) {
            say("liblapse.so.0 is neither beside this program (%s) nor in "
                "../lib: build it with 'make', or say where it is with "
                "LAPSE_LIBRARY=/path/to/liblapse.so", slash ? self : "?");
            return EXIT_TROUBLE;
        }
    }
    /* The loader splits LD_PRELOAD at these and knows no quoting. */
    if (!strpbrk(library, ": \t\n$"))
        return 0;
    say("the library cannot be preloaded from '%s': LD_PRELOAD takes no path "
        "with a space, ':' or '$'; link to it elsewhere and set "
        "LAPSE_LIBRARY", library);
    return EXIT_TROUBLE;
}

/* NAME=VALUE, with the value there is behind or before it. */
static char *variable(const char *name, const char *value, bool behind)
{
    const char *now = getenv(name);
    bool join = now && *now;
    size_t length = strlen(name) + strlen(value) + 3 + (join ? strlen(now) : 0);
    char *text = malloc(length);

    if (text && !join)
        snprintf(text, length, "%s=%s", name, value);
    else if (text)
        snprintf(text, length, "%s=%s:%s", name, behind ? now : value,
                 behind ? value : now);
    return text;
}

static bool is_variable(const char *entry, const char *variable)
{
    size_t length = strcspn(variable, "=") + 1;

    return !strncmp(entry, variable, length);
}

bool preload_environment_make(struct preload_environment *e,
                              const char *library, const char *dir, bool asan)
{
    size_t count = 0, used = 0, own = 0;

    memset(e, 0, sizeof(*e));
    unsetenv("LAPSE_REPORT"); /* replaced, not joined: we may be in a run */
    e->ours[own++] = variable("LD_PRELOAD", library, false);
    if (dir)
        e->ours[own++] = variable("LAPSE_REPORT", dir, false);
    /* It would refuse to start behind us, though it does no harm there. */
    if (asan)
        e->ours[own++] =
            variable("ASAN_OPTIONS", "verify_asan_link_order=0", true);
    for (size_t i = 0; i < own; i++)
        if (!e->ours[i])
            return false;
    while (environ[count])
        count++;
    e->all = calloc(count + own + 1, sizeof(*e->all));
    if (!e->all)
        return false;
    for (char **entry = environ; *entry; entry++) {
        bool replaced = false;

        for (size_t i = 0; i < own; i++)
            replaced |= is_variable(*entry, e->ours[i]);
        if (!replaced)
            e->all[used++] = *entry;
    }
    for (size_t i = 0; i < own; i++)
        e->all[used++] = e->ours[i];
    return true;
}

void preload_environment_free(struct preload_environment *e)
{
    free(e->all);
    for (size_t i = 0; i < PRELOAD_VARIABLES; i++)
        free(e->ours[i]);
}
