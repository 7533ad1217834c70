/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows: what the loader releases, and what libraries of its other kinds do. */
#include "check_loader.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check_memory.h"
#include "check_plugin.h"

static bool plugin_write(struct scene *s)
{
    size_t size = (size_t)(check_plugin_file_end - check_plugin_file);

    s->fd = memfd_create("lapse-check-plugin", MFD_CLOEXEC);
    return done(s, s->fd >= 0 && write(s->fd, check_plugin_file, size) ==
                                     (ssize_t)size, "memfd_create");
}

/* Two opens of one name give one library, so the name is the same one. */
static bool plugin_open(struct scene *s, bool another_namespace, int flags)
{
    char name[32];

    snprintf(name, sizeof(name), "/proc/self/fd/%d", s->fd);
    if (another_namespace)
        s->library = dlmopen(LM_ID_NEWLM, name, RTLD_NOW);
    else
        s->library = dlopen(name, RTLD_NOW | flags);
    if (!s->library)
        snprintf(s->why, sizeof(s->why), "%s", dlerror());
    return s->library;
}

bool dlclose_setup(struct scene *s)
{
    if (!plugin_write(s) || !plugin_open(s, false, 0))
        return false;
    s->addr = dlsym(s->library, "check_plugin_memory");
    return done(s, s->addr, "dlsym");
}

bool dlclose_release(struct scene *s)
{
    return done(s, !dlclose(s->library), "dlclose");
}

/* The library may come back to where it was; somebody else does if not. */
void dlclose_give_back(struct scene *s)
{
    plugin_open(s, false, 0);
    give_back_by_mmap(s);
}

static bool plugin_setup(struct scene *s, bool another_namespace, int flags)
{
    if (!plugin_write(s) || !plugin_open(s, another_namespace, flags))
        return false;
    return anonymous_setup(s);
}

bool deepbind_setup(struct scene *s)
{
    return plugin_setup(s, false, RTLD_DEEPBIND);
}

bool dlmopen_setup(struct scene *s)
{
    return plugin_setup(s, true, 0);
}

bool plugin_release(struct scene *s)
{
    int (*release)(void *, size_t) = dlsym(s->library, "check_plugin_release");

    return done(s, release && !release(s->named, s->named_len),
                "munmap of the library");
}
