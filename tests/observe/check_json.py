#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the JSON form of a report with its layout in docs/report.md, with the text form, and with the log's lines.

    check_json.py JSON TEXT FOLDER
"""
import collections
import glob
import json
import os
import re
import sys

import check_scatters

COUNT, NUMBER, TEXT, MAYBE, YES = "count", "number", "text", "text or null", "bool"
GEMM = {"m": COUNT, "n": COUNT, "k": COUNT, "form": MAYBE, "parts": COUNT}
SITE = {"label": TEXT, "communicator": TEXT, "nranks": COUNT, "decision": TEXT, "reason": MAYBE, "call_site": COUNT, "shard": COUNT, "dtype": MAYBE,
        "in_place": YES, "calls": COUNT, "traced": COUNT, "median_ns": COUNT, "p90_ns": COUNT, "exposed_median_ns": COUNT, "late_median_ns": COUNT, "time_ns": COUNT,
        "hidden_ns": COUNT, "exposed_ns": COUNT, "ended": {None: COUNT}, "gemm": (None, GEMM), "callers": [TEXT]}
BUFFER = {"op": TEXT, "buffer": TEXT, "state": TEXT, "what": TEXT, "odd_rank": NUMBER, "like_rank": NUMBER,
          **dict.fromkeys("phase site shard calls since breaks moves odd_ranks value expected ordinal size offset".split(), COUNT)}
TOTALS = ["calls", "bytes", "substituted", "substituted_bytes", "passed", "fused", "gemm_chunks", "joined", "staged", "zero_copy", "pushed",
          "scatters", "scatters_substituted", "reduces", "reduces_substituted", "scatters_fused", "scatters_produced"]
CONTENT = ({"text": TEXT}, {"item": TEXT}, {"columns": [TEXT], "rows": [[TEXT]]})
LAYOUT = {
    "slipring_report": COUNT, "title": TEXT, "sections": [{"id": TEXT, "title": TEXT, "content": [CONTENT]}],
    "run": {"number": COUNT, "of": COUNT, "wall_ns": COUNT, "ns": COUNT, "processes": COUNT, "ranks": COUNT, "software_gpu": YES},
    "processes": [{"host": TEXT, "pid": COUNT, "rank": NUMBER, "version": MAYBE, "nccl": COUNT, "cuda": COUNT, "settings": MAYBE, "command": MAYBE}],
    "totals": {"known": YES, "whole": YES, **{name: COUNT for name in TOTALS}}, "reasons": {None: COUNT},
    "overlap": {"traced": COUNT, "time_ns": COUNT, "hidden_ns": COUNT, "exposed_ns": COUNT, "late_ns": COUNT}, "call_sites": [SITE],
    "reductions": [{"op": TEXT, "traced": COUNT, "time_ns": COUNT, "hidden_ns": COUNT, "exposed_ns": COUNT}],
    "places": [{"communicator": TEXT, **dict.fromkeys(["nranks", "silent", "calls", "sites", "symmetric", "breaks"], COUNT),
                "ranks": [dict.fromkeys(["rank", "listed", "calls", "more", "places", "unlisted_places", "first_unlisted"], COUNT)],
                "phases": [{"phase": COUNT, "first": COUNT, "period": COUNT, "by": TEXT}], "buffers": [BUFFER]}],
}
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)


def fits(value, layout):
    """Whether the value has that layout: a key None stands for any, a tuple for one of several."""
    if isinstance(layout, tuple):
        return any(fits(value, one) for one in layout)
    if isinstance(layout, list):
        return isinstance(value, list) and all(fits(x, layout[0]) for x in value)
    if isinstance(layout, dict):
        if not isinstance(value, dict):
            return False
        return all(fits(x, layout[None]) for x in value.values()) if None in layout else value.keys() == layout.keys() and all(fits(value[k], layout[k]) for k in layout)
    if layout in (COUNT, NUMBER):
        return type(value) is int and (layout == NUMBER or value >= 0)
    return value is None and layout in (None, MAYBE) or isinstance(value, {TEXT: str, MAYBE: str, YES: bool}.get(layout, tuple()))


def words(text):
    return re.sub(r"\s+", " ", text)


def check_sections(report, text):
    titles = [x["title"] for x in report["sections"]]
    check(titles[1:] == re.findall(r"^(\S.*)\n-+$", text, re.M), "sections %s" % titles)
    check(len({x["id"] for x in report["sections"]}) == len(titles), "two sections with one id")
    flat = words(text)
    for section in report["sections"]:
        for part in section["content"]:
            said = part.get("text") or part.get("item")
            check(not said or words(said) in flat, "not in the text: %s" % said)
            check("rows" not in part or all(len(row) == len(part["columns"]) for row in part["rows"]), "rows of %s" % section["id"])
    tables = sum("rows" in part for section in report["sections"] for part in section["content"])
    check(tables >= 3, "%d tables" % tables)


def check_figures(report, lines):
    for name in TOTALS:
        want = sum(x.get(name, 0) for x in lines if x["event"] == "summary")
        check(report["totals"][name] == want, "total %s is %d, not %d" % (name, report["totals"][name], want))
    counts = collections.Counter()
    for line in lines:
        if line["event"] == "count":
            counts[line["reason"]] += line["n"]
    check(report["reasons"] == dict(counts), "reasons %s" % report["reasons"])
    ring = [x for x in lines if x["event"] == "gather" and x["decision"] == "ring"]
    want = {"traced": sum(x["event"] == "gather" for x in lines), "time_ns": sum(x["end"] - x["begin"] for x in ring), "exposed_ns": sum(x["exposed"] for x in ring),
            "hidden_ns": sum(max(0, x["end"] - x["begin"] - x["exposed"]) for x in ring), "late_ns": report["overlap"]["late_ns"]}
    check(report["overlap"] == want, "overlap %s, not %s" % (report["overlap"], want))
    check(0 < want["late_ns"] < want["exposed_ns"] or not ring and want["late_ns"] == 0, "late %d" % want["late_ns"])
    for op, found in zip(("reducescatter", "allreduce"), report["reductions"]):
        (n, time, hidden, exposed) = check_scatters.traced(lines, op)
        check(found == {"op": op, "traced": n, "time_ns": time, "hidden_ns": hidden, "exposed_ns": exposed}, "traced %s: %s" % (op, found))
    check(len(report["reductions"]) == 2, "%d reductions" % len(report["reductions"]))
    sites = report["call_sites"]
    check(sum(s["time_ns"] for s in sites if s["decision"] == "ring") == want["time_ns"], "time of the sites")
    check(sum(s["hidden_ns"] for s in sites if s["decision"] == "ring") == want["hidden_ns"], "hidden time of the sites")
    ended = collections.Counter(x["ended"] for x in ring)
    for site in sites:
        ended.subtract({k: n for k, n in site["ended"].items() if site["decision"] == "ring"})
    check(not any(ended.values()), "endings %s" % ended)
    check(any(s["gemm"] for s in sites) == any(x["event"] == "fused" for x in lines), "fused GEMMs")
    hosts = {(x["host"], x["pid"]) for x in lines}
    check({(p["host"], p["pid"]) for p in report["processes"]} == hosts and report["run"]["processes"] == len(hosts), "processes")


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        report = json.load(f)
    with open(sys.argv[2], encoding="utf-8") as f:
        text = f.read()
    lines = []
    for name in glob.glob(os.path.join(sys.argv[3], "*.jsonl")):
        with open(name, encoding="utf-8") as f:
            lines += [json.loads(line) for line in f]
    for member in sorted(LAYOUT.keys() | report.keys()):
        check(member in report and member in LAYOUT and fits(report[member], LAYOUT[member]), "%s is not as the layout says" % member)
    if not failures:
        check_sections(report, text)
        check_figures(report, lines)
    print("\n".join(failures) or "the JSON is what the text and the lines say")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
