/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * free and its like: which functions, in which libraries (LAPSE_FREE=1).
 */
#ifndef LAPSE_FREE_H
#define LAPSE_FREE_H

/*
 * If it is asked for, patch the deallocators of every allocator there is, and
 * say in the coverage table what became of each. Called once, from the
 * constructor, after sites_patch(). Never fails.
 */
void free_patch(void);

#endif
