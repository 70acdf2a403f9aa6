# SPDX-License-Identifier: Apache-2.0
"""How the shards of a run went, from the JSON logs of its ranks with SLIPRING_TRACE=1 (docs/tracing.md)."""

import collections
import glob
import json
import os
import statistics

READ = tuple(f'"event":"{name}"' for name in ("gather", "span", "summary", "trace_end"))
COPIES = ("pull", "push", "own")


def lines(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if any(word in line for word in READ):
                try:
                    yield json.loads(line)
                except ValueError:  # cut, as the process was killed
                    pass


def ratio(values):
    """Of the longest to the usual one."""
    return max(values) / max(1, statistics.median(values))


Gather = collections.namedtuple("Gather", "rank call shape slot ns")  # rank: (communicator, rank in it)


class Staged:
    """Of the logs in a folder. A call is one of the first when its shape (bytes, type, in place or not) has
    been gathered fewer than `first` times before, on its rank of its communicator; of a program that takes
    `steps` like steps, when it belongs to the first `first` steps."""

    def __init__(self, folder, first, steps=None):
        self.first, self.steps = first, steps
        self.gathers, self.spans = [], []
        self.passed = self.early = self.late = self.late_calls = self.counted = self.not_traced = 0
        self.times = collections.defaultdict(list)  # (communicator, shape, rank): ns of later calls
        self.copies = collections.defaultdict(list)  # (kind, bytes): ns of later calls
        for end in ("jsonl", "log"):
            for path in sorted(glob.glob(os.path.join(folder, f"*.{end}"))):
                self.read(path)
        self.moved, self.ranks = len(self.gathers), {one.rank for one in self.gathers}
        self.shapes = {one.shape for one in self.gathers}
        # Behind the first calls of a communicator, whatever their shape.
        self.after = sum(one.slot for one in self.gathers if one.call > first)
        self.classify()

    def read(self, path):
        for line in lines(path):
            what, rank = line["event"], (line.get("comm"), line.get("crank"))
            if what == "summary":
                self.counted += line["staged"]
            elif what == "trace_end":
                self.not_traced += line["sampled"] - line["written"]
            elif line["decision"] != "ring":
                self.passed += what == "gather"
            elif what == "gather":
                shape = (line["shard"], line["dtype"], line["in_place"])
                self.gathers.append(Gather(rank, line["call"], shape, line["slot"], line["end"] - line["begin"]))
            elif line["kind"] in COPIES:
                self.spans.append(((rank, line["call"]), line["kind"], line["bytes"], line["end"] - line["begin"]))

    def classify(self):
        calls = collections.Counter((one.rank, one.shape) for one in self.gathers)
        before, late = collections.Counter(), set()
        for one in sorted(self.gathers, key=lambda one: one.call):
            of = one.rank, one.shape
            before[of] += 1
            if before[of] <= (calls[of] * self.first / self.steps if self.steps else self.first):
                self.early += one.slot
                continue
            self.late_calls += 1
            self.late += one.slot
            late.add((one.rank, one.call))
            self.times[one.rank[0], one.shape, one.rank[1]].append(one.ns)
        for key, kind, size, ns in self.spans:
            if key in late:
                self.copies[kind, size].append(ns)

    def apart(self):
        """The median time of a gather on the slowest rank over that on the fastest: the largest of all shapes."""
        medians = collections.defaultdict(list)
        for (*shape, _), values in self.times.items():
            medians[tuple(shape)].append(statistics.median(values))
        return max((max(of) / max(1, min(of)) for of in medians.values() if len(of) > 1), default=None)

    def longest(self):
        """{kind of copy: the longest over the usual one of its size}"""
        worst = {}
        for (kind, _), values in self.copies.items():
            worst[kind] = max(worst.get(kind, 0), ratio(values))
        return worst

    def json(self):
        names = "moved passed early late late_calls after counted not_traced".split()
        value = {name: getattr(self, name) for name in names}
        return value | {
            "ranks": len(self.ranks),
            "shapes": len(self.shapes),
            "apart": self.apart(),
            "longest": self.longest(),
        }
