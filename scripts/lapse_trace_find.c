/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the traces are that `lapse trace` was asked for. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "command.h"
#include "lapse_trace.h"

#define SUFFIX ".trace"

static bool is_trace_name(const char *name)
{
    size_t length = strlen(name), suffix = strlen(SUFFIX);

    return length > suffix && !strcmp(name + length - suffix, SUFFIX);
}

static bool known(const struct sources *all, const struct stat *st)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->one[i].ino == st->st_ino && all->one[i].dev == st->st_dev)
            return true;
    return false;
}

/* 0; else *why. One that is there already is not added again. */
static int add_file(struct sources *all, const char *path, const char **why)
{
    struct source *more, s = {0};
    struct stat st;

    if (stat(path, &st)) {
        *why = strerror(errno);
        return -1;
    }
    if (known(all, &st))
        return 0;
    s.trace = trace_open(path, why);
    if (!s.trace)
        return -1;
    s.dev = st.st_dev;
    s.ino = st.st_ino;
    s.name = strdup(path);
    s.real = realpath(path, NULL);
    s.told = calloc(trace_head(s.trace)->rings, sizeof(*s.told));
    more = realloc(all->one, (all->count + 1) * sizeof(*more));
    if (more)
        all->one = more;
    if (!more || !s.name || !s.told) {
        trace_close(s.trace);
        free(s.name);
        free(s.real);
        free(s.told);
        *why = strerror(ENOMEM);
        return -1;
    }
    all->one[all->count++] = s;
    return 0;
}

/* Files that are no traces: said if wanted, and counted. */
static size_t look_in(struct sources *all, const char *path, bool tell)
{
    DIR *dir = opendir(path);
    char file[PATH_MAX];
    struct dirent *entry;
    const char *why;
    size_t bad = 0;

    while (dir && (entry = readdir(dir))) {
        if (!is_trace_name(entry->d_name) ||
            snprintf(file, sizeof(file), "%s/%s", path, entry->d_name) >=
                (int)sizeof(file))
            continue;
        if (add_file(all, file, &why)) {
            bad++;
            if (tell)
                say("'%s': %s", file, why);
        }
    }
    if (dir)
        closedir(dir);
    return bad;
}

static int add_dir(struct sources *all, const char *path, bool later)
{
    size_t before = all->count, bad;
    char **more = realloc(all->dir, (all->dirs + 1) * sizeof(*more));

    if (!more) {
        say("out of memory");
        return EXIT_TROUBLE;
    }
    all->dir = more;
    all->dir[all->dirs++] = (char *)path;
    bad = look_in(all, path, !later);
    if (later || all->count > before)
        return 0;
    if (!bad)
        say("there is no trace in '%s': set LAPSE_TRACE to it for the program "
            "to be traced", path);
    return EXIT_TROUBLE;
}

/* Does this line of maps speak of a trace? Its path, and the range's name. */
static char *mapped_trace(char *line, char **range)
{
    char *path = strchr(line, '/');

    line[strcspn(line, "\n")] = 0;
    *range = line;
    line[strcspn(line, " ")] = 0;
    if (!path)
        return NULL;
    if (is_trace_name(path) || strstr(path, SUFFIX " (deleted)"))
        return path;
    return NULL;
}

/* By its name as that process sees it; if it has none any more, as mapped. */
static int add_mapped(struct sources *all, const char *pid, char *path,
                      const char *range, const char **why)
{
    char file[PATH_MAX + 64];
    const int width = 40; /* two addresses */

    if (!strstr(path, SUFFIX " (deleted)")) {
        snprintf(file, sizeof(file), "/proc/%s/root%s", pid, path);
        if (!add_file(all, file, why) || !add_file(all, path, why))
            return 0;
    }
    snprintf(file, sizeof(file), "/proc/%s/map_files/%.*s", pid, width,
             range);
    return add_file(all, file, why);
}

static FILE *open_maps(const char *pid)
{
    char file[64];

    snprintf(file, sizeof(file), "/proc/%.20s/maps", pid);
    return fopen(file, "r");
}

static int add_pid(struct sources *all, const char *pid)
{
    FILE *maps = open_maps(pid);
    char line[PATH_MAX + 256], *range, *path;
    const char *why = NULL;
    bool library = false, added = false;

    if (!maps) {
        say("cannot look at process %s: %s", pid,
            errno == ENOENT ? "there is none" : strerror(errno));
        return EXIT_TROUBLE;
    }
    errno = 0;
    while (!added && fgets(line, sizeof(line), maps)) {
        library = library || strstr(line, "/liblapse.so");
        path = mapped_trace(line, &range);
        if (path)
            added = !add_mapped(all, pid, path, range, &why);
    }
    if (!added && ferror(maps))
        why = strerror(errno);
    fclose(maps);
    if (added)
        return 0;
    if (why)
        say("cannot read the trace of process %s: %s", pid, why);
    else
        say("process %s %s; start it with LAPSE_TRACE=DIR in its environment "
            "(LAPSE_TRACE=DIR lapse run -- COMMAND)", pid,
            library ? "keeps no trace" : "runs without liblapse");
    return EXIT_TROUBLE;
}

static bool is_number(const char *text)
{
    return *text && strspn(text, "0123456789") == strlen(text);
}

int sources_add(struct sources *all, const char *what, bool later)
{
    const char *why;
    struct stat st;

    if (stat(what, &st)) {
        if (is_number(what))
            return add_pid(all, what);
        say("'%s': %s", what, strerror(errno));
        return EXIT_TROUBLE;
    }
    if (S_ISDIR(st.st_mode))
        return add_dir(all, what, later);
    if (!add_file(all, what, &why))
        return 0;
    say("'%s': %s", what, why);
    return EXIT_TROUBLE;
}

void sources_look(struct sources *all)
{
    for (size_t i = 0; i < all->dirs; i++)
        look_in(all, all->dir[i], false);
}

/* Not when that process is gone, a zombie, runs another program, or its pid is
 * another one's. The device of a line is not always that of stat(), so the name
 * will do as well. errno: why it cannot be known. */
static bool has_mapped(const struct source *s, const char *pid)
{
    char line[PATH_MAX + 256];
    unsigned major, minor;
    unsigned long ino;
    bool found = false;
    FILE *maps = open_maps(pid);

    if (!maps)
        return false;
    errno = 0;
    while (!found && fgets(line, sizeof(line), maps)) {
        const char *path = strchr(line, '/');

        found = (sscanf(line, "%*s %*s %*s %x:%x %lu", &major, &minor,
                        &ino) == 3 &&
                 ino == s->ino && makedev(major, minor) == s->dev) ||
                (path && s->real &&
                 !strncmp(path, s->real, strlen(s->real)));
    }
    fclose(maps);
    return found;
}

/* Is this how that process is known in a namespace of its own? */
static bool is_known_as(const char *process, pid_t pid)
{
    char line[256], *last;
    FILE *status;
    bool is = false;

    snprintf(line, sizeof(line), "/proc/%.20s/status", process);
    status = fopen(line, "r");
    while (status && fgets(line, sizeof(line), status))
        if (!strncmp(line, "NSpid:", 6)) {
            last = strrchr(line, '\t');
            is = last && last > line + 6 && atoi(last) == (int)pid;
            break;
        }
    if (status)
        fclose(status);
    return is;
}

/* One in another namespace of pids: a container's, seen from outside. */
static pid_t find_elsewhere(const struct source *s)
{
    DIR *dir = opendir("/proc");
    pid_t pid = (pid_t)trace_head(s->trace)->pid, found = 0;
    struct dirent *entry;

    while (dir && !found && (entry = readdir(dir)))
        if (is_number(entry->d_name) && is_known_as(entry->d_name, pid) &&
            has_mapped(s, entry->d_name))
            found = atoi(entry->d_name);
    if (dir)
        closedir(dir);
    return found;
}

/* Whether its process still has the file mapped. */
static bool still_mapped(struct source *s)
{
    char pid[16];
    int why;

    if (!s->pid)
        s->pid = (pid_t)trace_head(s->trace)->pid;
    snprintf(pid, sizeof(pid), "%d", (int)s->pid);
    if (has_mapped(s, pid))
        return true;
    why = errno;
    if (s->pid != (pid_t)trace_head(s->trace)->pid)
        return false;
    s->pid = find_elsewhere(s);
    return s->pid || (why && why != ENOENT && !kill((pid_t)atoi(pid), 0));
}

bool sources_over(struct sources *all)
{
    bool over = all->count > 0;

    for (size_t i = 0; i < all->count; i++) {
        struct source *s = &all->one[i];

        if (s->over)
            continue;
        /* not `ended`: other libraries' destructors may come after that */
        s->over = !still_mapped(s);
        over = over && s->over;
    }
    return over;
}

struct source *sources_next(struct sources *all)
{
    struct source *first = NULL;

    for (size_t i = 0; i < all->count; i++) {
        struct source *s = &all->one[i];

        if (!s->record) {
            s->record = trace_next(s->trace, &s->ring);
            if (s->record)
                s->realtime = trace_realtime(s->trace, s->record->ticks);
        }
        if (s->record && (!first || s->realtime < first->realtime))
            first = s;
    }
    return first;
}

void sources_free(struct sources *all)
{
    for (size_t i = 0; i < all->count; i++) {
        trace_close(all->one[i].trace);
        free(all->one[i].name);
        free(all->one[i].real);
        free(all->one[i].told);
    }
    free(all->one);
    free(all->dir);
}
