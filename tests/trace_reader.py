#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A reader of traces from what lapse-trace(5) says alone: a JSON object a
record, in the order of time, and one that counts. trace_reader.py FILE"""
import json
import struct
import sys

KINDS = {3: "release", 4: "publish", 5: "deliver", 6: "overflow", 7: "watch",
         8: "unwatch", 9: "event"}
SIZES = {"f64": "<d", **{f"{t}{8 << i}": "<" + "BHIQ"[i] if t in "ux" else
                         "<" + "bhiq"[i] for t in "uxi" for i in range(4)}}
f = open(sys.argv[1], "rb")


def get(at, form):
    f.seek(at)
    return struct.unpack(form, f.read(struct.calcsize(form)))


def text(raw):
    return raw.split(b"\0")[0].decode()


def fields(layout, data):
    out = {}
    for name, kind in (x.split(":") for x in layout.split()):
        size = len(data) if kind == "str" else int(kind[1:]) // 8
        raw, data = data[:size], data[size:]
        value = raw.decode() if kind == "str" else \
            struct.unpack(SIZES[kind], raw)[0]
        out[name] = hex(value) if kind[0] == "x" else value
    return out, data.hex()


def record(ring, body):
    kind, flags, tid, turn, number, ticks = struct.unpack_from("<4xHHIIQQ", body)
    r = {"kind": KINDS.get(kind, kind), "ring": ring, "number": number,
         "tid": tid, "turn": turn, "ticks": ticks}
    if kind == 3:
        start, end, pc, r["path"], r["reason"], inside = \
            struct.unpack_from("<QQQBBB", body, 32)
        r.update(start=hex(start), end=hex(end) if end else None, pc=hex(pc),
                 inside=[None, "allocator", "loader", "libc"][inside])
        r["stack"] = struct.unpack_from("<Q", body, 128)[0] if flags & 1 else 0
    elif kind < 9:
        start, end, r["seq"], r["subscriber"], r["reason"] = \
            struct.unpack_from("<QQQII", body, 32)
        r.update(start=hex(start), end=hex(end))
    else:
        index, length = struct.unpack_from("<II", body, 32)
        ready, name, layout = get(types_at + 256 * index, "<I4x64s184s")
        r["event"] = text(name) if ready == 1 else None
        r["fields"], r["data"] = fields(text(layout), body[40:40 + length])
    return r


magic, version, _, _, types_at, _, heads_at, rings_at, ring_bytes, rings, \
    block = get(0, "<QIIQQQQQQII")
lost, = get(104, "<Q")
pid, _, ended = get(120, "<III")
assert magic.to_bytes(8, "little") == b"ll_trac1" and version == 1
found, overwritten = [], 0
for ring in range(rings):
    begin, end, _, _, off = get(heads_at + 64 * ring, "<QQQQI")
    at = max(0, -(-(begin - ring_bytes) // block) * block)
    expected = 0
    while at < end and off != 2:
        place = rings_at + ring * ring_bytes + at % ring_bytes
        size, kind = get(place, "<IH")
        f.seek(place)
        if kind > 2:
            found.append(record(ring, f.read(size)))
            overwritten += found[-1]["number"] - expected
            expected = found[-1]["number"] + 1
        at = (at // block + 1) * block if kind == 1 else at + size
for r in sorted(found, key=lambda r: r["ticks"]):
    print(json.dumps(r))
print(json.dumps({"kind": "summary", "pid": pid, "ended": ended == 1, "read":
                  len(found), "overwritten": overwritten, "lost": lost}))
