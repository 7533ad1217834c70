/* SPDX-License-Identifier: BSD-3-Clause */
/* What the CUDA registrar needs of a driver, or (RUNTIME) of the runtime: it
 * keeps a list of ranges and, like the real one, refuses what overlaps. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define RANGES 1024
#define OUT_OF_MEMORY 2
#define NO_CONTEXT 201
#define ALREADY_REGISTERED 712
#define NOT_REGISTERED 713

static struct {
    uintptr_t start, end;
} range[RANGES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int current; /* of a new thread: none */
int fake_cuda_wrong, fake_cuda_registered;

static int add(uintptr_t start, uintptr_t end)
{
    int free = -1;

    for (int i = 0; i < RANGES; i++) {
        if (!range[i].end)
            free = i;
        else if (range[i].start < end && range[i].end > start)
            return ALREADY_REGISTERED;
    }
    if (free < 0)
        return OUT_OF_MEMORY;
    range[free].start = start;
    range[free].end = end;
    fake_cuda_registered++;
    return 0;
}

static int take(uintptr_t start)
{
    for (int i = 0; i < RANGES; i++)
        if (range[i].end && range[i].start == start) {
            range[i].end = 0;
            fake_cuda_registered--;
            return 0;
        }
    fake_cuda_wrong++;
    return NOT_REGISTERED;
}

static int reg(void *addr, size_t len, unsigned flags)
{
    int err;

    if (!current || flags != 1) {
        fake_cuda_wrong++;
        return NO_CONTEXT;
    }
    pthread_mutex_lock(&lock);
    err = add((uintptr_t)addr, (uintptr_t)addr + len);
    pthread_mutex_unlock(&lock);
    return err;
}

static int unreg(void *addr)
{
    int err;

    if (!current) {
        fake_cuda_wrong++;
        return NO_CONTEXT;
    }
    pthread_mutex_lock(&lock);
    err = take((uintptr_t)addr);
    pthread_mutex_unlock(&lock);
    return err;
}

#ifdef RUNTIME
int cudaHostRegister(void *addr, size_t len, unsigned flags)
{
    return reg(addr, len, flags);
}

int cudaHostUnregister(void *addr)
{
    return unreg(addr);
}

/* Device 0 counts as none here, so that forgetting to set one shows. */
int cudaSetDevice(int device)
{
    current = device;
    return 0;
}

int cudaGetDevice(int *device)
{
    *device = current;
    return 0;
}
#else
int cuMemHostRegister_v2(void *addr, size_t len, unsigned flags)
{
    return reg(addr, len, flags);
}

int cuMemHostUnregister(void *addr)
{
    return unreg(addr);
}

int cuCtxPushCurrent_v2(void *context)
{
    current = context != NULL;
    return 0;
}

int cuCtxPopCurrent_v2(void **context)
{
    *context = &current;
    current = 0;
    return 0;
}

int cuCtxGetCurrent(void **context)
{
    *context = current ? &current : NULL;
    return 0;
}
#endif
