/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sites: where release paths enter the kernel, in libc and in ld.so, and the
 * patching of them. See DESIGN in README.md, "How releases are seen".
 */
#ifndef LAPSE_SITE_H
#define LAPSE_SITE_H

/*
 * Find and patch every site. Called once, from the constructor; the process
 * may have other threads already. Never fails: a site that could not be
 * patched is left as it was and its row of the coverage table says why.
 */
void sites_patch(void);

#endif
