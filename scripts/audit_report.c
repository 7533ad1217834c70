/* SPDX-License-Identifier: BSD-3-Clause */
/* What `lapse audit` found, for people and as JSON. */
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit.h"
#include "json.h"
#include "symbols.h"
#include "text.h"

/* Offset in the file to address as objdump shows it; false: not an ELF file. */
static bool elf_address(const char *path, uint64_t offset, uint64_t *address)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    Elf64_Ehdr header;
    Elf64_Phdr ph;
    bool found = false;

    if (fd < 0)
        return false;
    if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) ||
        header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phentsize != sizeof(ph))
        header.e_phnum = 0;
    for (unsigned i = 0; i < header.e_phnum && !found; i++) {
        if (pread(fd, &ph, sizeof(ph),
                  (off_t)(header.e_phoff + i * sizeof(ph))) != sizeof(ph))
            break;
        found = ph.p_type == PT_LOAD && offset - ph.p_offset < ph.p_filesz;
    }
    close(fd);
    if (found)
        *address = offset - ph.p_offset + ph.p_vaddr;
    return found;
}

struct place {
    uint64_t offset;
    const char *symbol; /* NULL: not known */
};

static struct place place_of(const struct audit_finding *finding)
{
    struct place place = {finding->at, NULL};

    if (finding->module && *finding->module == '/' &&
        elf_address(finding->module, finding->at, &place.offset))
        place.symbol = symbols_find(finding->module, place.offset);
    return place;
}

static void print_finding(FILE *out, const struct audit_finding *finding)
{
    struct place place = place_of(finding);

    fprintf(out, "  %9" PRIu64 " %-16s  ", finding->count,
            finding->call->name);
    if (finding->module) {
        put_name(out, base_name(finding->module));
        fprintf(out, "+0x%" PRIx64, place.offset);
    } else {
        fprintf(out, "code of no file, first at 0x%" PRIx64, place.offset);
    }
    if (place.symbol) {
        fputs(" (", out);
        put_name(out, place.symbol);
        putc(')', out);
    }
    fputs(" in ", out);
    put_name(out, base_name(finding->program));
    fprintf(out, " (pid %d)\n", (int)finding->pid);
}

static void print_findings(const struct audit *audit, FILE *out, size_t top)
{
    size_t n = 0;

    if (!audit->findings || !top)
        return;
    fputs("  Not seen:\n", out);
    for (const struct audit_finding *f = audit->findings; f && n < top;
         f = f->next, n++)
        print_finding(out, f);
    if (n < audit->findings_count)
        fprintf(out, "  and at %zu more places (--top 0 to 9999, --json)\n",
                audit->findings_count - n);
}

static void print_blinds(const struct audit *audit, FILE *out)
{
    for (const struct audit_blind *b = audit->blinds; b; b = b->next) {
        fprintf(out, "  %9" PRIu64 " call%s in %" PRIu64 " process%s of ",
                b->count, plural(b->count), b->processes,
                b->processes == 1 ? "" : "es");
        put_name(out, b->program);
        fputs(", where the library is not loaded\n", out);
    }
}

static void print_notes(const struct audit *audit, FILE *out)
{
    if (audit->uring)
        fputs("  io_uring is used: IORING_OP_MADVISE and IORING_OP_FALLOCATE "
              "are not audited.\n", out);
    if (audit->lost)
        fprintf(out, "  %" PRIu64 " call%s could not be looked at: out of "
                "memory, or a kernel before 5.3.\n", audit->lost,
                plural(audit->lost));
    if (WIFSIGNALED(audit->status))
        fprintf(out, "  The command was killed by signal %d (%s).\n",
                WTERMSIG(audit->status), strsignal(WTERMSIG(audit->status)));
    else if (WEXITSTATUS(audit->status))
        fprintf(out, "  The command ended with status %d.\n",
                WEXITSTATUS(audit->status));
}

void audit_print(struct audit *audit, FILE *out, size_t top, char **command)
{
    fputs("lapse: ", out);
    put_name(out, base_name(command[0]));
    if (audit->unseen)
        fprintf(out, ": %" PRIu64 " of %" PRIu64 " call%s that can release "
                "memory %s not seen", audit->unseen,
                audit->seen + audit->unseen,
                plural(audit->seen + audit->unseen),
                audit->unseen == 1 ? "was" : "were");
    else
        fprintf(out, ": none unseen: %" PRIu64 " call%s that can release "
                "memory", audit->seen, plural(audit->seen));
    fprintf(out, ", in %" PRIu64 " process%s\n", audit->processes,
            audit->processes == 1 ? "" : "es");
    print_findings(audit, out, top);
    print_blinds(audit, out);
    print_notes(audit, out);
}

static void json_finding(FILE *out, const struct audit_finding *finding)
{
    struct place place = place_of(finding);

    fputs("\n    {\"module\": ", out);
    json_string_or_null(out, finding->module);
    fprintf(out, ", \"offset\": \"0x%" PRIx64 "\", \"symbol\": ",
            place.offset);
    json_string_or_null(out, place.symbol);
    fprintf(out, ", \"call\": \"%s\", \"count\": %" PRIu64 ", \"program\": ",
            finding->call->name, finding->count);
    json_string_or_null(out, finding->program);
    fprintf(out, ", \"pid\": %d}", (int)finding->pid);
}

void audit_print_json(struct audit *audit, FILE *out, size_t top,
                      char **command)
{
    size_t n = 0;

    fputs("{\n  \"version\": 1,\n  \"command\": [", out);
    for (size_t i = 0; command[i]; i++) {
        fputs(i ? ", " : "", out);
        json_string_or_null(out, command[i]);
    }
    if (WIFSIGNALED(audit->status))
        fprintf(out, "],\n  \"exit\": {\"signal\": %d},\n",
                WTERMSIG(audit->status));
    else
        fprintf(out, "],\n  \"exit\": {\"code\": %d},\n",
                WEXITSTATUS(audit->status));
    fprintf(out, "  \"processes\": %" PRIu64 ", \"seen\": %" PRIu64
            ", \"unseen\": %" PRIu64 ", \"lost\": %" PRIu64
            ", \"io_uring\": %s,\n"
            "  \"places\": [", audit->processes, audit->seen, audit->unseen,
            audit->lost, audit->uring ? "true" : "false");
    for (const struct audit_finding *f = audit->findings; f && n < top;
         f = f->next) {
        fputs(n++ ? "," : "", out);
        json_finding(out, f);
    }
    fputs("],\n  \"without_library\": [", out);
    for (const struct audit_blind *b = audit->blinds; b; b = b->next) {
        fputs(b == audit->blinds ? "\n    {\"program\": "
                                 : ",\n    {\"program\": ", out);
        json_string_or_null(out, b->program);
        fprintf(out, ", \"processes\": %" PRIu64 ", \"count\": %" PRIu64 "}",
                b->processes, b->count);
    }
    fputs("]\n}\n", out);
}
