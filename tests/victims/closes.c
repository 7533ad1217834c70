/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program that closes all descriptors but the first three, as daemons do,
 * and has files and pipes of its own where others were. Nobody else writes to
 * them, reads from them, or closes them, here or in a forked child.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "victim.h"

#define FILES 60

static int inode_fd[FILES];
static ino_t inode[FILES];

static void close_all(void)
{
    for (int fd = 3; fd < 2048; fd++)
        close(fd);
}

/* From the lowest number on: files, and every third a pipe that is empty. */
static int open_own(void)
{
    int pair[2];
    struct stat st;

    for (int i = 0; i < FILES; i++) {
        if (i % 3 == 2) {
            if (pipe(pair))
                return -1;
            inode_fd[i] = pair[0];
        } else {
            inode_fd[i] = open("/tmp", O_TMPFILE | O_RDWR, 0600);
            if (inode_fd[i] < 0 || write(inode_fd[i], "abcdefgh", 8) != 8)
                return -1;
            lseek(inode_fd[i], 3, SEEK_SET);
        }
        if (fstat(inode_fd[i], &st))
            return -1;
        inode[i] = st.st_ino;
    }
    return 0;
}

static int is_untouched(int i)
{
    struct pollfd p = {.fd = inode_fd[i], .events = POLLIN};
    struct stat st;
    char text[32];

    if (fstat(inode_fd[i], &st) || st.st_ino != inode[i])
        return 0;
    if (S_ISFIFO(st.st_mode))
        return poll(&p, 1, 0) == 0;
    return lseek(inode_fd[i], 0, SEEK_CUR) == 3 &&
           pread(inode_fd[i], text, sizeof text, 0) == 8 &&
           !memcmp(text, "abcdefgh", 8);
}

static int touched(void)
{
    int n = 0;

    for (int i = 0; i < FILES; i++)
        n += !is_untouched(i);
    return n;
}

static void release(void)
{
    for (int i = 0; i < 50; i++)
        churn(1 << 20);
}

int main(void)
{
    pid_t pid;

    close_all();
    if (open_own()) {
        differs("no files: %s", strerror(errno));
        return 1;
    }
    release();
    check(!touched(), "own files, after releases");
    pid = fork();
    if (pid == 0) {
        release();
        _exit(touched() != 0);
    }
    check(!wait_for(pid, 20), "own files, in a child");
    release();
    check(!touched(), "own files, after the child");
    return victim_end();
}
