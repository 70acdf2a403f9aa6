#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes a report's figures from the raw log lines, and reads the page and the trace with readers of their own.

    check_figures.py --report SLIPRING_REPORT --trace SLIPRING_TRACE [--want-fused] [--want-arrows] [--want-tried] [--want-contexts] [--twice] FOLDER

Fails with a line for each figure that is not what the lines say.
"""
import argparse
import collections
import glob
import html.parser
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

from check_scatters import WORDS, check_scatters

UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)


def near(shown, exact, digits=3):
    return abs(shown - exact) <= max(0.51, abs(exact) * 10 ** -(digits - 1) * 0.51)


def number(text, units):
    value, unit = text.split(" ")
    return float(value) * units[unit]


def percentile(values, percent):
    values = sorted(values)
    return values[(len(values) - 1) * percent // 100]


def read(folder):
    lines = []
    for name in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
        with open(name) as f:
            lines += [json.loads(line) for line in f]
    return lines


def size_of(line):
    return line["comm"], line.get("op", "allgather"), line["shard"]


def bytes_text(n):
    """As the report has it: three digits that count, or all where it is a whole number."""
    for unit in BYTES:
        if n < 1024 or unit == "TiB":
            break
        n /= 1024
    return "%d %s" % (n, unit) if n == int(n) and n < 1e6 else "%.*f %s" % (2 if n < 9.995 else 1 if n < 99.95 else 0, n, unit)


def name_sites(lines):
    """Gives lines of calls and of trials their call site, and a label. Of a size the sites are in the order of the lines site_way, then tried, then of the calls.
    Context 0, and one that is not told where sites have told their ways, is that of the size's first site."""
    events = ("site_way", "tried", "gather", "scatter")
    contexts, told_ways = collections.defaultdict(list), {size_of(x) for x in lines if x["event"] == "site_way"}
    of = sorted((x for x in lines if x["event"] in events), key=lambda x: (events.index(x["event"]), x.get("decision") == "pass", x.get("call", x["ts"])))
    for line in of:
        known, context = contexts[size_of(line)], line.get("context", "0")
        first = known and (context == "0" or line["event"] != "site_way" and context not in known and size_of(line) in told_ways)
        if not first and known == ["0"] and context != "0" and not any(x["event"] in ("site_way", "tried") and size_of(x) == size_of(line) for x in of):
            known[0] = context
            for x in of:
                x.update({"site": context} if x.get("site") == "0" and size_of(x) == size_of(line) else {})
        line["site"] = known[0] if first else context
        if line["site"] not in known:
            known.append(line["site"])
    for line in of:
        known = contexts[size_of(line)]
        line["label"] = " (%c)" % (ord("a") + known.index(line["site"])) if len(known) > 1 else ""
        line["called"] = "%s, %s%s" % (WORDS.get(size_of(line)[1], "all-gather"), bytes_text(line["shard"]), line["label"])


def site_of(gather):
    return gather["called"], "ring" if gather["decision"] == "ring" else "NCCL: " + gather["reason"]


def sites(lines):
    found = collections.defaultdict(list)
    for line in lines:
        if line["event"] == "gather":
            found[site_of(line)].append(line)
    return found


def section(text, title):
    return re.search(r"^%s\n-+\n(.*?)(?:\n\n|\Z)" % re.escape(title), text, re.S | re.M).group(1)


def name_of(label):
    """Without its number: names of one communicator are not those of another, numbers of all are."""
    return label.split(": ", 1)[1]


def late_of(gathers):
    """Of each, what it was exposed before the last rank had reached the call."""
    last = collections.defaultdict(int)
    for g in gathers:
        last[g["comm"], g["decision"], g["call"]] = max(last[g["comm"], g["decision"], g["call"]], g["begin"])
    return [min(g["exposed"], last[g["comm"], g["decision"], g["call"]] - g["begin"]) for g in gathers]


def check_row(row, raw):
    label, went, calls, median, p90, exposed, late, overlap = row
    g = raw.pop((name_of(label), went), None)
    if g is None:
        return check(False, "row %s has no lines" % label)
    time = [x["end"] - x["begin"] for x in g]
    hidden = sum(max(0, t - x["exposed"]) for t, x in zip(time, g))
    most = max(collections.Counter((x["pid"], x["crank"]) for x in g).values())
    check(int(calls) == most, "%s: %s calls, not %d" % (label, calls, most))
    for name, shown, exact in [("median", median, percentile(time, 50)), ("p90", p90, percentile(time, 90)),
                               ("exposed", exposed, percentile([x["exposed"] for x in g], 50)), ("late", late, percentile(late_of(g), 50))]:
        check(near(number(shown, UNITS), exact), "%s: %s is %s, not %d ns" % (label, name, shown, exact))
    check(abs(float(overlap[:-1]) - 100 * hidden / sum(time)) <= 0.51, "%s: overlap %s, not %.2f%%" % (label, overlap, 100 * hidden / sum(time)))


def check_decisions(text, lines):
    """Whether the program or graphs have made a site's calls."""
    table = [l for l in section(text, "What was decided, and why").split("\n") if l.startswith("  ")]
    rows = text_rows(list(itertools.takewhile(lambda l: not l.startswith("  reason "), table)))
    shown = {name_of(row[0]): row[1].split(":")[0] for row in rows[1:] if not row[1].startswith("NCCL")}
    want = {name: " and ".join(sorted({g["reason"] for g in gathers}, reverse=True)) for (name, went), gathers in sites(lines).items() if went == "ring"}
    check(shown == want, "decisions %s, not %s" % (shown, want))


def check_endings(text, lines):
    raw = collections.defaultdict(list)
    for (name, went), gathers in sites(lines).items():
        for g in gathers:
            if went == "ring":
                raw[name, g["ended"]].append(g)
    rows = block(text, "How gathers ended")[1:]
    for label, ended, count, median, exposed, overlap, middle in rows:
        g = raw[name_of(label), ended]
        if not g:
            check(False, "%s never ended by %s" % (label, ended))
            continue
        time = [x["end"] - x["begin"] for x in g]
        hidden = 100 * sum(max(0, t - x["exposed"]) for t, x in zip(time, g)) / sum(time)
        shares = [max(0, t - x["exposed"]) / t for t, x in zip(time, g)]
        check(abs(float(middle[:-1]) - 100 * percentile(shares, 50)) <= 0.52, "%s %s: median overlap %s" % (label, ended, middle))
        check(int(count) == len(g), "%s %s: %s gathers, not %d" % (label, ended, count, len(g)))
        check(near(number(median, UNITS), percentile(time, 50)), "%s %s: median %s" % (label, ended, median))
        check(near(number(exposed, UNITS), percentile([x["exposed"] for x in g], 50)), "%s %s: exposed %s" % (label, ended, exposed))
        check(abs(float(overlap[:-1]) - hidden) <= 0.51, "%s %s: overlap %s, not %.2f" % (label, ended, overlap, hidden))
    check(len(rows) == len(raw), "%d rows of endings, not %d" % (len(rows), len(raw)))


def check_calls(text, lines):
    """The table of call sites: a row for each, whatever way its calls went."""
    head, *rows = block(text, "Call sites")
    want = {x["called"] for x in lines if "called" in x}
    for x in lines: # sizes that only lines of shapes show
        if x["event"] in ("substitute", "pass", "place") and not any(size_of(x) == size_of(y) for y in lines if "called" in y):
            want.add("%s, %s" % (WORDS.get(x["op"], "all-gather"), bytes_text(x["shard"])))
    names = [name_of(row[0]) for row in rows]
    check(sorted(set(names)) == sorted(want), "call sites %s, not %s" % (sorted(set(names)), sorted(want)))
    check([row[0].split(":")[0] for row in rows] == ["#%d" % (i + 1) for i in range(len(rows))], "numbers of the call sites")
    for row in rows:
        cells = dict(zip(head, row))
        of = [x for x in lines if x.get("called") == name_of(row[0])]
        if names.count(name_of(row[0])) > 1:
            continue # of several communicators
        ways = [x for x in of if x["event"] == "site_way"]
        if ways:
            check(cells["calls"] == str(ways[-1]["calls"]) and cells["goes"] == {"ring": "ring", "nccl": "NCCL"}[ways[-1]["by"]], "%s: calls or way" % row)
        timed = [x for x in of if x["event"] in ("gather", "scatter") and x.get("decision", "ring") == "ring"]
        if not timed:
            check(cells.get("median", "-") == cells.get("hidden", "-") == "-", "%s has times" % row)
            continue
        time = [x["end"] - x["begin"] for x in timed]
        hidden = 100 * sum(max(0, t - x["exposed"]) for t, x in zip(time, timed)) / max(1, sum(time))
        check(near(number(cells["median"], UNITS), percentile(time, 50)), "%s: median %s" % (row[0], cells["median"]))
        check(sum(time) == 0 or abs(float(cells["hidden"][:-1]) - hidden) <= 0.51, "%s: hidden %s, not %.2f" % (row[0], cells["hidden"], hidden))


def check_text(text, lines):
    check(all(len(l) <= 100 and l == l.rstrip() for l in text.split("\n")), "a line is longer than 100 columns or ends in spaces")
    raw = sites(lines)
    check_calls(text, lines)
    for row in block(text, "Times of all-gathers")[1:] if raw else []:
        check_row(row, raw)
    if any(x["event"] == "gather" and x["decision"] == "ring" for x in lines):
        check_endings(text, lines)
        check_decisions(text, lines)
    check(not raw, "sites without a row: %s" % list(raw))
    ring = [x for x in lines if x["event"] == "gather" and x["decision"] == "ring"]
    time = sum(x["end"] - x["begin"] for x in ring)
    hidden = sum(max(0, x["end"] - x["begin"] - x["exposed"]) for x in ring)
    if ring:
        shown = re.search(r"Overlap reached\s+(\d+)%: of ([\d.]+ \S+) in gathers over the ring, ([\d.]+ \S+) were", " ".join(text.split()))
        check(abs(int(shown.group(1)) - 100 * hidden / time) <= 0.51, "overlap %s" % shown.group(0))
        check(near(number(shown.group(2), UNITS), time) and near(number(shown.group(3), UNITS), hidden), "sums of %s" % shown.group(0))
    for name, field in [("calls of all ranks", "calls"), ("over the ring", "substituted")]:
        total = sum(x[field] for x in lines if x["event"] == "summary")
        check(re.search(r"\b%d %s" % (total, name), " ".join(text.split())), "total of %s is not %d" % (field, total))


def text_rows(table):
    """Cells of a table whose first column is not broken, or has numbers of call sites; a column is parted from the next by two that are empty in all lines."""
    width = max(map(len, table))
    empty = [all(l[i : i + 1].strip() == "" for l in table) for i in range(width)]
    bounds = [i for i in range(2, width) if empty[i - 2] and empty[i - 1] and not empty[i]]
    rows, begins = [], "#" if any(l.startswith("  #") for l in table) else ""
    for line in table:
        cells = [line[a:b].strip() for a, b in zip(bounds, bounds[1:] + [width])]
        if not rows or (cells[0] and cells[0].startswith(begins)):
            rows.append(cells)
        else:
            rows[-1] = [" ".join(filter(None, x)) for x in zip(rows[-1], cells)]
    return rows


def block(text, title):
    """The first table of a section."""
    lines = itertools.dropwhile(lambda l: not l.startswith("  "), section(text, title).split("\n"))
    return text_rows(list(itertools.takewhile(lambda l: l.startswith("  "), lines)))


def check_contexts(lines):
    """Where each call of each rank was traced: of a site there are as many as the library says in the end, but for those of NCCL that no line is about."""
    calls = collections.Counter((x["pid"], size_of(x), x["site"]) for x in lines if x["event"] in ("gather", "scatter"))
    ways = [x for x in lines if x["event"] == "site_way"]
    check(len({x["context"] for x in lines if x["event"] == "gather"}) > 2, "no two call sites of gathers")
    for way in ways:
        n, gather = calls[way["pid"], size_of(way), way["site"]], way["op"] == "allgather"
        lost = any(x["dropped"] or x["failed"] or x["unfinished"] for x in lines if x["event"] == "trace_end")
        check(n == way["calls"] if gather and not lost else n <= way["calls"], "%d traced calls of %s, not %d" % (n, way["called"], way["calls"]))


def communicators(text):
    return [row[0] for row in block(text, "Communicators")[1:]]


def one_gemm(a, b):
    """Of one site, and tried with one GEMM."""
    return size_of(a) == size_of(b) and all(a[f] == b[f] for f in ("site", "m", "n", "k", "batch", "trans", "type", "gathered"))


def chosen_of(line, before, behind):
    alike = lambda x: one_gemm(x, line)
    words = {"nccl": "NCCL", "duel": "a duel, below"}.get(line["by"], "ring")
    if line["by"] == "ring" and line["m"]:
        words += {0: ", by the pace", 1: ", whole"}.get(line["parts"], ", %d parts" % line["parts"])
    begun = lambda x: alike(x) and x["stage"] == "ways"
    if any(map(begun, behind)):
        return words + " (tried again below)"
    earlier = sum(map(begun, before)) - (line["stage"] == "duel")
    return words + (" (again: this counts)" if earlier > 0 and line["by"] != "duel" else "")


def check_tried_row(row, line, chosen):
    site, gemm, calls, ring, nccl, whole, parts, shown, gain = row
    ways = {} if line["parts_ms"] == "none" else {int(k): float(v) for k, v in (x.split(":") for x in line["parts_ms"].split(","))}
    times = {int(k): float(v) for k, v in (x.split(":") for x in parts.split(", "))} if parts != "-" else {}
    what = "tried %s %s: " % (site, gemm)
    check(name_of(site) == line["called"], what + "call site")
    sizes = "%(m)d x %(n)d x %(k)d, " % line + ("batch %(batch)d, " % line if line["batch"] > 1 else "")
    check(gemm == (sizes + "%(trans)s, %(type)s, %%s %(gathered)s" % line % ("sent" if line.get("op") in WORDS else "gathered") if line["m"] else "no GEMM"), what + "not the GEMM %s" % line)
    check(calls == "%d, %s" % (line["calls"], line["clock"]) + ", duel" * (line["stage"] == "duel"), what + "calls %s" % calls)
    check(same(ring, line["ring_ms"]) and same(nccl, line["nccl_ms"]) and same(whole, ways.pop(1, None)), what + "times %s" % row)
    check(times.keys() == ways.keys() and all(same(str(times[p]), ways[p]) for p in times), what + "parts %s" % parts)
    check(shown == chosen, what + "chosen \"%s\", not \"%s\"" % (shown, chosen))
    check_gain(what, gain, line)


def same(text, exact):
    """A time in ms; none: 0, or not told."""
    return text == "-" if not exact else text != "-" and abs(float(text) - exact) <= exact * 5.1e-4 + 5.1e-5


def check_gain(what, gain, line):
    ms = over_ring(line)
    if line["by"] != "ring":
        return check(gain == "-", what + "gain %s" % gain)
    check(abs(float(gain.rstrip("%")) - 100 * (line["nccl_ms"] - ms) / line["nccl_ms"]) < 0.051, what + "gain %s" % gain)


def over_ring(line):
    """ms as it was chosen."""
    ways = dict(x.split(":") for x in line["parts_ms"].split(",") if ":" in x)
    return float(ways[str(line["parts"])]) if line["parts"] and line["m"] else line["ring_ms"]


def told(lines, event):
    return sorted((x for x in lines if x["event"] == event), key=lambda x: x["ts"])


def check_duels(text, page, duels):
    """What is said of each, in the order of the communicators and of time."""
    said = re.findall(r"- (\w+), duel of (\d+) sites?: (\d+) calls of the program took (\S+)( ms)? over the ring, (\S+)( ms)? by NCCL; (.*?)\.(?= - |$)",
                      " ".join(section(text, "What was tried").split()))
    order = {comm: i for i, comm in enumerate(dict.fromkeys(x[0] for x in said))}
    check(len(said) == len(duels), "duels: %d, not %d" % (len(said), len(duels)))
    for (comm, sites, calls, ring, ring_ms, nccl, nccl_ms, decided), line in zip(said, sorted(duels, key=lambda x: order.get(x["comm"], -1))):
        words = {"ring": "decided: ring", "nccl": "decided: NCCL", "sites": "not certain: each site by its own times"}[line["by"]]
        words += " for all of them" * (line["by"] != "sites" and line["sites"] != 1)
        check((comm, int(sites), int(calls), decided) == (line["comm"], line["sites"], line["calls"], words), "duels: %s, not %s" % (decided, line))
        check(same(ring, line["ring_ms"]) and same(nccl, line["nccl_ms"]) and (ring != "-", nccl != "-") == (bool(ring_ms), bool(nccl_ms)), "duels: times %s %s" % (ring, nccl))
        check("%s, duel of %s site" % (comm, sites) in " ".join(page.text), "duels: not in the page")


def rows_of_choice(tried, size, site, by):
    """The latest of a site that chose this, told together: of each GEMM one."""
    for want in (by, "duel"):
        at = max((i for i, x in enumerate(tried) if size_of(x) == size and x["site"] == site and x["by"] == want), default=-1)
        found = tried[at : at + 1] if at >= 0 else []
        for x in reversed(tried[: max(at, 0)]):
            if size_of(x) != size or any(x[f] != found[0][f] for f in ("site", "by", "stage")) or any(one_gemm(x, y) for y in found):
                break
            found.append(x)
        if found:
            return found
    return []


def check_times_of_way(why, line, first, tried):
    size, whose = size_of(line), "its own times"
    rows = rows_of_choice(tried, size, line["site"], line["by"])
    if not rows and first is not line:
        rows, whose = rows_of_choice(tried, size, first["site"], line["by"]), "times of #\\d+: " + re.escape(first["called"])
    if not rows:
        return check(why == "its own times, which these logs do not have", "way: why \"%s\", without a line" % why)
    m = re.match(whose + r"(?:, of (\d+) GEMMs by their calls)?: ring (\S+), NCCL (\S+)( ms)?$", why)
    check(m, "way: why \"%s\"" % why)
    calls = sum(x["calls"] for x in rows)
    means = [sum(ms(x) * x["calls"] for x in rows) / calls for ms in (over_ring, lambda x: x["nccl_ms"])]
    check(not m or int(m.group(1) or 1) == len(rows) and same(m.group(2), means[0]) and same(m.group(3), means[1]), "way: why \"%s\", not %s of %d rows" % (why, means, len(rows)))


def check_ways(text, page, ways, tried):
    if not ways:
        return check("Which way call sites go" not in text and not page.rows["ways"], "a section of ways, without a line")
    head, *rows = block(text, "Which way call sites go")
    check(head == ["call site", "calls", "way", "why", "since: ring", "NCCL"], "way: columns %s" % head)
    check([head] + rows == page.rows["ways"], "way: text and page differ:\n%s\n%s" % ([head] + rows, page.rows["ways"]))
    check(len(rows) == len(ways), "way: %d rows, not %d" % (len(rows), len(ways)))
    order = communicators(text)
    for (shard, calls, way, why, *since), line in zip(rows, sorted(ways, key=lambda x: order.index(x["comm"]))):
        check(name_of(shard) == line["called"], "way: site %s, not %s" % (shard, line))
        check([int(calls), *map(int, since)] == [line["calls"], line["over_ring"], line["over_nccl"]], "way: calls of %s" % shard)
        check(way == {"ring": "ring", "nccl": "NCCL"}[line["by"]], "way: %s goes %s" % (shard, way))
        words = {"program": "what the program takes (duel)", "known": "rule of the tune file", "unmeasured": "not measured: as without trials"}
        if line["reason"] == "measured":
            check_times_of_way(why, line, next(x for x in ways if size_of(x) == size_of(line)), tried)
        else:
            check(why == words[line["reason"]], "way: why \"%s\"" % why)


def check_tried(text, page, lines):
    tried, duels, ways = (told(lines, event) for event in ("tried", "duel", "site_way"))
    ways = list({(*size_of(x), x["site"]): x for x in ways}.values()) # the last one of each, where the first was
    check_ways(text, page, ways, tried)
    if not tried and not duels:
        return check("What was tried" not in text and "What was tried" not in " ".join(page.text), "a section of what was tried, without a line")
    check_duels(text, page, duels)
    if not tried:
        return
    head, *rows = block(text, "What was tried")
    check(head[:2] == ["call site", "GEMM: m, n, k, ops, types"], "columns of what was tried: %s" % head)
    check([head] + rows == page.rows["tried"], "text and page differ in what was tried:\n%s\n%s" % ([head] + rows, page.rows["tried"]))
    check(len(rows) == len(tried), "%d rows of what was tried, not %d" % (len(rows), len(tried)))
    tried.sort(key=lambda x: communicators(text).index(x["comm"]))
    for i, (row, line) in enumerate(zip(rows, tried)):
        check_tried_row(row, line, chosen_of(line, tried[:i], tried[i + 1 :]))
    for reason in ("trial", "measured", "gemm_whole"):
        check(not re.search(r"\b%s\b" % reason, section(text, "What to do")), "advice on %s" % reason)


class Page(html.parser.HTMLParser):
    """Tags that are closed as they were opened, and nothing from elsewhere."""
    VOID = {"meta", "link", "br", "rect", "line"}

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], collections.Counter(), []
        self.section, self.rows = None, collections.defaultdict(list)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        for name, value in attrs:
            check(name not in ("src", "onload", "onclick") and not (value or "").startswith(("http", "//")), "%s %s=%s" % (tag, name, value))
            check(name != "href" or value.startswith(("#", "data:,")), "link to %s" % value)
        if tag == "h2":
            self.section = dict(attrs).get("id")
        if tag == "tr":
            self.rows[self.section].append([])
        if tag in ("th", "td"):
            self.rows[self.section][-1].append("")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] += 1

    def handle_endtag(self, tag):
        check(self.open and self.open[-1] == tag, "</%s> closes %s" % (tag, self.open[-1:]))
        if self.open:
            self.open.pop()

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] in ("th", "td"):
            self.rows[self.section][-1][-1] += data


def check_page(name, text, lines):
    page = Page()
    with open(name, encoding="utf-8") as f:
        page.feed(f.read())
    page.close()
    check(not page.open, "not closed: %s" % page.open)
    check(page.tags["script"] == 0 and page.tags["svg"] > 2 and page.tags["rect"] > 20, "tags of the page: %s" % page.tags)
    words = " ".join(page.text)
    for row in block(text, "Call sites")[1:]:
        check(row[0] in words, "%s is not in the page" % row[0])
    check_tried(text, page, lines)


def check_disjoint(events):
    lanes = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            lanes[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for lane, spans in lanes.items():
        spans.sort()
        for a, b in zip(spans, spans[1:]):
            check(b[0] >= a[1] - 1e-3, "thread %s: slices overlap: %s %s" % (lane, a, b))


def check_trace(name, lines, options):
    with open(name, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    timed = [x for x in lines if x["event"] in ("span", "gather", "scatter", "collective", "nccl")]
    zero = min(x["begin"] for x in timed)
    want = collections.Counter((x["begin"] - zero, x["end"] - x["begin"]) for x in timed)
    have = collections.Counter((round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in slices)
    check(want == have, "slices and lines differ: %d missing, %d too many" % (sum((want - have).values()), sum((have - want).values())))
    pids = {e["pid"] for e in slices}
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    check(pids <= set(names) and len(set(names.values())) == len(names), "process names: %s" % names)
    check({(e["pid"], e["tid"]) for e in slices} <= threads, "a thread has no name")
    check_disjoint(events)
    check_arrows(events, slices, options)


def check_arrows(events, slices, options):
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    check(set(starts) == set(ends), "arrows without both ends")
    check(starts or not options.want_arrows, "no arrows")
    at = collections.defaultdict(list)
    for e in slices:
        at[e["pid"], e["tid"]].append(e)
    for i, s in starts.items():
        f = ends[i]
        check(s["ts"] <= f["ts"] + 1e-3 and s["pid"] != f["pid"] and f["bp"] == "e", "arrow %s goes back or nowhere" % i)
        for e in (s, f):
            check(any(x["ts"] <= e["ts"] + 1e-6 and e["ts"] < x["ts"] + x["dur"] - 1e-6 for x in at[e["pid"], e["tid"]]), "an end of arrow %s lies in no slice" % i)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(done.returncode == 0, "%s: exit status %d: %s" % (command[0], done.returncode, done.stderr.decode()[:500]))
    return done.stdout.decode("utf-8")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--report", required=True)
    p.add_argument("--trace", required=True)
    p.add_argument("--want-fused", action="store_true")
    p.add_argument("--want-arrows", action="store_true")
    p.add_argument("--want-tried", action="store_true")
    p.add_argument("--want-contexts", action="store_true")
    p.add_argument("--twice", action="store_true", help="give each file a second time, as a copy")
    p.add_argument("folder")
    options = p.parse_args()
    lines = read(options.folder)
    name_sites(lines)
    check(any(x["event"] in ("gather", "scatter") for x in lines), "no gather in the logs")
    check(not options.want_fused or any(x.get("ended") == "fused" for x in lines), "no fused gather in the logs")
    check(not options.want_tried or any(x["event"] == "tried" for x in lines), "no line tried in the logs")
    if options.want_contexts:
        check_contexts(lines)
    with tempfile.TemporaryDirectory() as dir:
        page, trace, inputs = os.path.join(dir, "r.html"), os.path.join(dir, "t.json"), [options.folder]
        if options.twice:
            subprocess.run(["cp", "-r", options.folder, os.path.join(dir, "copy")], check=True)
            inputs.append(os.path.join(dir, "copy"))
        text = run(options.report, "--html", page, "--text", "-", "--details", *inputs)
        run(options.trace, "-o", trace, *inputs)
        if not failures:
            check_text(text, lines)
            check_scatters(sys.modules[__name__], text, lines)
            check_page(page, text, lines)
            check_trace(trace, lines, options)
    print("\n".join(failures) or "%d lines: all figures are what they say" % len(lines))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
