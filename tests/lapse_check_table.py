# SPDX-License-Identifier: BSD-3-Clause
"""Judges a table of `lapse check --json` on stdin.

lapse_check_table.py EXPECT...: glibc (every row of malloc goes stale),
backstop (inline system calls are told), free (FREE is).
"""
import json
import sys

expect = set(sys.argv[1:])
table = json.load(sys.stdin)
rows = {row["name"]: row for row in table["rows"]}
bad = []

# What not even the kernel tells, and what no site sees.
UNSEEN = {"shmdt, inline", "fallocate PUNCH_HOLE, inline",
          "io_uring FALLOCATE", "ioctl FS_IOC_UNRESVSP"}
if "backstop" not in expect:
    UNSEEN |= {"munmap, inline", "mmap MAP_FIXED, inline", "mremap, inline",
               "madvise DONTNEED, inline", "io_uring MADVISE"}

REASONS = {"munmap": "munmap", "mmap MAP_FIXED": "replace",
           "mremap, moved to grow": "mremap", "brk": "brk",
           "mremap FIXED, what was there": "replace", "shmdt": "shmdt",
           "shmat SHM_REMAP": "replace", "madvise DONTNEED": "madvise",
           "dlclose": "unload", "fallocate PUNCH_HOLE": "file",
           "ftruncate": "file", "truncate": "file", "open O_TRUNC": "file",
           "process_madvise of itself": "madvise"}
MALLOC = [name for name in rows
          if name.startswith(("free ", "realloc", "malloc_trim"))]


def check(name, ok, what):
    if not ok:
        row = rows.get(name, {})
        bad.append(f"{name}: {what}: {row.get('verdict')}, told "
                   f"{row.get('told')} {row.get('reasons')}")


for name, row in rows.items():
    verdict = row["verdict"]
    check(name, verdict in ("told", "kept", "skipped") or
          verdict == "uncovered" and name in UNSEEN, "verdict")
    if verdict == "skipped":
        print(f"skip    {name}: {row['why']}")
    elif verdict == "uncovered":
        check(name, row["why"], "uncovered without a reason")
    elif verdict == "told" and row["mechanism"] == "site":
        check(name, row["told"] == "exact", "range")

for name, reason in REASONS.items():
    row = rows.get(name, {})
    if row.get("verdict") != "skipped":
        check(name, row.get("verdict") == "told" and
              reason in row["reasons"], f"must be told as {reason}")
for name in ("mmap MAP_FIXED_NOREPLACE that fails", "posix_madvise DONTNEED"):
    check(name, rows[name]["verdict"] == "kept" and
          rows[name]["told"] == "no", "releases nothing")
if "glibc" in expect:
    for name in MALLOC:
        check(name, rows[name]["verdict"] == "told", "glibc gives it back")
else:
    check("free of many, and all given back",
          rows["free of many, and all given back"]["verdict"] == "told",
          "every allocator gives something back")
if "free" in expect:
    check("free, by the byte", rows["free, by the byte"].get("told") == "exact",
          "asked for")
if len(MALLOC) < 8 or len(rows) < 50:
    bad.append(f"only {len(rows)} rows")
print(table["total"])
for line in bad:
    print("FAILED ", line)
sys.exit(bool(bad))
