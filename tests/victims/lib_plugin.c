/* SPDX-License-Identifier: BSD-3-Clause */
/* A plugin that allocates and frees by whatever malloc it was bound to. */
#include <stdlib.h>

void *plugin_malloc(size_t len);
void *plugin_malloc(size_t len)
{
    return malloc(len);
}

void plugin_free(void *p);
void plugin_free(void *p)
{
    free(p);
}
