# SPDX-License-Identifier: BSD-3-Clause
"""Is what `lapse report` wrote right? For trace_report.sh: prints good.

trace_report.py WHAT FILE...; r is $tmp/r, with .json, .trace, .html, .count
"""
import collections
import json
import re
import sys
import xml.etree.ElementTree as tree


def no_constant(text):
    raise ValueError("no JSON: " + text)


def no_doubles(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), keys
    return dict(pairs)


def load(name):
    """Strictly: UTF-8, no NaN, no key twice."""
    with open(name, "rb") as file:
        return json.loads(file.read().decode("utf-8"),
                          parse_constant=no_constant,
                          object_pairs_hook=no_doubles)


def releases(report):
    return sum(p["releases"] for process in report["processes"]
               for p in process["paths"])


def text_range(event):
    return [int(x, 16) for x in event["args"]["range"].split("-")]


def perfetto(r):
    """The Trace Event Format: which keys a phase must have."""
    document = load(r + ".trace")
    events = document["traceEvents"]
    open_slices = {}
    for e in events:
        assert e["ph"] in "MibeC", e
        assert isinstance(e["pid"], int) and isinstance(e["tid"], int), e
        assert isinstance(e["ts"], (int, float)) and e["ts"] >= 0, e
        assert isinstance(e["name"], str) and e["name"], e
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "thread_name"), e
            assert isinstance(e["args"]["name"], str), e
        if e["ph"] == "i":
            assert e["s"] == "t" and e["cat"], e
        if e["ph"] == "C":
            assert all(isinstance(v, (int, float)) and v >= 0
                       for v in e["args"].values()) and e["args"], e
        if e["ph"] in "be":
            key = e["cat"], e["id"]
            if e["ph"] == "b":
                assert key not in open_slices, e
                open_slices[key] = e
            else:
                begin = open_slices.pop(key)
                assert begin["name"] == e["name"], e
                assert begin["pid"] == e["pid"] and begin["ts"] <= e["ts"], e
    assert not open_slices, open_slices
    threads = {(e["pid"], e["tid"]) for e in events
               if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "i"} <= threads
    report = load(r + ".json")
    assert sum(e.get("cat") == "release" for e in events) == releases(report)
    for by in "waiting", "watching":
        wanted = sum(s["told"] + s["untold"] if by == "waiting" else
                     s["watches"] for p in report["processes"]
                     for s in p["subscribers"])
        got = sum(e["ph"] == "b" and e["cat"] == by for e in events)
        assert got == wanted, (by, got, wanted)
    released = collections.Counter()
    for e in events:
        if e["ph"] == "C" and e["name"].startswith("released by "):
            key = e["pid"], e["name"][12:]
            assert e["args"]["bytes"] >= released[key], e
            released[key] = e["args"]["bytes"]
    wanted = collections.Counter()
    pids = collections.Counter(p["pid"] for p in report["processes"])
    for process in report["processes"]:
        if pids[process["pid"]] == 1:
            for p in process["paths"]:
                wanted[process["pid"], p["path"]] += p["bytes"]
    assert {k: v for k, v in wanted.items() if v} == \
        {k: v for k, v in released.items() if pids[k[0]] == 1}


def folded(r):
    report = load(r + ".json")
    for by in "count", "bytes", "hits":
        total = 0
        with open(r + "." + by, encoding="utf-8", errors="replace") as file:
            for line in file:
                match = re.fullmatch(r"([^; ]+(?:;[^; ]+)+);\[[a-z_]+\] "
                                     r"([1-9][0-9]*)\n", line)
                assert match, line
                total += int(match[2])
        field = "releases" if by == "count" else by
        assert total == sum(p[field] for process in report["processes"]
                            for p in process["paths"]), (by, total)


def html(r):
    with open(r + ".html", encoding="ascii") as file:
        text = file.read()
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "src=" not in text and "href=" not in text
    pictures = re.findall(r"<svg.*?</svg>", text, re.S)
    assert pictures
    drawn = 0
    for picture in pictures:
        svg = tree.fromstring(picture)
        wide, high = float(svg.get("width")), float(svg.get("height"))
        for e in svg.iter():
            if e.tag.endswith("rect"):
                x, y, w, h = (float(e.get(k))
                              for k in ("x", "y", "width", "height"))
                assert w >= 0 and h >= 0, e.attrib
                assert -20 <= x and x + w <= wide + 20, e.attrib
                assert -20 <= y and y + h <= high + 20, e.attrib
                title = e.find("{http://www.w3.org/2000/svg}title")
                match = re.match(r"(\d+) releases?: ", title.text or "") \
                    if title is not None else None
                drawn += int(match[1]) if match else 0
    report = load(r + ".json")
    if len(report["processes"]) > 6:
        return
    # Those of a part of a file, whose memory is not known, have no place.
    wanted = sum(p["releases"] for process in report["processes"]
                 for p in process["paths"] if p["bytes"] and p["path"] not in
                 ("open", "ftruncate", "truncate", "fallocate", "free"))
    assert drawn == wanted, (drawn, wanted)


def by_pid(report):
    return {p["pid"]: p for p in report["processes"]}


FIELDS = "releases", "bytes", "inside_allocator", "inside_loader", "inside_libc"


def counts(run, traced):
    run, traced = by_pid(load(run)), by_pid(load(traced))
    assert len(run) > 1 and traced, (len(run), len(traced))
    seen = 0
    for pid, process in traced.items():
        assert process["overwritten"] == process["lost"] == 0, process
        assert process["damaged"] == 0, process
        for p in run[pid]["paths"]:
            mine = [q for q in process["paths"] if q["path"] == p["path"]]
            for field in FIELDS:
                got = sum(q[field] for q in mine)
                assert got == p[field], (p["path"], field, got, p[field])
                seen += got > 0
    assert seen > 15, seen


def callers(run, traced):
    run, traced = by_pid(load(run)), by_pid(load(traced))
    for pid, process in traced.items():
        def table(callers, count):
            return sorted((c["module"], c["offset"], c["path"], c[count],
                           c["bytes"]) for c in callers)
        assert table(process["callers"], "releases") == \
            table(run[pid]["callers"], "count"), pid


def caller(traced, module, path, count, size):
    """At least so many: the program forks, and its child does as much."""
    for process in load(traced)["processes"]:
        mine = [c for c in process["callers"]
                if module in (c["module"] or "") and c["path"] == path]
        assert sum(c["releases"] for c in mine) == int(count), mine
        assert sum(c["bytes"] for c in mine) == int(size), mine
        assert all(c["via"] == path and re.fullmatch("[0-9a-f]{40}",
                                                     c["build_id"])
                   for c in mine), mine


def cache(traced, says):
    report = load(traced)
    process, = report["processes"]
    s, = process["subscribers"]
    hits, misses, gone = map(int, re.search(
        r"cache: (\d+) hits, (\d+) misses, (\d+) invalidated", says).groups())
    assert s["watches"] == misses == s["unwatches"], (s, says)
    assert process["watched_last"] == 0, process["watched_last"]
    assert s["told"] == s["published"] == process["hits"] > 0, s
    assert s["overflows"] == s["untold"] == 0, s
    assert gone >= 1, says
    assert 0 < s["wait_ns"]["median"] <= s["wait_ns"]["most"] < 60e9, s
    free = [c for c in process["callers"]
            if c["symbol"] == "copy_data" and c["via"] == "free"]
    assert sum(c["hits"] for c in free) == process["hits"], free


def hits(r):
    """Which release met a watch, found from the events of --perfetto."""
    events = load(r + ".trace")["traceEvents"]
    slices = [e for e in events if e.get("cat") == "watching"]
    end = {e["id"]: e["ts"] for e in slices if e["ph"] == "e"}
    watched = [(*text_range(e), e["ts"], end[e["id"]])
               for e in slices if e["ph"] == "b"]
    met = 0
    for e in events:
        if e.get("cat") == "release" and e["args"]["hits"]:
            start, stop = text_range(e)
            met += any(a < stop and b > start and t <= e["ts"] <= u
                       for a, b, t, u in watched)
    with open(r + ".html", encoding="ascii") as file:
        drawn = len(re.findall(r'<rect [^>]*class="h"', file.read()))
    assert met == drawn > 0, (met, drawn)


def killed(traced):
    report = load(traced)
    perl = [p for p in report["processes"] if p["name"] == "perl"]
    assert len(perl) == 10, len(perl)
    assert sorted(p["ended"] for p in perl) == [False] + 9 * [True]
    for p in perl:
        assert sum(q["bytes"] for q in p["paths"]
                   if q["path"] == "munmap") >= 10**7, p


globals()[sys.argv[1]](*sys.argv[2:])
print("good")
