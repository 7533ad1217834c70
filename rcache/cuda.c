/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registrar: pinned host memory of CUDA, by whichever of its two interfaces
 * is there. Compiled without CUDA's headers: of its ABI this needs six
 * functions, and three numbers of errors, which the two share.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>

#include "lapse_rcache_backends.h"
#include "pieces.h"

#define CUDA_INVALID_VALUE 1
#define CUDA_OUT_OF_MEMORY 2
#define CUDA_ALREADY_REGISTERED 712
#define CUDA_PORTABLE 1u /* pinned for all contexts */

struct cuda {
    void *library;
    int (*reg)(void *addr, size_t len, unsigned flags);
    int (*unreg)(void *addr);
    bool runtime;
    /* The runtime: a device is current in a thread. */
    int device;
    int (*get_device)(int *device);
    int (*set_device)(int device);
    /* The driver: a context is. */
    void *context;
    int (*push)(void *context);
    int (*pop)(void **context);
};

/* Make current what was so in the thread that opened us. */
static int enter(struct cuda *c, int *before)
{
    if (!c->runtime)
        return c->push(c->context);
    return c->get_device(before) || c->set_device(c->device);
}

static void leave(struct cuda *c, int before)
{
    void *context;

    if (c->runtime)
        c->set_device(before);
    else
        c->pop(&context);
}

static int to_errno(int error)
{
    switch (error) {
    case 0:
        return 0;
    case CUDA_OUT_OF_MEMORY:
        return -ENOMEM;
    case CUDA_ALREADY_REGISTERED:
        return -EEXIST;
    case CUDA_INVALID_VALUE:
        return -EINVAL;
    default:
        return -EIO;
    }
}

static int cuda_register(void *addr, size_t len, unsigned access,
                         void *memory, void *arg)
{
    struct cuda *c = arg;
    int before = 0, error;

    (void)access, (void)memory;
    if (enter(c, &before))
        return -ENODEV;
    error = c->reg(addr, len, CUDA_PORTABLE);
    leave(c, before);
    return to_errno(error);
}

static void cuda_deregister(void *addr, size_t len, void *memory, void *arg)
{
    struct cuda *c = arg;
    int before = 0;

    (void)len, (void)memory;
    if (enter(c, &before))
        return;
    c->unreg(addr);
    leave(c, before);
}

static void *find(struct cuda *c, const char *name)
{
    return dlsym(c->library, name);
}

static int find_runtime(struct cuda *c)
{
    c->reg = find(c, "cudaHostRegister");
    c->unreg = find(c, "cudaHostUnregister");
    c->get_device = find(c, "cudaGetDevice");
    c->set_device = find(c, "cudaSetDevice");
    c->runtime = true;
    if (!c->reg || !c->unreg || !c->get_device || !c->set_device)
        return -ENOENT;
    return c->get_device(&c->device) ? -ENODEV : 0;
}

static int find_driver(struct cuda *c)
{
    int (*current)(void **) = find(c, "cuCtxGetCurrent");

    c->reg = find(c, "cuMemHostRegister_v2");
    c->unreg = find(c, "cuMemHostUnregister");
    c->push = find(c, "cuCtxPushCurrent_v2");
    c->pop = find(c, "cuCtxPopCurrent_v2");
    c->runtime = false;
    if (!c->reg || !c->unreg || !c->push || !c->pop || !current)
        return -ENOENT;
    return current(&c->context) || !c->context ? -ENODEV : 0;
}

static int find_in(struct cuda *c, const char *library)
{
    int err;

    c->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!c->library)
        return -ENOENT;
    err = find_runtime(c);
    if (err == -ENOENT)
        err = find_driver(c);
    if (err) {
        dlclose(c->library);
        dlerror();
    }
    return err;
}

int lapse_rcache_cuda_open(const char *library, struct lapse_rcache_ops *ops)
{
    static const char *const usual[] = {"libcudart.so", "libcudart.so.13",
                                        "libcudart.so.12",
                                        "libcudart.so.11.0", "libcuda.so.1"};
    struct cuda *c = ops ? pieces_map(sizeof(*c)) : NULL;
    int err = -ENOENT;

    if (!c)
        return ops ? -ENOMEM : -EINVAL;
    if (library)
        err = find_in(c, library);
    for (size_t i = 0; !library && err && i < sizeof(usual) / sizeof(*usual);
         i++)
        err = find_in(c, usual[i]);
    if (err) {
        pieces_unmap(c, sizeof(*c));
        return err;
    }
    *ops = (struct lapse_rcache_ops){.size = sizeof(*ops),
                                     .register_region = cuda_register,
                                     .deregister_region = cuda_deregister,
                                     .arg = c};
    return 0;
}

void lapse_rcache_cuda_close(struct lapse_rcache_ops *ops)
{
    struct cuda *c = ops->arg;

    dlclose(c->library);
    pieces_unmap(c, sizeof(*c));
    ops->arg = NULL;
}
