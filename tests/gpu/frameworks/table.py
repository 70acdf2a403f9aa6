#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of frameworks.sh: what slipring did in each program, and whether it computed the same.

    table.py [--tolerance 0.01] FOLDER NAME...

FOLDER has of each program NAME and each run N, from 1: NAME.plain-N.rankR.json and NAME.slipring-N.rankR.json, as
common.py writes them, and beside the latter the log NAME.slipring-N.rankR.decisions, in JSON at SLIPRING_LOG=info.
Counted are all ranks of all runs.

A site is op, comm, shard and context; a context of 0 is that of its size's first site, which has none at first. Its
rows are its GEMMs, each with what its last line `tried` says. A row agrees with what its site goes by when that is the
faster of the two; NCCL's is a tie, within 2%, or 5% by the host's clock; and where the line `duel` before says what is
certain of the whole program, when it is that (docs/trials.md). Right way: of the calls
behind each choice, outside of trials, by the lines `site_way`, those that go by it, times the share of the site's rows
that agree, weighted by their calls. A site that a tune file knows is right, and one without rows (its calls share
groups) that goes as the latest certain line `duel` says. One that was never measured is not right
in any call; with less than 100 calls it is left out. A site is stuck when its last line `tried` says `duel`, or it was
never measured in 200 calls or more.

Losses may differ by the tolerance, or by 4 times what NCCL's own runs differ by. Ratio: of the medians and, with
several runs, the smallest and the largest of run N with run N. Below the table: what is wrong. Exit status: 1 when
anything is.
"""
import argparse
import bisect
import glob
import itertools
import json
import math
import os
import re
import statistics
import sys

HEAD = (
    "program", "runs", "losses equal to NCCL's", "gathers moved", "reduce-scatters moved", "all-reduces moved", "fused", "produced",
    "right way", "settled after", "stuck", "ms a step, NCCL", "slipring", "ratio",
)
GEMM = ("m", "n", "k", "batch", "trans", "type", "gathered")
COUNTED, STUCK = 100, 200  # calls of a site that was never measured, from which it counts, and is stuck
TIMES_OWN = 4  # as far from NCCL as NCCL from itself


def events(path):
    """The lines of a log in JSON; one that was cut as the process ended is left out."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except ValueError:
                    pass


class Run:
    """What the ranks of one run left."""

    def __init__(self, folder, name, side, number):
        self.title = f"{name}.{side}-{number}"
        self.ranks = {rank: self.read(path) for rank, path in files(folder, self.title, "json")}
        self.logs = {rank: list(events(path)) for rank, path in files(folder, self.title, "decisions")}
        self.number = number

    @staticmethod
    def read(path):
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def whole(self):
        return bool(self.ranks) and len(self.ranks) == next(iter(self.ranks.values()))["ranks"]

    def ms(self):
        return max(one["ms"] for one in self.ranks.values())

    def behind(self, counter):
        """Counted behind step `settle`, on all ranks."""
        counted = (one["counters"] for one in self.ranks.values())
        return sum(one["end"][counter] - one["settle"][counter] for one in counted if one)


def files(folder, title, ending):
    """Rank and path of each, in the order of the ranks."""
    pattern = re.compile(re.escape(title) + r"\.rank(\d+)\." + ending)
    found = (pattern.fullmatch(os.path.basename(path)) for path in
             glob.glob(os.path.join(glob.escape(folder), glob.escape(title) + ".rank*." + ending)))
    return sorted((int(one[1]), os.path.join(folder, one[0])) for one in found if one)


def runs_of(folder, name, side):
    """Every run that left anything, in order."""
    pattern = re.compile(re.escape(f"{name}.{side}-") + r"(\d+)\.rank\d+\.(json|decisions)")
    numbers = {int(one[1]) for one in map(pattern.fullmatch, os.listdir(folder)) if one}
    return [Run(folder, name, side, number) for number in sorted(numbers)]


# --- losses ---------------------------------------------------------------------------------------------------------


class Difference:
    """Of the losses of two runs, over all ranks."""

    def __init__(self):
        self.equal, self.steps, self.most, self.finite = math.inf, 0, 0.0, True

    def add(self, one, other):
        for rank in one.ranks.keys() & other.ranks.keys():
            a, b = ([float.fromhex(text) for text in run.ranks[rank]["losses"]] for run in (one, other))
            self.steps = max(self.steps, len(a), len(b))
            same = [x == y for x, y in zip(a, b)]
            self.equal = min(self.equal, same.index(False) if False in same else len(same))
            self.finite &= all(map(math.isfinite, a + b)) and len(a) == len(b)
            for x, y in zip(a, b):
                if x != y and math.isfinite(x) and math.isfinite(y):
                    self.most = max(self.most, abs(x - y) / max(abs(x), abs(y)))

    def __bool__(self):
        return self.equal != math.inf

    def __str__(self):
        if not self:
            return "-"
        if not self.finite:
            return "not finite"
        return f"{self.equal}/{self.steps}" + (f", {self.most:.1e}" if self.equal < self.steps else "")


def losses(plain, slipring):
    """How far slipring's runs are from NCCL's, and NCCL's from each other."""
    by_number = {run.number: run for run in plain}
    between, alone = Difference(), Difference()
    for run in slipring:
        if plain:
            between.add(by_number.get(run.number, plain[0]), run)
    for one, other in itertools.combinations(plain, 2):
        alone.add(one, other)
    return between, alone


# --- sites ----------------------------------------------------------------------------------------------------------


def size(event):
    return event["op"], event["comm"], int(event["shard"])


def agrees(row, by):
    """Whether a row's line says that this way is the right one; or what the program took in its duel, if that is certain."""
    if row.get("felt") in ("ring", "nccl"):
        return by == row["felt"]
    ring, nccl = row["ring_ms"], row["nccl_ms"]
    if row["stage"] == "ways" and row["parts_ms"] != "none":
        ring = min(ring, *(float(part.split(":")[1]) for part in row["parts_ms"].split(",")))
    tie = 0.95 if row["clock"] == "host" else 0.98
    return ring <= nccl if by == "ring" else ring > nccl * tie


class Site:
    def __init__(self):
        self.rank, self.last, self.rows, self.way = None, None, {}, None
        self.like = None  # the size's first site, by whose choice it goes until it has its own
        self.felt_on, self.felt = None, None  # rank and line of the communicator's latest duel that is certain

    def never_measured(self, calls):
        return bool(self.way) and self.way["reason"] == "unmeasured" and self.way["calls"] >= calls

    def lines(self):
        """Those that it goes by."""
        return self.rows or (self.like.rows if self.like else {})

    def stuck(self):
        return bool(self.last) and self.last["by"] == "duel" or self.never_measured(STUCK)

    def choice(self):
        """Rank and line that tell of the latest one."""
        return (self.felt_on, self.felt) if not self.last and self.way else (self.rank, self.last)

    def right(self):
        """Calls that went the right way, and of how many."""
        if not self.way or self.way["reason"] == "unmeasured":
            return 0, self.way["calls"] if self.never_measured(COUNTED) else 0
        over = {by: self.way["over_" + by] for by in ("ring", "nccl")}
        by = self.way["by"]
        if self.way["reason"] == "known":
            return sum(over.values()), sum(over.values())
        if self.way["reason"] == "program" and not self.rows:
            return over[by] if self.felt and by == self.felt["by"] else 0, sum(over.values())
        rows = self.lines().values()
        agreeing, of = (sum(row["calls"] for row in some) for some in ([row for row in rows if agrees(row, by)], rows))
        return over[by] * agreeing / of if of else 0, sum(over.values())


class Sites:
    """Those of one run."""

    def __init__(self, run):
        self.run, self.all = run, {}
        lines = [(rank, event) for rank, log in run.logs.items() for event in log]
        ways = [event for _, event in lines if event["event"] == "site_way" and event["crank"] == 0]
        first = {}
        for event in ways:
            first.setdefault(size(event), event["context"])
        certain = {event["comm"]: (rank, event) for rank, event in lines
                   if event["event"] == "duel" and event["by"] != "sites"}
        for event in ways:
            site = self.of(event, first)
            site.way = event
            like = self.of(event | {"context": first[size(event)]}, first)
            site.like = None if like is site else like
            if event["comm"] in certain:
                site.felt_on, site.felt = certain[event["comm"]]
        felt = {}
        for rank, event in lines:
            if event["event"] == "duel":
                felt[event["comm"]] = event["by"]
            if event["event"] == "tried":
                if event["stage"] == "duel":
                    event["felt"] = felt.get(event["comm"])
                site = self.of(event, first)
                site.rank, site.last = rank, event
                site.rows[tuple(event[name] for name in GEMM)] = event

    def of(self, event, first):
        context = event["context"]
        context = first.get(size(event), context) if context == "0" else context
        return self.all.setdefault((*size(event), context), Site())

    def stuck(self):
        return [key for key, site in self.all.items() if site.stuck()]

    def settled(self):
        """The step, from 1, in which the last choice was logged; None without one."""
        steps = [bisect.bisect_left(self.run.ranks[rank]["issued"], event["wall"]) + 1
                 for rank, event in (site.choice() for site in self.all.values()) if event and event["by"] != "duel"]
        return max(steps) if steps else None

    def right(self):
        return [sum(counts) for counts in zip((0, 0), *(site.right() for site in self.all.values()))]

    def notes(self):
        for key, site in self.all.items():
            op, _, shard, context = key
            words = f"{op} shard={shard} context={context}" + (f" calls={site.way['calls']}" if site.way else "")
            if site.stuck():
                yield f"stuck {words}: {'never measured' if site.never_measured(STUCK) else 'by=duel'}"
            if site.way and site.way["reason"] == "measured" and not site.rows:
                whose = "by another site's line" if site.lines() else "but by no line"
                yield f"measured, {whose}: {words}"


# --- the table ------------------------------------------------------------------------------------------------------


class Program:
    def __init__(self, folder, name, tolerance):
        self.name = name
        self.all = {side: runs_of(folder, name, side) for side in ("plain", "slipring")}
        self.plain, self.slipring = ([run for run in self.all[side] if run.whole()] for side in self.all)
        self.between, self.alone = losses(self.plain, self.slipring)
        self.sites = [Sites(run) for run in self.slipring]
        self.tolerance = tolerance

    def wrong(self):
        """Words for each thing that is."""
        for side, done in (("plain", self.plain), ("slipring", self.slipring)):
            if not done:
                yield f"no run of {side} has ended"
        for side in self.all.values():
            yield from (f"{run.title} has not ended on all ranks" for run in side if not run.whole())
        for run in self.slipring:
            if not all(one["counters"] for one in run.ranks.values()):
                yield f"{run.title}: slipring was not loaded"
        for run in self.plain:
            if any(one["counters"] for one in run.ranks.values()):
                yield f"{run.title}: slipring was loaded"
        if self.between and not self.between.finite:
            yield "losses are not finite, or not as many"
        elif self.between and self.between.most > max(self.tolerance, TIMES_OWN * self.alone.most):
            yield f"losses differ by {self.between.most:.2e}"
        for run in self.slipring:
            for rank, log in run.logs.items():
                for event in log:
                    if event.get("level") == "error":
                        yield f"{run.title} rank {rank}: {event['event']} {event.get('msg', event.get('status', ''))}"

    def notes(self):
        if self.plain[1:] and self.alone.equal != self.alone.steps:
            yield f"NCCL's runs differ from each other: {self.alone}"
        for one in self.sites:
            yield from (f"{one.run.title}: {words}" for words in one.notes())

    def ratio(self):
        if not self.plain or not self.slipring:
            return "-"
        nccl, ours = (statistics.median(run.ms() for run in side) for side in (self.plain, self.slipring))
        by_number = {run.number: run.ms() for run in self.plain}
        pairs = [by_number[run.number] / run.ms() for run in self.slipring if run.number in by_number]
        return f"{nccl / ours:.3f}" + (f" ({min(pairs):.3f}..{max(pairs):.3f})" if len(pairs) > 1 else "")

    def cells(self):
        def moved(part, of):
            return f"{self.sum(part)}/{self.sum(of)}" if self.slipring else "-"

        steps = [one.settled() for one in self.sites]
        known = [one for one in steps if one is not None]
        stuck, sites = sum(len(one.stuck()) for one in self.sites), sum(len(one.all) for one in self.sites)
        right, of = (sum(counts) for counts in zip((0, 0), *(one.right() for one in self.sites)))
        nccl, ours = (statistics.median(run.ms() for run in side) if side else None
                      for side in (self.plain, self.slipring))
        ended, started = len(self.slipring), len(self.all["slipring"])
        return (
            self.name, str(ended) if ended == started else f"{ended} of {started}", str(self.between),
            moved("substituted", "calls"), moved("scatters_substituted", "scatters"),
            moved("reduces_substituted", "reduces"),
            str(self.sum("fused")), str(self.sum("scatters_produced")),
            f"{100 * right / of:.1f}%" if of else "-",
            f"step {max(known)}" if known else "-", f"{stuck} of {sites}",
            f"{nccl:.3f}" if nccl else "-", f"{ours:.3f}" if ours else "-",
            self.ratio(),
        )

    def sum(self, counter):
        return sum(run.behind(counter) for run in self.slipring)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tolerance", type=float, default=0.01,
                   help=f"relative, of a loss; {TIMES_OWN} times what NCCL's own runs differ by is allowed, too")
    p.add_argument("folder")
    p.add_argument("names", nargs="+", metavar="NAME")
    o = p.parse_args()
    programs = [Program(o.folder, name, o.tolerance) for name in o.names]
    for row in (HEAD, ("---",) * len(HEAD), *(one.cells() for one in programs)):
        print("| " + " | ".join(row) + " |")
    print("\nLosses: first steps that are equal to the bit, and the largest relative difference. Moved, fused, "
          "produced: behind step --settle. Right way: behind each choice. Ratio: above 1 slipring is faster.")
    bad = 0
    for one in programs:
        wrong = list(dict.fromkeys(one.wrong()))
        bad += bool(wrong)
        for words in wrong:
            print(f"WRONG {one.name}: {words}")
        for words in one.notes():
            print(f"{one.name}: {words}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
