# SPDX-License-Identifier: BSD-3-Clause
"""Run by gdb: FRAME TID PC NAME..., of frames that are functions of their own
in the machine code. All names of the address where the function begins."""
import gdb

gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
known = {}


def names_at(start):
    if start not in known:
        text = gdb.execute(f"info symbol {start:#x}", to_string=True)
        known[start] = {text.split()[0]} if " in section" in text else set()
    return known[start]


for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame = gdb.newest_frame()
    while frame:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            names = set()
            if frame.name():
                names.add(frame.name())
            back = 0 if not frame.newer() or \
                frame.newer().type() == gdb.SIGTRAMP_FRAME else 1
            try:
                text = gdb.execute(f"info symbol {frame.pc() - back:#x}",
                                   to_string=True)
                names.add(text.split()[0])
            except gdb.error:
                pass
            names |= {n.lstrip("_") for n in names}
            names |= {n[len(p):] for n in names
                      for p in ("GI_", "GI___", "libc_") if n.startswith(p)}
            print("FRAME", thread.ptid[1], frame.pc(), *sorted(names))
        frame = frame.older()
