/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes what ld.so keeps of static TLS for late libraries; see tls_poor.c. */
static __thread __attribute__((tls_model("initial-exec"))) char rich[1600];

char *lib_tls_address(void);
char *lib_tls_address(void)
{
    return rich;
}
