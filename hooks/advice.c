/* SPDX-License-Identifier: BSD-3-Clause */
#include "hooks/advice.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "hooks/account.h"
#include "hooks/file_range.h"
#include "shim/release.h"
#include "shim/sys.h"

#define IOV_CHUNK 8

/* Copies through the kernel, since a bad pointer is the kernel's to refuse. */
static bool read_iov(struct iovec *to, unsigned long from, size_t n)
{
    struct iovec local = {to, n * sizeof(*to)};
    struct iovec remote = {(void *)from, n * sizeof(*to)};

    return sys(SYS_process_vm_readv, sys(SYS_getpid), &local, 1, &remote, 1,
               0) == (long)local.iov_len;
}

/*
 * Which process it is about would take more calls to learn; that of another
 * one is a false alarm. Announces everything in one slot, publishes each range
 * of the vector; all there is, if the vector cannot be read.
 */
static void publish_iov(struct release *r, unsigned long iov, size_t n,
                        bool files)
{
    struct iovec part[IOV_CHUNK];
    uintptr_t start, end;

    for (size_t i = 0; i < n; i += IOV_CHUNK) {
        size_t k = n - i < IOV_CHUNK ? n - i : IOV_CHUNK;

        if (!read_iov(part, iov + i * sizeof(*part), k)) {
            release_publish(r, 0, USER_END, LAPSE_REASON_MADVISE);
            return;
        }
        for (size_t j = 0; j < k; j++) {
            if (!range_of_call((uintptr_t)part[j].iov_base, part[j].iov_len,
                               &start, &end))
                continue;
            release_publish(r, start, end, LAPSE_REASON_MADVISE);
            if (files)
                file_publish_mapped(r, start, end);
        }
    }
}

long hook_process_madvise(long a0, long a1, long a2, long a3, long a4,
                          long a5, const uintptr_t *stack)
{
    struct release r;
    long ret;

    if (advice_releases((int)a3) && a1 && a2 > 0 && a2 <= UIO_MAXIOV) {
        release_claim(&r, range_pack(0, USER_END));
        account(&r, LAPSE_PATH_PROCESS_MADVISE, 0, 0, stack);
        if (atomic_load_explicit(&lapse_live, memory_order_seq_cst))
            publish_iov(&r, (unsigned long)a1, (size_t)a2,
                        (int)a3 == MADV_REMOVE && file_wanted());
        ret = sys_call6(SYS_process_madvise, a0, a1, a2, a3, a4, a5);
        release_end(&r);
    } else {
        release_claim(&r, RANGE_NOTHING);
        release_count(&r, LAPSE_PATH_PROCESS_MADVISE, 0, 0, INSIDE_NOTHING);
        ret = sys_call6(SYS_process_madvise, a0, a1, a2, a3, a4, a5);
        release_end(&r);
    }
    return ret;
}
