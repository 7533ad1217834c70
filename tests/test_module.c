/* SPDX-License-Identifier: BSD-3-Clause */
/* Libraries are read from their own headers, whoever interposes. */
#include "hooks/module.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

Test(module, finds_libc_and_loader_by_soname_only)
{
    struct module module;

    cr_assert(module_find("libc.so.6", &module));
    cr_assert(strstr(module.path, "libc.so.6"));
    cr_assert(module_find("ld-linux-x86-64.so.2", &module));
    cr_assert_not(module_find("libc.so", &module));
    cr_assert_not(module_find("", &module));
}

Test(module, finds_the_function_that_dlsym_finds)
{
    static const char *const names[] = {"munmap", "mmap", "brk", "syscall",
                                        "process_madvise", "shmdt"};
    void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    struct module module;
    size_t size = 0;

    cr_assert(module_find("libc.so.6", &module));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const uint8_t *code = module_function(&module, names[i], &size);

        cr_assert_eq(code, dlsym(libc, names[i]), "%s", names[i]);
        cr_assert(size > 7 && size < 4096, "%s", names[i]);
        cr_assert(code >= module.text &&
                  code + size <= module.text + module.text_size);
    }
}

Test(module, finds_no_data_no_ifunc_and_nothing_undefined)
{
    struct module module;
    size_t size;

    cr_assert(module_find("libc.so.6", &module));
    cr_assert_null(module_function(&module, "environ", &size));
    cr_assert_null(module_function(&module, "memcpy", &size));
    cr_assert_null(module_function(&module, "__tls_get_addr", &size));
    cr_assert_null(module_function(&module, "no_such_function", &size));
}

Test(module, finds_who_defines_a_function)
{
    struct module module[4];
    size_t size;

    cr_assert_eq(module_defining("gnu_get_libc_version", module, 4), 1);
    cr_assert_str_eq(module[0].soname, "libc.so.6");
    cr_assert_not_null(module_function(&module[0], "free", &size));
    cr_assert_eq(module_defining("no_such_function", module, 4), 0);
}

Test(module, maps_text_to_its_place_in_the_file)
{
    struct module module;
    uint8_t bytes[64];
    FILE *file;

    cr_assert(module_find("ld-linux-x86-64.so.2", &module));
    file = fopen(module.path, "rb");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, (long)module.text_offset, SEEK_SET), 0);
    cr_assert_eq(fread(bytes, 1, sizeof(bytes), file), sizeof(bytes));
    fclose(file);
    cr_assert_arr_eq(bytes, module.text, sizeof(bytes));
}
