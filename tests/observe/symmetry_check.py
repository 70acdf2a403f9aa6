#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the log files of a program's ranks, and what `slipring report` finds in all of them.

  symmetry_check.py [--without RANK] [--report PROGRAM] [--line "N EVENT: EXPRESSION"]... [--most "N EVENT"]... FILE...

Every FILE has to hold exactly N lines of EVENT for which EXPRESSION, over the line's fields, is true; and at most N
lines of EVENT. FILE.RANK is not looked at, as if it were not there. The events comm, phase, rank and buffer are no
lines, but what the report says under "places"; site is what it says under "call_sites".
"""
import json
import subprocess
import sys

REPORTED = ("comm", "phase", "rank", "buffer", "site")


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def reported(program, paths):
    """The report's rows, as if they were lines."""
    text = subprocess.run([program, "--json", "-", *paths], check=True, stdout=subprocess.PIPE).stdout
    report = json.loads(text)
    rows = [{**row, "event": "site"} for row in report["call_sites"]]
    for comm in report["places"]:
        rows.append({**comm, "event": "comm"})
        for event, key in (("phase", "phases"), ("rank", "ranks"), ("buffer", "buffers")):
            rows += [{**row, "event": event} for row in comm[key]]
    return rows


def holds(expression, line):
    try:
        return bool(eval(expression, {}, line))
    except NameError:  # another form of the event, without that field
        return False


def main(args):
    wants, most, paths, without, program = [], [], [], "none", None
    while args:
        arg = args.pop(0)
        if arg == "--line":
            count, rest = args.pop(0).split(" ", 1)
            event, expression = rest.split(":", 1)
            wants.append((int(count), event, expression.strip()))
        elif arg == "--most":
            count, event = args.pop(0).split(" ", 1)
            most.append((int(count), event))
        elif arg == "--without":
            without = args.pop(0)
        elif arg == "--report":
            program = args.pop(0)
        elif not arg.endswith("." + without):
            paths.append(arg)
    bad = [] if paths else ["no log files"]
    files = [(path, read(path)) for path in paths]
    asked = any(event in REPORTED for _, event, _ in wants)
    report = [("the report", reported(program, paths))] if asked else []
    for count, event, expression in wants:
        for path, lines in report if event in REPORTED else files:
            n = sum(1 for line in lines if line["event"] == event and holds(expression, line))
            if n != count:
                bad.append(f"{path}: {n} lines {event}, expected {count}: {expression}")
    for count, event in most:
        for path, lines in files:
            n = sum(1 for line in lines if line["event"] == event)
            if n > count:
                bad.append(f"{path}: {n} lines {event}, expected at most {count}")
    for text in bad:
        print("FAILED:", text, file=sys.stderr)
    if bad:
        print(*(row for _, rows in report for row in rows), sep="\n", file=sys.stderr)
    return 1 if bad else 0


sys.exit(main(sys.argv[1:]))
