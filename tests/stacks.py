# SPDX-License-Identifier: BSD-3-Clause
"""What lapse stacks --json says of tests/threads_victim.c, against where its
threads stand, and against gdb's stacks: stacks.py VICTIM_OUT JSON GDB_OUT"""
import json
import sys

names = dict(l.split() for l in open(sys.argv[1]) if len(l.split()) == 2)
names = {k: int(v) for k, v in names.items()}
process = json.load(open(sys.argv[2]))["processes"][0]
threads = {t["tid"]: t for t in process["threads"]}
bad = 0


def must(what, is_, expected):
    global bad
    if is_ != expected:
        print(f"FAILED  {what}: {is_!r}, not {expected!r}")
        bad = 1


def waits(name, kind, held_by=None, verdict="elsewhere"):
    t = threads[names[name]]
    w = t["waits_for"] or {"kind": None, "held_by": None, "address": None}
    must(name + " waits for", w["kind"], kind)
    must(name + "'s is held by", w["held_by"],
         names[held_by] if held_by else None)
    must(name + " is in", t["verdict"], verdict)
    return t


waits("mutex", "mutex", "holds")
waits("join", "thread end", "mutex")
waits("condition", "condition")
waits("semaphore", "semaphore")
waits("rwlock", "rwlock", "holds")
waits("read", "system call")
waits("holds", "system call")
waits("spin", None)
waits("main", "system call")
waits("sync", "lapse turn", "callback", "sync")
t = waits("callback", "mutex", "holds", "callback")
must("callback's places", [p["kind"] for p in t["in"]],
     ["drainer", "callback"])
must("callback's function", t["in"][-1]["function"], "victim_callback")
must("callback's subscriber", t["in"][-1]["subscriber"], 1)
must("spin's state", threads[names["spin"]]["state"], "R")
must("number of threads", len(threads), len(names))

# Frame by frame: the address must be the same, and the name, or another name
# of the same function. gdb's are "TID PC START-OF-FUNCTION NAMES...".
gdb = {}
for line in open(sys.argv[3]):
    word = line.split()
    if word and word[0] == "FRAME":
        gdb.setdefault(int(word[1]), []).append((int(word[2]), word[3:]))
compared = 0
for tid, frames in gdb.items():
    who = next((k for k, v in names.items() if v == tid), tid)
    mine = threads[tid]["frames"]
    if who == "spin":  # it runs: the innermost differs
        frames, mine = frames[-2:], mine[-2:]
    must(f"{who}: depth", len(mine), len(frames))
    for i, (f, (pc, called)) in enumerate(zip(mine, frames)):
        must(f"{who} #{i}: address", int(f["pc"], 16), pc)
        if called and f["symbol"] not in called:
            must(f"{who} #{i}: name", f["symbol"], called)
        compared += 1
must("threads that gdb saw", len(gdb), len(threads))
must("over 100 frames", compared > 100, True)
print(f"{compared} frames are as in gdb, of {len(gdb)} threads")
sys.exit(bad)
