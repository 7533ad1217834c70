/* SPDX-License-Identifier: BSD-3-Clause */
/* The plug-in of `lapse check`, as bytes: an installed lapse is one file. */
    .section .rodata
    .globl check_plugin_file, check_plugin_file_end
    .hidden check_plugin_file, check_plugin_file_end
check_plugin_file:
    .incbin PLUGIN
check_plugin_file_end:
    .section .note.GNU-stack, "", %progbits
