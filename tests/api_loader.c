/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Modules that come and go: a storm of dlopen and dlclose whose constructors
 * and destructors release, join threads that release, and drain, while a
 * callback allocates; a subscriber's module that is closed while subscribed;
 * the library itself closed; and the program's dlerror().
 * Usage: api_loader [ROUNDS]
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include "api.h"

#define THREADS 2

static char module[4200];
static atomic_ulong calls, opened;
static int rounds;

static void count(const struct lapse_event *event, void *arg)
{
    (void)event;
    (void)arg;
    free(malloc(300000));
    atomic_fetch_add(&calls, 1);
}

static void *storm(void *unused)
{
    for (int i = 0; i < rounds; i++) {
        void *m = dlopen(module, i % 2 ? RTLD_NOW : RTLD_LAZY);
        int (*one)(void);

        *(void **)&one = m ? dlsym(m, "lib_joins_one") : NULL;
        if (m && one && one() == 1 && !dlclose(m))
            atomic_fetch_add(&opened, 1);
    }
    return unused;
}

static void test_storm(void)
{
    lapse_handle s = subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
    pthread_t thread[THREADS];

    for (int i = 0; i < THREADS; i++)
        need(!pthread_create(&thread[i], NULL, storm, NULL), "a thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    check(atomic_load(&opened) == (unsigned)(THREADS * rounds),
          "opened and closed %lu times, %lu callbacks meanwhile",
          atomic_load(&opened), atomic_load(&calls));
    check(!lapse_sync(s) && atomic_load(&calls) > 0, "it was called back");
    lapse_unsubscribe(s);
}

static bool is_loaded(void)
{
    void *m = dlopen(module, RTLD_NOW | RTLD_NOLOAD);

    if (m)
        dlclose(m);
    return m != NULL;
}

static void test_subscriber_closed(void)
{
    void *m = dlopen(module, RTLD_NOW);
    lapse_handle (*begin)(void), s;
    unsigned long *told, before;

    need(m != NULL, "dlopen");
    *(void **)&begin = dlsym(m, "lib_joins_subscribe");
    told = dlsym(m, "lib_joins_told");
    s = begin();
    dlclose(m);
    check(is_loaded(), "the module of a subscriber stays loaded");
    before = __atomic_load_n(told, __ATOMIC_RELAXED);
    munmap(fresh(PAGE), PAGE);
    check(!lapse_sync(s) && __atomic_load_n(told, __ATOMIC_RELAXED) > before,
          "and is called back");
    check(!lapse_unsubscribe(s) && !is_loaded(),
          "until it is no subscriber any more");
}

static void test_library_closed(void)
{
    lapse_handle s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    struct lapse_event event;
    char *p = fresh(PAGE);
    struct link_map *map;
    Dl_info info;
    void *m;

    need(dladdr1((void *)(uintptr_t)lapse_subscribe, &info, (void **)&map,
                 RTLD_DL_LINKMAP), "dladdr1");
    m = dlopen(map->l_name, RTLD_NOW);
    /* More often than it was opened: the loader must not take it away. */
    for (int i = 0; i < 3 && m; i++)
        dlclose(m);
    need(!lapse_watch(s, p, PAGE), "watch");
    munmap(p, PAGE);
    check(lapse_poll(s, &event, 1) == 1 && event_overlaps(&event, p, PAGE),
          "closed itself, the library works on");
    lapse_unsubscribe(s);
}

/* Hooks, and what makes no module known, leave it as it is. */
static void test_dlerror(void)
{
    lapse_handle s = subscribe(LAPSE_POLL, 0, NULL, NULL);
    struct lapse_event event;
    char *p = fresh(PAGE);
    const char *error;

    dlopen("libnone-such.so", RTLD_NOW);
    lapse_watch(s, p, PAGE);
    munmap(p, PAGE);
    lapse_poll(s, &event, 1);
    lapse_unsubscribe(s);
    s = subscribe(LAPSE_CALLBACK, LAPSE_ALL, count, NULL);
    lapse_unsubscribe(s);
    error = dlerror();
    check(error && strstr(error, "libnone-such.so"),
          "dlerror still tells of the program's error");
}

int main(int argc, char **argv)
{
    ssize_t n = readlink("/proc/self/exe", module, 4096);

    rounds = argc > 1 ? atoi(argv[1]) : 100;
    while (n > 0 && module[n - 1] != '/')
        n--;
    strcpy(module + n, "victims/lib_joins.so");
    test_storm();
    test_subscriber_closed();
    test_library_closed();
    test_dlerror();
    return api_end();
}
