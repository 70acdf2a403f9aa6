#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes a report's figures from the raw log lines, and reads the page and the trace with readers of their own.

    check_figures.py --report SLIPRING_REPORT --trace SLIPRING_TRACE [--want-fused] [--want-arrows] [--want-tried] [--twice] FOLDER

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


def site_of(gather, phases):
    if gather["decision"] == "pass":
        return ("passed", gather["reason"], gather["shard"])
    before = [p for p in phases[gather["comm"]].values() if p["first"] <= gather["call"]]
    if not before:
        return ("by shape", gather["shard"])
    p = max(before, key=lambda q: q["phase"])
    return ("site", p["phase"], (gather["call"] - p["first"]) % p["period"])


def phases_of(lines, options):
    """As make_logs.py makes them, on its communicator; of other logs as the report finds them, which tests/observe checks."""
    found = []
    for line in lines:
        if line["event"] == "places" and line["first"] == 1 and line["comm"].startswith("c0ffee"):
            ids = line["ids"].split(",")
            found.append({"event": "phase", "comm": line["comm"], "phase": 1, "first": 1, "period": ids.index(ids[0], 1)})
    if not found:
        for comm in json.loads(run(options.report, "--json", "-", options.folder))["places"]:
            found += [{**phase, "event": "phase", "comm": comm["communicator"]} for phase in comm["phases"]]
    return found


def sites(lines):
    phases, found = collections.defaultdict(dict), collections.defaultdict(list)
    for line in lines:
        if line["event"] == "phase":
            phases[line["comm"]].setdefault(line["phase"], line)
    for line in lines:
        if line["event"] == "gather":
            found[site_of(line, phases)].append(line)
    return found


def section(text, title):
    return re.search(r"^%s\n-+\n(.*?)(?:\n\n|\Z)" % re.escape(title), text, re.S | re.M).group(1)


def reasons_of(text):
    """Why the passed sites were passed, by label."""
    lines = itertools.takewhile(lambda l: not l.startswith("  reason "), section(text, "What was decided, and why").split("\n"))
    rows = text_rows([l for l in lines if l.startswith("  ")])
    return {row[0]: row[1].split(" ")[1] for row in rows if row[1].startswith("NCCL: ")}


def key_of_row(label, shape, reasons):
    if label in reasons:
        return ("passed", reasons[label], number(" ".join(shape.split(" ")[:2]), BYTES))
    label = label.split(": ")[1]
    m = re.match(r"site (\d+)(?:, phase (\d+))?$", label)
    if m:
        return ("site", int(m.group(2) or 1), int(m.group(1)))
    return (label, number(" ".join(shape.split(" ")[:2]), BYTES))


def late_of(gathers):
    """Of each, what it was exposed before the last rank had reached the call."""
    last = collections.defaultdict(int)
    for g in gathers:
        last[g["comm"], g["decision"], g["call"]] = max(last[g["comm"], g["decision"], g["call"]], g["begin"])
    return [min(g["exposed"], last[g["comm"], g["decision"], g["call"]] - g["begin"]) for g in gathers]


def check_row(row, raw, nranks, reasons):
    label, shape, calls, gathered, median, p90, exposed, late, overlap = row
    g = raw.pop(key_of_row(label, shape, reasons), None)
    if g is None:
        return check(False, "row %s has no lines" % label)
    time = [x["end"] - x["begin"] for x in g]
    hidden = sum(max(0, t - x["exposed"]) for t, x in zip(time, g))
    most = max(collections.Counter((x["pid"], x["crank"]) for x in g).values())
    check(int(calls) == most, "%s: %s calls, not %d" % (label, calls, most))
    check(near(number(gathered, BYTES), most * nranks * g[0]["shard"]), "%s: gathered %s" % (label, gathered))
    for name, shown, exact in [("median", median, percentile(time, 50)), ("p90", p90, percentile(time, 90)),
                               ("exposed", exposed, percentile([x["exposed"] for x in g], 50)), ("late", late, percentile(late_of(g), 50))]:
        check(near(number(shown, UNITS), exact), "%s: %s is %s, not %d ns" % (label, name, shown, exact))
    check(abs(float(overlap[:-1]) - 100 * hidden / sum(time)) <= 0.51, "%s: overlap %s, not %.2f%%" % (label, overlap, 100 * hidden / sum(time)))


def check_decisions(text, lines):
    """Whether the program or graphs have made a site's calls."""
    table = [l for l in section(text, "What was decided, and why").split("\n") if l.startswith("  ")]
    rows = text_rows(list(itertools.takewhile(lambda l: not l.startswith("  reason "), table)))
    shown = {key_of_row(row[0], "", {}): row[1].split(":")[0] for row in rows if re.match(r"#\d+: site", row[0]) and not row[1].startswith("NCCL")}
    want = {key: " and ".join(sorted({g["reason"] for g in gathers}, reverse=True)) for key, gathers in sites(lines).items() if key[0] == "site"}
    check(shown == want, "decisions %s, not %s" % (shown, want))


def check_endings(text, lines):
    raw, seen = collections.defaultdict(list), 0
    for key, gathers in sites(lines).items():
        for g in gathers:
            if g["decision"] == "ring":
                raw[key, g["ended"]].append(g)
    for row in [re.split(r"  +", l.strip()) for l in section(text, "How gathers ended").split("\n") if re.match(r"  #\d+: site", l)]:
        label, ended, count, median, exposed, overlap, middle = row
        g, seen = raw[key_of_row(label, "", {}), ended], seen + 1
        time = [x["end"] - x["begin"] for x in g]
        hidden = 100 * sum(max(0, t - x["exposed"]) for t, x in zip(time, g)) / sum(time)
        shares = [max(0, t - x["exposed"]) / t for t, x in zip(time, g)]
        check(abs(float(middle[:-1]) - 100 * percentile(shares, 50)) <= 0.52, "%s %s: median overlap %s" % (label, ended, middle))
        check(int(count) == len(g), "%s %s: %s gathers, not %d" % (label, ended, count, len(g)))
        check(near(number(median, UNITS), percentile(time, 50)), "%s %s: median %s" % (label, ended, median))
        check(near(number(exposed, UNITS), percentile([x["exposed"] for x in g], 50)), "%s %s: exposed %s" % (label, ended, exposed))
        check(abs(float(overlap[:-1]) - hidden) <= 0.51, "%s %s: overlap %s, not %.2f" % (label, ended, overlap, hidden))
    want = sum(1 for key, _ in raw if key[0] == "site")
    check(seen == want, "%d rows of endings, not %d" % (seen, want))


def check_text(text, lines):
    check(all(len(l) <= 100 and l == l.rstrip() for l in text.split("\n")), "a line is longer than 100 columns or ends in spaces")
    raw, nranks = sites(lines), max(x.get("nranks", 0) for x in lines)
    rows = [re.split(r"  +", l.strip()) for l in section(text, "Call sites").split("\n") if re.match(r"  #\d+: ", l)]
    check(bool(rows) == bool(raw), "no rows in the table of call sites, or some without a gather")
    for row in rows:
        check_row(row, raw, nranks, reasons_of(text))
    if any(x["event"] == "gather" and x["decision"] == "ring" for x in lines):
        check_endings(text, lines)
        check_decisions(text, lines)
    check(not raw, "sites without a row: %s" % list(raw))
    ring = [x for x in lines if x["event"] == "gather" and x["decision"] == "ring"]
    time = sum(x["end"] - x["begin"] for x in ring)
    hidden = sum(max(0, x["end"] - x["begin"] - x["exposed"]) for x in ring)
    if ring:
        shown = re.search(r"Overlap reached\s+(\d+)%: of ([\d.]+ \S+) in moved gathers, ([\d.]+ \S+) were", text)
        check(abs(int(shown.group(1)) - 100 * hidden / time) <= 0.51, "overlap %s" % shown.group(0))
        check(near(number(shown.group(2), UNITS), time) and near(number(shown.group(3), UNITS), hidden), "sums of %s" % shown.group(0))
    for name, field in [("calls of all ranks", "calls"), ("moved to the ring", "substituted")]:
        total = sum(x[field] for x in lines if x["event"] == "summary")
        check(re.search(r"\b%d %s" % (total, name), text.replace("\n" + " " * 21, " ")), "total of %s is not %d" % (field, total))


def text_rows(table):
    """Cells of a table whose first column has no spaces; a column is parted from the next by two that are empty in all lines."""
    width = max(map(len, table))
    empty = [all(l[i : i + 1].strip() == "" for l in table) for i in range(width)]
    bounds = [i for i in range(2, width) if empty[i - 2] and empty[i - 1] and not empty[i]]
    rows = []
    for line in table:
        cells = [line[a:b].strip() for a, b in zip(bounds, bounds[1:] + [width])]
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [" ".join(filter(None, x)) for x in zip(rows[-1], cells)]
    return rows


def block(text, title):
    """The first table of a section."""
    lines = itertools.dropwhile(lambda l: not l.startswith("  "), section(text, title).split("\n"))
    return text_rows(list(itertools.takewhile(lambda l: l.startswith("  "), lines)))


def size_of(line):
    return line["comm"], line.get("op", "allgather"), line["shard"]


def name_sites(ways, tried):
    """Gives lines a context, 0 being that of the size's first site, and a label where a size has several."""
    contexts = collections.defaultdict(list)
    for line in ways + tried:
        known, context = contexts[size_of(line)], line.get("context", "0")
        line["site"] = known[0] if context == "0" and known and line["event"] == "tried" else context
        if line["site"] not in known:
            known.append(line["site"])
    for line in ways + tried:
        known = contexts[size_of(line)]
        line["label"] = " (%c)" % (ord("a") + known.index(line["site"])) if len(known) > 1 else ""


def names_site(text, line):
    """Whether a cell names the line's size and site."""
    m = re.match(r"([\d.]+ \w+)( \(.\))?(?:, (reduce-scatter|all-reduce))?$", text)
    return bool(m) and near(number(m.group(1), BYTES), line["shard"]) and (m.group(2) or "") == line["label"] and m.group(3) == WORDS.get(size_of(line)[1])


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
    comm, shard, gemm, calls, ring, nccl, whole, parts, shown, gain = row
    ways = {} if line["parts_ms"] == "none" else {int(k): float(v) for k, v in (x.split(":") for x in line["parts_ms"].split(","))}
    times = {int(k): float(v) for k, v in (x.split(":") for x in parts.split(", "))} if parts != "-" else {}
    what = "tried %s %s: " % (shard, gemm)
    check(comm == line["comm"] and names_site(shard, line), what + "communicator or shard")
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
        rows, whose = rows_of_choice(tried, size, first["site"], line["by"]), "times of .*? \\(a\\)(?:, (?:reduce-scatter|all-reduce))?"
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
    check(head == ["communicator", "shard of a rank", "calls", "way", "why", "since: ring", "NCCL"], "way: columns %s" % head)
    check([head] + rows == page.rows["ways"], "way: text and page differ:\n%s\n%s" % ([head] + rows, page.rows["ways"]))
    check(len(rows) == len(ways), "way: %d rows, not %d" % (len(rows), len(ways)))
    order = {comm: i for i, comm in enumerate(dict.fromkeys(row[0] for row in rows))}
    for (comm, shard, calls, way, why, *since), line in zip(rows, sorted(ways, key=lambda x: order.get(x["comm"], -1))):
        check(comm == line["comm"] and names_site(shard, line), "way: site %s, not %s" % (shard, line))
        check([int(calls), *map(int, since)] == [line["calls"], line["over_ring"], line["over_nccl"]], "way: calls of %s" % shard)
        check(way == {"ring": "ring", "nccl": "NCCL"}[line["by"]], "way: %s goes %s" % (shard, way))
        words = {"program": "what the program takes (duel)", "known": "rule of the tune file", "unmeasured": "not measured: as without trials"}
        if line["reason"] == "measured":
            check_times_of_way(why, line, next(x for x in ways if size_of(x) == size_of(line)), tried)
        else:
            check(why == words[line["reason"]], "way: why \"%s\"" % why)


def check_tried(text, page, lines):
    tried, duels, ways = (told(lines, event) for event in ("tried", "duel", "site_way"))
    name_sites(ways, tried)
    ways = list({(*size_of(x), x["site"]): x for x in ways}.values()) # the last one of each, where the first was
    check_ways(text, page, ways, tried)
    if not tried and not duels:
        return check("What was tried" not in text and "What was tried" not in " ".join(page.text), "a section of what was tried, without a line")
    check_duels(text, page, duels)
    if not tried:
        return
    head, *rows = block(text, "What was tried")
    check(head[:2] == ["communicator", "shard of a rank"], "columns of what was tried: %s" % head)
    check([head] + rows == page.rows["tried"], "text and page differ in what was tried:\n%s\n%s" % ([head] + rows, page.rows["tried"]))
    check(len(rows) == len(tried), "%d rows of what was tried, not %d" % (len(rows), len(tried)))
    order = {comm: i for i, comm in enumerate(dict.fromkeys(row[0] for row in rows))}
    tried.sort(key=lambda x: order.get(x["comm"], -1))
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
    for row in re.findall(r"^  (#\d+: \S+(?: \S+)*)  ", section(text, "Call sites"), re.M):
        check(row in words, "%s is not in the page" % row)
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
    p.add_argument("--twice", action="store_true", help="give each file a second time, as a copy")
    p.add_argument("folder")
    options = p.parse_args()
    lines = read(options.folder)
    lines += phases_of(lines, options)
    check(any(x["event"] in ("gather", "scatter") for x in lines), "no gather in the logs")
    check(not options.want_fused or any(x.get("ended") == "fused" for x in lines), "no fused gather in the logs")
    check(not options.want_tried or any(x["event"] == "tried" for x in lines), "no line tried in the logs")
    with tempfile.TemporaryDirectory() as dir:
        page, trace, inputs = os.path.join(dir, "r.html"), os.path.join(dir, "t.json"), [options.folder]
        if options.twice:
            subprocess.run(["cp", "-r", options.folder, os.path.join(dir, "copy")], check=True)
            inputs.append(os.path.join(dir, "copy"))
        text = run(options.report, "--html", page, "--text", "-", *inputs)
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
