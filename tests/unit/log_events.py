#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that docs/log.md lists exactly the events that the library logs, each with its fields.

Usage: log_events.py SOURCE_ROOT

An event of the code is a string in the event argument of slr_log(), slr_log_asked() or slr_log_tell(); its fields are the keys of the
format. An event of the page is a name in the first column of a table that begins with "event"; its fields are the words
in backquotes in the last column. comm, crank and msg are common to all and are not compared.
"""
import os
import re
import sys

LAYERS = ("base", "cache", "kernels", "plugin", "interpose")
COMMON = {"comm", "crank", "msg"}
STRING = r'"(?:\\.|[^"\\])*"'


def without_comments(text):
    keep = lambda m: m.group(0) if m.group(0)[0] == '"' else " "
    return re.sub(STRING + r"|/\*.*?\*/|//[^\n]*", keep, text, flags=re.S)


def arguments(text, at):
    """The arguments of a call whose parenthesis ends before `at`."""
    found, depth, begin = [], 0, at
    while at < len(text):
        if text[at] == '"':
            at = re.compile(STRING).match(text, at).end()
            continue
        if text[at] in ")]}" and depth == 0 or text[at] == "," and depth == 0:
            found.append(text[begin:at])
            begin = at + 1
            if text[at] != ",":
                return found
        depth += (text[at] in "([{") - (text[at] in ")]}")
        at += 1
    sys.exit("a call of slr_log does not end")


def literal(expression, text):
    """The strings in an expression, with those of the file's macros that it names."""
    for name, value in re.findall(r"^[ \t]*#define (\w+)[ \t]+(\".*)$", text, flags=re.M):
        expression = re.sub(r"\b%s\b" % name, lambda m, v=value: v, expression)
    return [s[1:-1] for s in re.findall(STRING, expression)]


def events_of_source(text):
    """Pairs of event and set of fields; None for fields that are not in the call."""
    text = re.sub(r"^[ \t]*#[ \t]*include.*", "", without_comments(text), flags=re.M)
    for call in re.finditer(r"(?<!void )\bslr_log(_asked|_tell)?\s*\(", text):
        args = arguments(text, call.end())
        args = args if call.group(1) == "_asked" else args[1:]
        form = literal(args[1], text) if len(args) > 1 and call.group(1) != "_tell" else []
        fields = set(re.findall(r"([a-z_0-9]+)=", " ".join(form))) - COMMON if form else None
        for event in literal(args[0], text):
            yield event, fields


def in_code(root):
    with open(os.path.join(root, "base/collectives.def"), encoding="utf-8") as rows:  # each has an event of its own
        counts = re.findall(r'^X\((?:[^,]+, ){4}"(\w+)"', rows.read(), flags=re.M)
    events = {event: {"reason", "n"} for event in counts}
    for layer in LAYERS:
        for folder, _, files in os.walk(os.path.join(root, layer)):
            for name in files:
                if not name.endswith((".c", ".h")):
                    continue
                with open(os.path.join(folder, name), encoding="utf-8") as source:
                    for event, fields in events_of_source(source.read()):
                        known = events.setdefault(event, fields)
                        events[event] = None if fields is None or known is None else known | fields
    return events


def on_page(text):
    events, table = {}, False
    for line in text.splitlines():
        if not line.startswith("|"):
            table = False
            continue
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells[0] == "event":
            table = True
        elif table:
            for event in re.findall(r"`([a-z_0-9]+)`", cells[0]):
                events[event] = set(re.findall(r"`([a-z_0-9]+)`", cells[-1])) - COMMON
    return events


def differences(code, page):
    for event in sorted(code.keys() - page.keys()):
        yield f"{event}: is logged, but not on the page"
    for event in sorted(page.keys() - code.keys()):
        yield f"{event}: is on the page, but not logged"
    for event in sorted(code.keys() & page.keys()):
        if code[event] is None:
            continue
        for field in sorted(code[event] - page[event]):
            yield f"{event}: the field {field} is logged, but not on the page"
        for field in sorted(page[event] - code[event]):
            yield f"{event}: the field {field} is on the page, but not logged"


def self_test():
    code = dict(events_of_source("""
        #define HEAD "site=%u "
        void slr_log(int level, const char *event, const char *form, ...);
        /* slr_log(INFO, "comment", "x=%d", 1); */
        slr_log(INFO, ring ? "one" : "two", "comm=%s a=%d "
                "b=%s", name(x, ")"), y);
        slr_log_asked("three", HEAD "c=%d", z);
        slr_log(WARN, "four", form
        #include "counters.def"
        );
        slr_log(WARN, "five", "msg=%s", z);"""))
    assert code == {"one": {"a", "b"}, "two": {"a", "b"}, "three": {"site", "c"}, "four": None, "five": set()}, code
    page = on_page("""
| event | level | when | fields |
| --- | --- | --- | --- |
| `one`, `three` | info | `x` | `a`: 1 \\| 2; `site` |
| `six` | info | never | |

| field | means |
| --- | --- |
| `seven` | |""")
    assert page == {"one": {"a", "site"}, "three": {"a", "site"}, "six": set()}, page
    assert [d.split(":")[0] + d.split()[-1] for d in differences(code, page)] == [
        "fivepage", "fourpage", "twopage", "sixlogged", "onepage", "onelogged", "threepage", "threelogged"]


def main(root):
    self_test()
    with open(os.path.join(root, "docs", "log.md"), encoding="utf-8") as text:
        page = on_page(text.read())
    code = in_code(root)
    wrong = list(differences(code, page))
    if len(code) < 20:
        wrong.append(f"{root} is not the source tree: only {len(code)} events")
    for line in wrong:
        print("docs/log.md:", line, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
