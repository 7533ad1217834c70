/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "audit.h"

static bool parse(char *line, struct audit_mapping *m)
{
    char access[5];
    int path = 0;

    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64
               " %*x:%*x %" SCNu64 " %n",
               &m->start, &m->end, access, &m->offset, &m->inode, &path) < 5)
        return false;
    m->executable = access[2] == 'x';
    m->path = path ? line + path : "";
    return true;
}

bool audit_maps_find(pid_t pid,
                     bool (*visit)(const struct audit_mapping *, void *),
                     void *argument)
{
    struct audit_mapping mapping;
    char name[32], *line = NULL;
    size_t room = 0;
    bool found = false;
    FILE *file;

    snprintf(name, sizeof(name), "/proc/%d/maps", (int)pid);
    file = fopen(name, "re");
    if (!file)
        return false;
    while (!found && getline(&line, &room, file) > 0)
        found = parse(line, &mapping) && visit(&mapping, argument);
    free(line);
    fclose(file);
    return found;
}
