# SPDX-License-Identifier: BSD-3-Clause
# Inside gdb: stops at the sites of libc where lapse was called, and writes what
# gdb's own unwinder says there:
#   hit TID FUNCTION RDI RSI
#   frame PC FUNCTION-START NAME
# Run by stacks_gdb.sh with STACKS_OUT, after the library has patched.
import os
import struct

import gdb

out = open(os.environ["STACKS_OUT"], "w")


def reg(frame, name):
    return int(frame.read_register(name)) & (1 << 64) - 1


def start_of(frame):
    """Where the function begins; 0: gdb does not know."""
    function = frame.function()
    if not function:
        return 0
    block = frame.block()
    while block and (not block.function or
                     block.function.name != function.name):
        block = block.superblock
    return block.start if block else 0


MACHINE = [gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME]  # not inlined, no tail calls


class Site(gdb.Breakpoint):
    def __init__(self, address, name):
        super().__init__("*%#x" % address, internal=True)
        self.silent = True
        self.name = name

    def stop(self):
        frame = gdb.newest_frame()
        tid = gdb.selected_thread().ptid[1]
        out.write("hit %d %s %#x %#x\n" % (tid, self.name, reg(frame, "rdi"),
                                           reg(frame, "rsi")))
        while frame:
            if frame.type() in MACHINE:
                out.write("frame %#x %#x %s\n" % (frame.pc(), start_of(frame),
                                                  frame.name()))
            frame = frame.older()
        return False


def number(expression):
    return int(gdb.parse_and_eval(expression))


def sites():
    """Of the plain slots: a jump of 5 bytes, then the system call of 2."""
    slots = number("(unsigned long)&arch_slots")
    memory = gdb.selected_inferior()
    for i in range(64):
        back, body = struct.unpack(
            "QQ", memory.read_memory(slots + 16 * i, 16).tobytes())
        if not back or not body:
            continue
        if memory.read_memory(back - 7, 1).tobytes() != b"\xe9":
            continue
        name = gdb.execute("info symbol %#x" % body, to_string=True)
        yield back - 7, name.split()[0].replace("hook_", "")


gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
gdb.execute("handle SIGUSR1 nostop noprint pass")
for address, name in list(sites()):
    Site(address, name.replace("brk_call", "brk"))
gdb.execute("continue")
out.close()
