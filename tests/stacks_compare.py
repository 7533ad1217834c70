# SPDX-License-Identifier: BSD-3-Clause
# stacks_compare.py GDB TRACE LEAST: the stacks that gdb saw at the sites and
# those of the trace's releases, see stacks_gdb.sh. Fails unless 99 % of the
# releases, LEAST at least, have the same.
import sys

PATHS = {0: "munmap", 1: "mmap", 2: "mremap", 3: "brk", 4: "madvise"}
PAGE = 4096


def read_gdb(path):
    hits = {}
    for line in open(path):
        word = line.split()
        if word[0] == "hit":
            frames = []
            hits.setdefault(int(word[1]), []).append(
                (word[2], int(word[3], 0), int(word[4], 0), frames))
        else:
            frames.append((int(word[1], 0), int(word[2], 0), word[3]))
    return hits


def read_trace(path):
    releases = []
    for line in open(path):
        word = line.split()
        if word[0] == "release":
            frames = []
            releases.append((int(word[1]), PATHS.get(int(word[2])),
                             int(word[3], 0), word[6], frames))
        elif word[0] == "frame":
            place = word[3] if len(word) > 3 else None
            name, offset = place.rsplit("+", 1) if place else (None, 0)
            pc = int(word[1], 0)
            frames.append((pc, pc - int(offset) if name else 0, name))
    return releases


def is_hit(release, hit):
    tid, path, start, end, frames = release
    if hit[0] != path:
        return False
    if path == "brk":
        return (hit[1] + PAGE - 1) // PAGE * PAGE == start
    if path == "mremap":  # what it shrinks by, perhaps
        return hit[1] <= start
    return hit[1] // PAGE * PAGE == start


def differs(frames, expected, end):
    more = expected[len(frames):]
    if end == "no-table" and all(gdb[2] == "None" for gdb in more):
        expected = expected[:len(frames)]  # what it guesses
    if len(frames) != len(expected):
        return "%d frames, not %d" % (len(frames), len(expected))
    for i, (mine, gdb) in enumerate(zip(frames, expected)):
        if i and mine[0] != gdb[0]:
            return "frame %d: %#x, not %#x" % (i, mine[0], gdb[0])
        if mine[1] and gdb[1] and mine[1] != gdb[1] and mine[2] != gdb[2]:
            return "frame %d: in %s, not %s" % (i, mine[2], gdb[2])
    return None


def main():
    hits, releases = read_gdb(sys.argv[1]), read_trace(sys.argv[2])
    at, right, names, paths = {}, 0, 0, {}
    for release in releases:
        tid, path, start, end, frames = release
        mine = hits.get(tid, [])
        i = at.get(tid, 0)
        while i < len(mine) and not is_hit(release, mine[i]):
            i += 1
        at[tid] = i + 1
        why = "gdb saw no such call" if i >= len(mine) else \
            differs(frames, mine[i][3], end)
        if why:
            print("%s %#x (%s): %s" % (path, start, end, why))
            for frame in frames:
                print("    %#x %s" % (frame[0], frame[2]))
            if i < len(mine):
                for frame in mine[i][3]:
                    print("        gdb %#x %s" % (frame[0], frame[2]))
            else:
                at[tid] = 0
            continue
        right += 1
        names += sum(1 for f in frames if f[2])
        inside = any(f[2] in ("free", "cfree", "__libc_free") for f in frames)
        key = "%s%s" % (path, " in free" if inside else "")
        paths[key] = paths.get(key, 0) + 1
    print("%d of %d releases as gdb sees them, %d names: %s" % (
        right, len(releases), names,
        ", ".join("%s %d" % p for p in sorted(paths.items()))))
    good = right >= int(sys.argv[3]) and right >= 0.99 * len(releases)
    sys.exit(0 if good else 1)


main()
