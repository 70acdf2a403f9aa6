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


class Staged:
    """Of the logs in a folder. A call is one of the first when its shape (communicator, bytes, type, in
    place or not) has been gathered fewer than `first` times before, on its rank."""

    def __init__(self, folder, first):
        self.first, self.ranks = first, set()
        self.moved = self.passed = self.early = self.late = self.late_calls = 0
        self.counted = self.not_traced = 0
        self.after = 0  # staged behind the first calls of a communicator, whatever their shape
        self.shapes = collections.Counter()
        self.times = collections.defaultdict(list)  # (communicator, shape): {rank: ms} of later calls
        self.copies = collections.defaultdict(list)  # (kind, bytes): ns of later calls
        self.files = [path for end in ("jsonl", "log") for path in sorted(glob.glob(os.path.join(folder, f"*.{end}")))]
        for path in self.files:
            self.read(path)

    def read(self, path):
        later = set()
        for line in lines(path):
            what, rank = line["event"], (line.get("comm"), line.get("crank"))
            if what == "summary":
                self.counted += line["staged"]
            elif what == "trace_end":
                self.not_traced += line["sampled"] - line["written"]
            elif what == "span":
                if (*rank, line["decision"], line["call"]) in later and line["kind"] in COPIES:
                    self.copies[line["kind"], line["bytes"]].append(line["end"] - line["begin"])
            elif line["decision"] != "ring":
                self.passed += 1
            elif self.gather(line, rank):
                later.add((*rank, "ring", line["call"]))

    def gather(self, line, rank):
        """Whether it is none of the first."""
        self.ranks.add(rank)
        shape = (*rank, line["shard"], line["dtype"], line["in_place"])
        self.shapes[shape] += 1
        late = self.shapes[shape] > self.first
        self.moved += 1
        self.after += line["slot"] if line["call"] > self.first else 0
        if not late:
            self.early += line["slot"]
            return False
        self.late_calls += 1
        self.late += line["slot"]
        self.times[rank[0], line["shard"], line["dtype"], line["in_place"], rank[1]].append(line["end"] - line["begin"])
        return True

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
            "shapes": len({shape[2:] for shape in self.shapes}),
            "apart": self.apart(),
            "longest": self.longest(),
        }
