/* SPDX-License-Identifier: BSD-3-Clause */
/* The least there can be of an LD_AUDIT library, for case G3. */
#include <link.h>

unsigned int la_version(unsigned int version)
{
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}
