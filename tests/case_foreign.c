/* SPDX-License-Identifier: BSD-3-Clause */
#include "case_foreign.h"

#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ul

static void writable(void *at, size_t len, int prot)
{
    uintptr_t start = (uintptr_t)at & -PAGE;
    uintptr_t end = ((uintptr_t)at + len + PAGE - 1) & -PAGE;

    if (mprotect((void *)start, end - start, prot))
        abort();
}

/* Plain stores: safe only while nobody runs there. */
static void write_code(uint8_t *at, const uint8_t bytes[PROLOGUE])
{
    writable(at, PROLOGUE, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(at, bytes, PROLOGUE);
    writable(at, PROLOGUE, PROT_READ | PROT_EXEC);
}

void prologue_install(struct prologue *p, void *function, void *hook)
{
    static const uint8_t jump[] = {0xff, 0x25, 0, 0, 0, 0};

    p->at = function;
    memcpy(p->saved, p->at, PROLOGUE);
    memcpy(p->written, jump, sizeof jump);
    memcpy(p->written + sizeof jump, &hook, sizeof hook);
    write_code(p->at, p->written);
}

void prologue_remove(struct prologue *p)
{
    write_code(p->at, p->saved);
}

bool prologue_is_there(const struct prologue *p)
{
    return memcmp(p->at, p->written, PROLOGUE) == 0;
}

static const ElfW(Dyn) * dynamic(ElfW(Sxword) tag)
{
    for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++)
        if (d->d_tag == tag)
            return d;
    return NULL;
}

static uintptr_t base_of_program(void)
{
    return _r_debug.r_map->l_addr;
}

static bool replace_in(ElfW(Sxword) table, ElfW(Sxword) size, const char *name,
                       void *hook, void **was)
{
    const ElfW(Dyn) *t = dynamic(table), *n = dynamic(size);
    const ElfW(Sym) *symbols = (void *)dynamic(DT_SYMTAB)->d_un.d_ptr;
    const char *names = (void *)dynamic(DT_STRTAB)->d_un.d_ptr;
    const ElfW(Rela) * r;
    bool found = false;

    if (!t || !n)
        return false;
    r = (void *)t->d_un.d_ptr;
    for (size_t i = 0; i < n->d_un.d_val / sizeof *r; i++, r++) {
        unsigned long type = ELF64_R_TYPE(r->r_info);
        void **slot = (void **)(base_of_program() + r->r_offset);

        if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) ||
            strcmp(names + symbols[ELF64_R_SYM(r->r_info)].st_name, name))
            continue;
        *was = *slot;
        writable(slot, sizeof *slot, PROT_READ | PROT_WRITE);
        __atomic_store_n(slot, hook, __ATOMIC_RELEASE);
        found = true;
    }
    return found;
}

bool import_replace(const char *name, void *hook, void **was)
{
    return replace_in(DT_JMPREL, DT_PLTRELSZ, name, hook, was) ||
           replace_in(DT_RELA, DT_RELASZ, name, hook, was);
}
