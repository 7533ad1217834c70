/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Opens and closes a library, whose constructor and destructor release memory,
 * again and again; also by RTLD_DEEPBIND and in a namespace of its own (a
 * second libc). What the loader says of errors stays what it was.
 * Usage: dlopens [TIMES]
 */
#include <dlfcn.h>
#include <pthread.h>

#include "victim.h"

#define SPACES 10 /* glibc has room for 16, and keeps some */

/*
 * Uses and closes; 0 if anything was not as it should be. Not alone: another
 * thread may have got the address of the page that the destructor unmapped.
 */
static int use(void *handle, int alone)
{
    void (*take)(char *);
    char *page = fresh(PAGE);
    int *state;

    if (!handle)
        return 0;
    *(void **)&take = dlsym(handle, "lib_release_take");
    state = dlsym(handle, "lib_release_state");
    if (!take || !state || *state != 42)
        return 0;
    take(page);
    return dlclose(handle) == 0 && !(alone && is_mapped(page));
}

static void *spinner(void *stop)
{
    while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
        char *p = fresh(2 * PAGE);

        munmap(p, 2 * PAGE);
        churn(200000);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 1000;
    const char *library = beside("lib_release.so");
    char *address;
    Dl_info info;
    int good = 1, deep = 1, spaces = 1, stop = 0;
    pthread_t thread;

    for (int i = 0; i < times; i++)
        good &= use(dlopen(library, i % 2 ? RTLD_NOW : RTLD_LAZY), 1);
    if (!good)
        printf("dlerror: %s\n", dlerror());
    check(good, "dlopen and dlclose");

    pthread_create(&thread, NULL, spinner, &stop);
    for (int i = 0; i < 100; i++)
        deep &= use(dlopen(library, RTLD_NOW | RTLD_DEEPBIND), 0);
    check(deep, "RTLD_DEEPBIND while a thread releases");
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);

    for (int i = 0; i < SPACES; i++)
        spaces &= use(dlmopen(LM_ID_NEWLM, library, RTLD_NOW), 1);
    if (!spaces)
        printf("dlerror: %s\n", dlerror());
    check(spaces, "dlmopen");

    check(dlerror() == NULL, "no error is left behind");
    check(dlopen("libnone-such.so", RTLD_NOW) == NULL, "no such library");
    printf("dlerror: %s\n", dlerror());
    check(dlsym(RTLD_DEFAULT, "none_such") == NULL, "no such symbol");
    address = dlerror();
    printf("dlerror: %s\n", address ? strrchr(address, ':') : "none");
    address = dlsym(RTLD_NEXT, "munmap");
    check(address && dladdr(address, &info) &&
              strstr(info.dli_fname, "libc.so.6") != NULL,
          "RTLD_NEXT munmap is libc's");
    check(address == (char *)dlsym(RTLD_DEFAULT, "munmap"),
          "RTLD_DEFAULT munmap is the same");
    return victim_end();
}
