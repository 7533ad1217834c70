/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of huge pages (hugetlb): the kernel rounds lengths up to them, so a
 * page behind what a call was asked for goes, too. No huge page is needed for
 * this: nothing is touched.
 */
#include <sys/shm.h>

#include "api.h"

#define HUGE (2ul << 20)
#define RW (PROT_READ | PROT_WRITE)
#define NEW (MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED)
#define NEW_HUGE (NEW | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT) | MAP_NORESERVE)

static lapse_handle sub;
static char *room; /* of huge pages, aligned to 1 GiB but for one of them */

static int times_told(const char *page)
{
    struct lapse_event e[16];
    int n, told = 0;

    while ((n = lapse_poll(sub, e, 16)) > 0)
        for (int i = 0; i < n; i++)
            told += e[i].addr < (uintptr_t)page + PAGE &&
                    e[i].addr + e[i].len > (uintptr_t)page;
    return told;
}

static void watch(const char *page)
{
    lapse_watch(sub, page, PAGE);
    times_told(page);
}

static char *at(size_t huge)
{
    return room + huge * HUGE;
}

static void test_mmap(void)
{
    const char *last = at(1) - PAGE, *next = at(1);
    int fd = memfd_create("huge", MFD_HUGETLB), small = memfd_create("s", 0);

    watch(last);
    watch(next);
    check(mmap(at(0), PAGE, RW, NEW_HUGE, -1, 0) == at(0), "MAP_HUGETLB");
    check(times_told(last) == 1, "the rest of its huge page is told");
    mmap(at(0), HUGE, RW, NEW_HUGE, -1, 0);
    check(times_told(next) == 0, "the next one is not");

    check(fd >= 0 && !ftruncate(fd, HUGE) && !ftruncate(small, HUGE),
          "files");
    check(mmap(at(0), PAGE, RW, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
               0) == at(0),
          "a file of hugetlbfs");
    check(times_told(last) == 1, "the rest of its huge page is told");
    munmap(at(0), HUGE);
    times_told(last);
    check(mmap(at(0), PAGE, RW, MAP_SHARED | MAP_FIXED, small, 0) == at(0),
          "a file of tmpfs");
    check(times_told(last) == 0, "nothing is told but what was asked for");
    close(fd);
    close(small);
}

static void test_mremap(void)
{
    const char *last = at(12) - PAGE, *there = at(16) - PAGE;

    check(mmap(at(8), 4 * HUGE, RW, NEW_HUGE, -1, 0) == at(8), "4 huge pages");
    watch(last);
    check(mremap(at(8), 3 * HUGE + PAGE, HUGE / 2, 0) == at(8), "cut to one");
    check(times_told(last) == 1, "the end of the last one is told");
    mmap(at(8), HUGE, RW, NEW_HUGE, -1, 0);
    mmap(at(15), HUGE, RW, NEW, -1, 0);
    watch(there);
    watch(at(9) - PAGE);
    check(mremap(at(8), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at(15)) ==
              at(15),
          "one is moved by its first 4 KiB");
    check(times_told(there) == 1, "the rest of where it goes is told");
    munmap(at(15), HUGE);
    times_told(there);
    mmap(at(8), HUGE, RW, NEW_HUGE, -1, 0);
    times_told(there);
    mremap(at(8), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at(15));
    check(times_told(at(9) - PAGE) == 1, "the rest of where it was, too");

    mmap(at(8), HUGE, RW, NEW, -1, 0);
    times_told(last);
    mremap(at(8), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at(12));
    check(times_told(at(9) - PAGE) == 0,
          "of other memory, what was asked for and no more");
}

static void test_shmat(void)
{
    int id = shmget(IPC_PRIVATE, PAGE,
                    IPC_CREAT | 0600 | SHM_HUGETLB | SHM_NORESERVE);

    if (id < 0) {
        printf("skipped SHM_REMAP: no segment of huge pages (error %d)\n",
               errno);
        return;
    }
    mmap(at(3), HUGE, RW, NEW, -1, 0);
    watch(at(4) - PAGE);
    check(shmat(id, at(3), SHM_REMAP) == at(3), "SHM_REMAP");
    shmctl(id, IPC_RMID, NULL);
    check(times_told(at(4) - PAGE) == 1, "the rest of its huge page is told");
}

int main(void)
{
    struct lapse_subscription how = {.size = sizeof how,
                                     .delivery = LAPSE_POLL};
    const size_t big = 1ul << 30;

    room = mmap(NULL, 2 * big, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    room = (char *)(((uintptr_t)room + big - 1) & -big) + HUGE;
    if (mmap(at(0), HUGE, RW, NEW_HUGE, -1, 0) == MAP_FAILED) {
        printf("skipped: this kernel has no hugetlb memory (error %d)\n",
               errno);
        return 77;
    }
    check(lapse_subscribe(&how, &sub) == 0, "subscribe");
    test_mmap();
    test_mremap();
    test_shmat();
    return api_end();
}
