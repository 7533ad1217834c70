/* SPDX-License-Identifier: BSD-3-Clause */
/* The rows of check_shm.c. */
#ifndef CHECK_SHM_H
#define CHECK_SHM_H

#include "check.h"

bool shmdt_setup(struct scene *s);
bool shmdt_release(struct scene *s);
bool shm_remap_setup(struct scene *s);
bool shm_odd_setup(struct scene *s);
bool shm_remap_release(struct scene *s);
bool shm_round_release(struct scene *s);

#endif
