/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lapse-cp: copy files through malloc'ed buffers that an io_uring reads into
 * and writes from as fixed buffers. What it is for: a program that mallocs
 * and frees its buffers as any program does, without keeping track of which
 * of them are registered. The cache does that.
 */
#include "lapse_cp.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "rcache/lapse_rcache_backends.h"

static const char help[] =
"usage: lapse-cp [options] FROM TO\n"
"       lapse-cp [options] FROM... DIRECTORY\n"
"\n"
"Copies regular files through buffers from malloc, with fixed-buffer reads\n"
"and writes of an io_uring. Buffers are registered by the registration cache.\n"
"Holes are left holes; permissions are those of FROM, less the umask.\n"
"\n"
"  -b, --buffer N   bytes of a buffer (262144, up to 67108864)\n"
"  -d, --depth N    buffers in use at a time (8, up to 64)\n"
"  -v, --verbose    say what was copied, and what the cache did\n"
"  -h, --help       this text\n"
"\n"
"Exit status: 0 when all was copied; 1 when not, and why is printed; 2 for bad\n"
"usage.\n";

bool complain(const char *name, const char *what)
{
    fprintf(stderr, "lapse-cp: %s: %s\n", name, what);
    return false;
}

void complain_of_pinning(int err)
{
    struct rlimit limit = {0};

    if (err != -ENOMEM) {
        complain("a buffer cannot be registered", strerror(-err));
        return;
    }
    getrlimit(RLIMIT_MEMLOCK, &limit);
    fprintf(stderr, "lapse-cp: not enough memory may be pinned: the limit is "
            "%lu KiB. Raise it (ulimit -l), or take a smaller --buffer\n",
            (unsigned long)limit.rlim_cur >> 10);
}

static bool is_directory(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool copy_into(struct copier *how, const char *from, const char *to)
{
    const char *base = strrchr(from, '/');
    char path[4096];
    const char *slash = to[strlen(to) - 1] == '/' ? "" : "/";
    int n = snprintf(path, sizeof(path), "%s%s%s", to, slash,
                     base ? base + 1 : from);

    if (n >= (int)sizeof(path))
        return complain(from, strerror(ENAMETOOLONG));
    return copy_file(how, from, path);
}

static bool copy_all(struct copier *how, int n, char **from, const char *to)
{
    bool ok = true, into = is_directory(to);

    if (n > 1 && !into)
        return complain(to, "is not a directory");
    for (int i = 0; i < n; i++)
        ok &= into ? copy_into(how, from[i], to) : copy_file(how, from[i], to);
    return ok;
}

static void say_stats(lapse_rcache *cache)
{
    struct lapse_rcache_stats s = {.size = sizeof(s)};

    lapse_rcache_stats(cache, &s);
    printf("cache: %llu hits, %llu misses, %llu invalidated, %llu evicted\n",
           (unsigned long long)s.hits, (unsigned long long)s.misses,
           (unsigned long long)s.invalidated, (unsigned long long)s.evicted);
}

static bool number(const char *text, size_t most, size_t *out)
{
    char *end;

    *out = strtoull(text, &end, 10);
    return *text >= '1' && *text <= '9' && !*end && *out <= most;
}

static int usage(const char *what)
{
    fprintf(stderr, "lapse-cp: %s; see lapse-cp --help\n", what);
    return 2;
}

/* -1, or the exit status. */
static int parse(int argc, char **argv, struct copier *how)
{
    static const struct option longs[] = {
        {"buffer", required_argument, NULL, 'b'},
        {"depth", required_argument, NULL, 'd'},
        {"verbose", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    size_t n;

    for (int c; (c = getopt_long(argc, argv, "b:d:vh", longs, NULL)) != -1;) {
        if (c == 'h') {
            fputs(help, stdout);
            return 0;
        } else if (c == 'b' && number(optarg, BUFFER_MOST, &n)) {
            how->buffer_bytes = n;
        } else if (c == 'd' && number(optarg, DEPTH_MOST, &n)) {
            how->depth = (unsigned)n;
        } else if (c == 'v') {
            how->verbose = true;
        } else if (c == '?') {
            return usage("no such option");
        } else {
            return usage(c == 'b' ? "--buffer wants 1 to 67108864"
                                  : "--depth wants 1 to 64");
        }
    }
    return argc - optind < 2 ? usage("FROM and TO are wanted") : -1;
}

static const char *hint(int err)
{
    if (err == -ENOSYS)
        return " (this kernel has it not, or a seccomp filter, of a container "
               "perhaps, hides it)";
    if (err == -EPERM || err == -EACCES)
        return " (sysctl kernel.io_uring_disabled, or a seccomp filter, of a "
               "container perhaps, forbids it)";
    return err == -EINVAL ? " (it needs Linux 5.19)" : "";
}

static int start(struct copier *how, struct lapse_rcache_ops *ops)
{
    int err = ring_open(&how->ring, DEPTH_MOST);

    if (!err)
        err = lapse_rcache_uring_open(how->ring.fd, 2 * DEPTH_MOST, ops);
    if (!err)
        err = lapse_rcache_create(ops, NULL, &how->cache);
    if (err)
        fprintf(stderr, "lapse-cp: io_uring: %s%s\n", strerror(-err),
                hint(err));
    return err;
}

int main(int argc, char **argv)
{
    struct copier how = {.buffer_bytes = 256 << 10, .depth = 8};
    struct lapse_rcache_ops ops;
    int status = parse(argc, argv, &how);
    bool ok;

    if (status >= 0)
        return status;
    if (start(&how, &ops))
        return 1;
    ok = copy_all(&how, argc - optind - 1, argv + optind, argv[argc - 1]);
    if (how.verbose)
        say_stats(how.cache);
    lapse_rcache_destroy(how.cache);
    lapse_rcache_uring_close(&ops);
    ring_close(&how.ring);
    return ok ? 0 : 1;
}
