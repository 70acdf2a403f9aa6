#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the log files of a program's ranks say of call sites.

  check.py [--without RANK] [--alone] [--line "N EVENT: EXPRESSION"]... FILE...

Every FILE has to hold exactly N lines of EVENT for which EXPRESSION, over the line's fields, is true (FILE.RANK is not looked at); and all files have to say the same
of call sites, but for their own rank (--alone: need not).
"""
import json
import sys


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def about_sites(lines):
    """In order for each communicator; which of two is looked at first depends on the rank's threads."""
    own = ("ts", "wall", "host", "pid", "rank", "crank")
    said = [{k: v for k, v in line.items() if k not in own} for line in lines if line["event"].startswith("symmetry")]
    return sorted(said, key=lambda line: line.get("comm", ""))


def holds(expression, line):
    try:
        return bool(eval(expression, {}, line))
    except NameError:  # another form of the event, without that field
        return False


def main(args):
    wants, files, alone, without = [], [], False, "none"
    while args:
        arg = args.pop(0)
        if arg == "--line":
            count, rest = args.pop(0).split(" ", 1)
            event, expression = rest.split(":", 1)
            wants.append((int(count), event, expression.strip()))
        elif arg == "--alone":
            alone = True
        elif arg == "--without":
            without = args.pop(0)
        elif arg.endswith("." + without):
            continue
        else:
            files.append((arg, read(arg)))
    bad = [] if files else ["no log files"]
    for path, lines in files:
        for count, event, expression in wants:
            n = sum(1 for line in lines if line["event"] == event and holds(expression, line))
            if n != count:
                bad.append(f"{path}: {n} lines {event}, expected {count}: {expression}")
        if not alone and about_sites(lines) != about_sites(files[0][1]):
            bad.append(f"{path} says something else than {files[0][0]}")
    for text in bad:
        print("FAILED:", text, file=sys.stderr)
    return 1 if bad else 0


sys.exit(main(sys.argv[1:]))
