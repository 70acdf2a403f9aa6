#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives broken logs to slipring report and slipring trace: each has to be told with file and line, the rest used, and nothing may crash.

    broken.py --report SLIPRING_REPORT --trace SLIPRING_TRACE --logs FOLDER [--least N]

FOLDER: sound logs (make_logs.py). Each case breaks one of them in one way and says what has to come out: the line that is told, a
word of the message, and the exit status.
"""
import argparse
import copy
import glob
import json
import os
import re
import random
import subprocess
import sys
import tempfile

NASTY = "<script>alert(1)</script>\"'&<!--\u001b[31m\u0085"
MUST = {
    "gather": "ts host pid comm crank call decision shard begin end exposed",
    "span": "ts host pid comm crank call lane kind begin end",
    "collective": "comm crank func begin end",
    "nccl": "func begin end",
    "nccl_sum": "func calls",
    "communicator": "comm crank nranks decision",
    "place": "op comm crank id call shard",
    "places": "comm crank first ids",
    "places_end": "comm crank calls",
    "tried": "comm crank shard calls ring_ms nccl_ms by",
    "duel": "comm crank sites calls by",
    "site_way": "comm crank shard calls by reason over_ring over_nccl",
    "summary": "calls bytes substituted passed",
    "count": "reason n",
}
WRONG = {
    "a text": "12",
    "null": None,
    "a list": [1, 2],
    "an object": {"a": 1},
    "negative": -7,
    "a fraction": 1.5,
    "too large": 2**63 - 1,
}


class Case:
    """Bytes of a file, and what is to be said about it. line 0: the file as a whole; None: nothing."""

    def __init__(self, name, data, line, word, status=1):
        self.name, self.data, self.line, self.word, self.status = name, data, line, word, status


def encode(lines):
    return "".join(json.dumps(x, separators=(",", ":")) + "\n" for x in lines).encode()


def index_of(lines, event):
    return next(i for i, x in enumerate(lines) if x["event"] == event)


def changed(lines, which, **fields):
    lines, i = copy.deepcopy(lines), index_of(lines, which)
    for key, value in fields.items():
        if value is KeyError:
            del lines[i][key]
        else:
            lines[i][key] = value
    return encode(lines), i + 1


def fields_cases(lines):
    for event, must in MUST.items():
        for field in must.split():
            yield Case("%s without %s" % (event, field), *changed(lines, event, **{field: KeyError}), '"%s"' % field)
    for event, field in [("gather", "shard"), ("gather", "begin"), ("span", "peer"), ("span", "bytes"), ("communicator", "nranks"),
                         ("nccl", "channels"), ("place", "id"), ("places_end", "more"), ("summary", "bytes"), ("tried", "calls"), ("duel", "sites"), ("site_way", "over_nccl"), ("gather", "pid")]:
        for name, value in WRONG.items():
            if not (field == "bytes" and value == 12):
                yield Case("%s.%s is %s" % (event, field, name), *changed(lines, event, **{field: value}), '"%s"' % field)
    for event, field in [("gather", "comm"), ("span", "kind"), ("collective", "func"), ("gather", "host"), ("count", "reason"), ("tried", "context"), ("site_way", "context")]:
        for name, value in [("a number", 5), ("null", None), ("true", True)]:
            yield Case("%s.%s is %s" % (event, field, name), *changed(lines, event, **{field: value}), '"%s"' % field)


def value_cases(lines):
    yield Case("end before begin", *changed(lines, "span", end=1), "end")
    yield Case("rank beyond the ranks", *changed(lines, "communicator", crank=99), "crank")
    for ids in ("0,x", "0,,1", ",", "0;1", "-1", "0,99999", "0 1", NASTY):
        yield Case("ids are %r" % ids[:20], *changed(lines, "places", ids=ids), '"ids"')
    yield Case("too large an id", *changed(lines, "place", id=100000), '"id"')
    for ids in ("-", "0,-,1,2", "4000"):
        yield Case("ids are %r" % ids, changed(lines, "places", ids=ids)[0], None, "", 0)
    yield Case("unknown lane", *changed(lines, "span", lane="left"), "lane")
    yield Case("unknown kind", *changed(lines, "span", kind="sideways"), "kind")
    yield Case("neither ring nor NCCL", *changed(lines, "tried", by="mpi"), '"by"')
    yield Case("a duel of three", *changed(lines, "duel", by="mpi"), '"by"')
    yield Case("a duel to come, in a duel", *changed(lines, "duel", by="duel"), '"by"')
    yield Case("a way to come", *changed(lines, "site_way", by="duel"), '"by"')
    for context in ("", "-1", "0x1", " 1", "1 ", "A", "fg", "1" * 17, NASTY):
        for event in ("tried", "site_way"):
            yield Case("%s.context is %r" % (event, context[:20]), *changed(lines, event, context=context), '"context"')
    yield Case("the largest context", changed(lines, "tried", context="f" * 16)[0], None, "", 0)
    yield Case("duels and ways without what they need not have", encode([{k: v for k, v in x.items() if x["event"] not in ("duel", "site_way") or k not in ("ring_ms", "nccl_ms", "op", "context")} for x in lines]), None, "", 0)
    for field, value in [("context", "c"), ("op", "reducescatter"), ("op", "allreduce")]:
        i = index_of(lines, "tried")
        yield Case("two sites at once, by %s" % field, encode(lines[:i] + [dict(lines[i], **{field: value})] + lines[i:]), None, "", 0)
    yield Case("another reason", changed(lines, "site_way", reason=NASTY)[0], None, "", 0)
    yield Case("most calls", changed(lines, "site_way", calls=2**62, over_ring=2**62, over_nccl=2**62)[0], None, "", 0)
    yield Case("a long duel", changed(lines, "duel", sites=2**62, calls=2**62, ring_ms=3.9e9, nccl_ms=1e-9)[0], None, "", 0)
    yield Case("many duels", encode(lines + [dict(lines[index_of(lines, "duel")], ts=10**12 + i) for i in range(3000)]), None, "", 0)
    yield Case("many sites", encode(lines + [dict(lines[index_of(lines, "site_way")], ts=10**12 + i, context="%x" % i) for i in range(1000)]), None, "", 0)
    yield Case("a third stage", *changed(lines, "tried", stage="ride"), '"stage"')
    yield Case("tried without a stage", changed(lines, "tried", stage=KeyError)[0], None, "", 0)
    for parts in ("", "1", "1:", ":1", "1:0.5,", "1:0.5 2:0.4", "1:-0.5", "1:nan", ",".join("%d:0.1" % p for p in range(1, 99)), "none,1:0.5", NASTY):
        yield Case("parts_ms is %r" % parts[:20], *changed(lines, "tried", parts_ms=parts), '"parts_ms"')
    for parts in ("9" * 40 + ":" + "9" * 400, "1:1e999,2:1e300", "0:0", "1:0.5,1:0.5"):
        yield Case("parts_ms may be %r" % parts[:20], changed(lines, "tried", parts_ms=parts)[0], None, "", 0)
    yield Case("tried without clock, parts, GEMM", changed(lines, "tried", **dict.fromkeys(["m", "n", "k", "batch", "trans", "type", "gathered", "clock", "parts_ms", "parts"], KeyError))[0], None, "", 0)
    yield Case("tried in no time", changed(lines, "tried", ring_ms=0, nccl_ms=0, calls=0)[0], None, "", 0)
    yield Case("tried for ever", changed(lines, "tried", ring_ms=3.9e9, nccl_ms=1e-9, calls=2**62, parts=2**62)[0], None, "", 0)
    yield Case("markup in what was tried", changed(lines, "tried", clock=NASTY, trans=NASTY, type=NASTY, gathered=NASTY)[0], None, "", 0)
    yield Case("tried often", encode(lines + [dict(lines[index_of(lines, "tried")], ts=10**12 + i) for i in range(3000)]), None, "", 0)
    yield Case("event is a number", *changed(lines, "gather", event=3), "event")
    yield Case("unknown event", changed(lines, "gather", event="gather_v9")[0], None, "gather_v9", 0)
    yield Case("unknown fields", changed(lines, "gather", colour="red", deep={"a": [1]})[0], None, "", 0)
    yield Case("largest numbers", changed(lines, "gather", shard=2**62, count=2**62, call=2**62, exposed=2**60)[0], None, "", 0)
    yield Case("times at the end of time", changed(lines, "span", begin=0, end=2**60)[0], None, "", 0)
    for field in ("comm", "reason", "ended", "dtype", "host"):
        yield Case("markup in %s" % field, changed(lines, "gather", **{field: NASTY})[0], None, "", 0)
    yield Case("markup in func", changed(lines, "collective", func=NASTY)[0], None, "", 0)
    yield Case("markup in a device's name", changed(lines, "trace_start", name=NASTY)[0], None, "", 0)
    i = index_of(lines, "gather")
    data = lines[:i] + [dict(lines[i], event="stalled", level="warn", msg=NASTY)] + lines[i:]
    yield Case("markup in a warning", encode(data), None, "", 0)


def raw_cases(lines):
    good = encode(lines)
    rows = good.splitlines(keepends=True)
    n = len(rows)
    for at in range(1, 13): # a file that ends in the middle of a line
        row = n * at // 13
        yield Case("ends within line %d" % (row + 1), b"".join(rows[:row]) + rows[row][: len(rows[row]) * at // 13], row + 1, "ends within")
    for name, junk, word in [
        ("a program's output", b"step 12 loss 0.4\n", "not JSON"), ("a traceback", b"Traceback (most recent call last):\n", "not JSON"),
        ("a text log", b"slipring[host:1 rank 0] info summary calls=1\n", "LOG_FORMAT=json"), ("NUL bytes", b"\0\0\0\0\n", "not JSON"),
        ("binary", bytes(range(128, 256)) + b"\n", "not JSON"), ("an array", b"[1,2,3]\n", "not JSON"), ("a number", b"17\n", "not JSON"),
        ("not UTF-8", b'{"event":"\xff\xfe"}\n', "not valid JSON"), ("a NUL in a text", b'{"event":"a\\u0000b"}\n', "not valid JSON"),
        ("a bare brace", b"{\n", "not valid JSON"), ("an empty object", b"{}\n", '"event"'), ("a comma too many", b'{"event":"gather",}\n', "not valid JSON"),
        ("single quotes", b"{'event':'gather'}\n", "not valid JSON"), ("deep", b'{"a":' + b"[" * 20000 + b"\n", "not valid JSON"),
        ("deep and closed", b'{"a":' + b"[" * 20000 + b"]" * 20000 + b"}\n", "not valid JSON"), ("a long line", b'{"a":"' + b"x" * 300000 + b'"}\n', "300008 bytes"),
        ("a huge number", b'{"event":"gather","ts":' + b"9" * 400 + b"}\n", "not valid JSON"), ("an exponent", b'{"event":"gather","ts":1e999}\n', "not valid JSON"),
        ("a half pair", b'{"event":"\\ud800"}\n', "not valid JSON"), ("two objects in a line", rows[3].strip() + rows[4], "not valid JSON"),
        ("escape sequences", b"\x1b[2J\x1b]0;owned\x07\n", "not JSON"), ("a byte order mark", b"\xef\xbb\xbf" + rows[3], "not JSON"),
    ]:
        yield Case(name, b"".join(rows[:7]) + junk + b"".join(rows[7:]), 8, word)
    yield Case("no newline at the end", good[:-1], None, "", 0)
    yield Case("carriage returns", good.replace(b"\n", b"\r\n"), None, "", 0)
    yield Case("blank lines", good.replace(b"\n", b"\n\n"), None, "", 0)
    yield Case("each line twice", b"".join(r + r for r in rows), None, "there twice", 0)
    yield Case("backwards", b"".join(reversed(rows)), None, "", 0)
    yield Case("empty", b"", 0, "empty", 3)
    yield Case("only newlines", b"\n\n\n", 0, "empty", 3)
    yield Case("only garbage", random.Random(7).randbytes(50000), 1, "", 3)
    yield Case("a page", b"<!doctype html>\n<p>hello\n", 1, "not JSON", 3)
    yield Case("many bad lines", b"x\n" * 5000 + good, 1, "4995 more like these")
    for seed in range(12): # bytes that are others
        rng, data = random.Random(seed), bytearray(good)
        for _ in range(40):
            data[rng.randrange(len(data))] = rng.randrange(256)
        yield Case("changed bytes %d" % seed, bytes(data), None, ":", None)


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    told = re.sub(r"^slipring: .*: \d+ bytes written\n", "", done.stderr.decode("utf-8", "replace"), flags=re.M)
    return done.returncode, done.stdout, told


def complaints(case, path, status, told):
    if "Sanitizer" in told or "runtime error" in told or status < 0 or status > 3:
        yield "exit status %d: %s" % (status, told[:2000])
    if case.status is not None and status != case.status:
        yield "exit status %d, not %d: %s" % (status, case.status, told[:300])
    if case.line and "%s:%d: " % (path, case.line) not in told:
        yield "no message about line %d: %s" % (case.line, told[:300])
    if case.line == 0 and "%s: " % path not in told:
        yield "no message about the file: %s" % told[:300]
    if case.word not in told:
        yield "no \"%s\" in: %s" % (case.word, told[:300])
    if case.status == 0 and case.line is None and not case.word and told:
        yield "a message about a sound file: %s" % told[:300]
    if any(c < " " and c != "\n" or c == "\x7f" for c in told):
        yield "control characters in: %r" % told[:300]


def check_outputs(dir, text, trace_status):
    if "\x1b" in text or "\u0085" in text:
        yield "a control character in the text"
    page = os.path.join(dir, "r.html")
    if os.path.exists(page):
        with open(page, encoding="utf-8") as f:
            words = f.read()
        if "<script" in words or "\x1b" in words or not words.endswith("</html>\n"):
            yield "the page is not what it should be"
    if trace_status in (0, 1):
        with open(os.path.join(dir, "t.json"), encoding="utf-8") as f:
            json.load(f)


def try_case(case, options, dir):
    path = os.path.join(dir, "broken.jsonl")
    for name in ("r.html", "t.json"):
        if os.path.exists(os.path.join(dir, name)):
            os.unlink(os.path.join(dir, name))
    with open(path, "wb") as f:
        f.write(case.data)
    status, text, told = run([options.report, "--text", "-", "--html", os.path.join(dir, "r.html"), path])
    found = list(complaints(case, path, status, told))
    status, _, told = run([options.trace, "-o", os.path.join(dir, "t.json"), path])
    if "no trace lines" not in told: # broken off before the first of them
        found += ["trace: " + c for c in complaints(case, path, status, told)]
    found += check_outputs(dir, text.decode("utf-8"), status)
    return ["%s: %s" % (case.name, c) for c in found]


def files_cases(options, dir):
    """Not one file's contents: paths that can not be read, copies, several runs."""
    good = sorted(glob.glob(os.path.join(options.logs, "*.jsonl")))
    empty, cut = os.path.join(dir, "folder"), os.path.join(dir, "cut.jsonl")
    os.mkdir(empty)
    with open(good[0], "rb") as f, open(cut, "wb") as g:
        g.write(f.read()[:20000])
    link = os.path.join(dir, "loop.jsonl")
    os.symlink(link, link)
    for name, args, want, word in [
        ("no such file", [os.path.join(dir, "none"), *good], 1, "none: can not be read"), ("only no such file", [os.path.join(dir, "none")], 3, "can not be read"),
        ("a link to itself", [link, *good], 1, "loop.jsonl: can not be read"), ("an empty folder", [empty, *good], 1, "folder: a folder without logs"),
        ("a file twice", [good[0], *good], 0, "the same log as"), ("a shorter copy", [cut, *good], 0, "cut.jsonl: the same log as"),
        ("one rank only", good[:1], 0, ""), ("a file that can not be written", ["--html", os.path.join(dir, "none", "x"), *good], 3, "can not be written"),
        ("no file", [], 2, "needs a log file"), ("an unknown option", ["--colour", *good], 2, "--colour"), ("run 0", ["--run", "0", *good], 2, "--run"),
        ("run 9", ["--run", "9", *good], 2, "there is no run 9"), ("a missing value", ["--run"], 2, "--run"),
        ("a device that is full", ["--text", "/dev/full", *good], 3, "could not be written"),
    ]:
        status, _, told = run([options.report, *args])
        if status != want or word not in told or "Sanitizer" in told:
            yield "%s: exit status %d, not %d: %s" % (name, status, want, told[:300])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--report", required=True)
    p.add_argument("--trace", required=True)
    p.add_argument("--logs", required=True)
    p.add_argument("--least", type=int, default=100)
    options = p.parse_args()
    with open(sorted(glob.glob(os.path.join(options.logs, "*.jsonl")))[0]) as f:
        lines = [json.loads(line) for line in f]
    cases = [*fields_cases(lines), *value_cases(lines), *raw_cases(lines)]
    failed = []
    with tempfile.TemporaryDirectory() as dir:
        for case in cases:
            failed += try_case(case, options, dir)
        failed += files_cases(options, dir)
    print("\n".join(failed))
    print("%d broken files, %d complaints" % (len(cases), len(failed)))
    return 1 if failed or len(cases) < options.least else 0


if __name__ == "__main__":
    sys.exit(main())
