#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What table.py makes of results and logs that are made up here.

usage: table_test.py [--wrong]    --wrong: the status of table.py for a program with a wrong loss
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import table

STEPS, SETTLE, RANKS = 6, 3, 2
S = 1_000_000_000  # step n, from 0, is issued at n + 1 s; the mark behind it lies 0.5 s later
NAMES = ("calls", "substituted", "fused", "scatters", "scatters_substituted", "scatters_produced", "reduces",
         "reduces_substituted")


def counted(*values):
    return dict(zip(NAMES, values))


def result(rank, loaded, ms=2.0, losses=None):
    return {
        "rank": rank, "ranks": RANKS, "losses": [value.hex() for value in losses or [4.0, 3.0, 2.0, 1.5, 1.25, 1.0]],
        "ms": ms, "issued": [float(n + 1) for n in range(STEPS)],
        "marks": {"settle": {"wall": SETTLE + 0.5, "monotonic_ns": (SETTLE * 2 + 1) * S // 2},
                  "end": {"wall": STEPS + 0.5, "monotonic_ns": (STEPS * 2 + 1) * S // 2}},
        "counters": {"begin": counted(0, 0, 0, 0, 0, 0, 0, 0), "settle": counted(10, 5, 2, 6, 1, 1, 3, 0),
                     "end": counted(30, 23, 11, 12, 5, 3, 9, 4)} if loaded else None,
    }


def line(event, at, **fields):
    return {"ts": int(at * S), "wall": at, "level": "info", "event": event, "comm": "c0", **fields}


def tried(at, by, op="allgather", shard=64, **more):
    fields = {"crank": 0, "context": "a", "m": 4, "n": 4, "k": 4, "batch": 1, "trans": "tn", "type": "bf16",
              "gathered": "b", "stage": "ways", "calls": 10, "clock": "device", "ring_ms": 1.0, "nccl_ms": 2.0,
              "parts_ms": "none"}
    return line("tried", at, op=op, shard=shard, by=by, **fields | more)


def way(by, reason, over, calls=500, **more):
    """A site's line at the end; `over` are calls over the ring and by NCCL."""
    fields = {"op": "allgather", "shard": 64, "crank": 0, "context": "a", "calls": calls}
    return line("site_way", 7, by=by, reason=reason, over_ring=over[0], over_nccl=over[1], **fields | more)


def log(more=()):
    """A site over the ring and one by NCCL, the latter chosen in step 3."""
    return [tried(1.5, "duel"), tried(1.9, "ring", stage="duel"), tried(2.5, "nccl", "reducescatter", 32), *more]


class Folder:
    """A folder with runs of the program p."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        for number in (1, 2):
            for rank in range(RANKS):
                self.write(f"plain-{number}", rank, result(rank, False, ms=3.0 + rank))
                self.write(f"slipring-{number}", rank, result(rank, True), log() if rank == 0 else [])

    def write(self, run, rank, outcome, lines=None):
        base = os.path.join(self.folder.name, f"p.{run}.rank{rank}.")
        if outcome:
            with open(base + "json", "w", encoding="utf-8") as file:
                json.dump(outcome, file)
        if lines is not None:
            with open(base + "decisions", "w", encoding="utf-8") as file:
                file.write("".join(json.dumps(one) + "\n" for one in lines) + '{"ts":1,"cut')

    def remove(self, name):
        os.remove(os.path.join(self.folder.name, name))

    def run(self, *options):
        done = subprocess.run([sys.executable, os.path.join(HERE, "table.py"), *options, self.folder.name, "p"],
                              capture_output=True, text=True, check=False)
        cells = next((one for one in done.stdout.splitlines() if one.startswith("| p ")), "").strip("| ").split(" | ")
        return done.returncode, dict(zip(table.HEAD, cells)), done.stdout + done.stderr


class Rows(unittest.TestCase):
    def setUp(self):
        self.at = Folder()
        self.addCleanup(self.at.folder.cleanup)

    def expect(self, status, cells=None, words="", options=()):
        got, row, text = self.at.run(*options)
        self.assertEqual(got, status, text)
        for name, value in (cells or {}).items():
            self.assertEqual(row[name], value, text)
        self.assertIn(words, text)

    def right(self, percent, *lines, **options):
        """What is right in a run that logs these, when the other one logs nothing."""
        self.at.write("slipring-2", 0, result(0, True), [])
        self.at.write("slipring-1", 0, result(0, True), lines)
        self.expect(0, {"right way": percent}, **options)

    def test_all_is_well(self):
        self.expect(0, {
            "runs": "2", "losses equal to NCCL's": "6/6", "gathers moved": "72/80", "reduce-scatters moved": "16/24",
            "fused": "36", "produced": "8", "right way": "-", "settled after": "step 3", "stuck": "0 of 4",
            "ms a step, NCCL": "4.000", "slipring": "2.000", "ratio": "2.000 (2.000..2.000)",
        })

    def test_ratios(self):
        for number, nccl in ((1, 3.0), (2, 1.0)):
            for rank in range(RANKS):
                self.at.write(f"plain-{number}", rank, result(rank, False, ms=nccl))
        self.expect(0, {"ratio": "1.000 (0.500..1.500)"})
        for rank in range(RANKS):
            for ending in ("json", "decisions"):
                self.at.remove(f"p.slipring-2.rank{rank}.{ending}")
        self.expect(0, {"ratio": "1.000", "runs": "1"})

    def test_right_way(self):
        """Of the calls since the choice those that went by it."""
        self.right("90.0%", tried(1, "ring"), way("ring", "measured", (90, 10)))
        self.right("0.0%", tried(1, "ring"), way("nccl", "measured", (0, 90)))
        self.right("-", tried(1, "ring"))
        self.right("0.0%", way("ring", "measured", (90, 0)), words="slipring-1: measured, but by no line: allgather")

    def test_rows(self):
        """By their calls, each by its latest line; the duel's ring_ms is of the parts that were chosen."""
        self.right("75.0%", tried(1, "ring", m=8, ring_ms=3.0), tried(2, "ring", calls=30, ring_ms=9.0),
                   tried(3, "ring", calls=30), way("ring", "measured", (90, 0)))
        for stage, percent in (("ways", "100.0%"), ("duel", "0.0%")):
            self.right(percent, tried(2, "ring", stage=stage, ring_ms=3.0, parts_ms="1:2.5,2:1.5"),
                       way("ring", "measured", (90, 0)))

    def test_ties(self):
        for by, clock, ring, percent in (
            ("nccl", "device", 1.97, "100.0%"), ("nccl", "device", 1.95, "0.0%"), ("nccl", "host", 1.91, "100.0%"),
            ("nccl", "host", 1.89, "0.0%"), ("ring", "host", 2.0, "100.0%"), ("ring", "device", 2.01, "0.0%"),
        ):
            over = (90, 0) if by == "ring" else (0, 90)
            self.right(percent, tried(1, by, clock=clock, ring_ms=ring), way(by, "measured", over))

    def test_what_the_program_took(self):
        """Of a duel's rows, where that is certain, whatever their own times."""
        for felt, stage, percent in (("ring", "duel", "100.0%"), ("nccl", "duel", "0.0%"), ("sites", "duel", "0.0%"),
                                     ("ring", "ways", "0.0%")):
            self.right(percent, line("duel", 1, sites=1, calls=8, ring_ms=1.0, nccl_ms=1.1, by=felt),
                       tried(1, "ring", stage=stage, ring_ms=3.0), way("ring", "measured", (90, 0)))

    def test_groups(self):
        """Their calls have no rows; what is certain of the program decides."""
        for by, felt, percent in (("ring", "ring", "90.0%"), ("nccl", "nccl", "10.0%"), ("nccl", "ring", "0.0%")):
            self.right(percent, line("duel", 1, sites=1, calls=8, ring_ms=1.0, nccl_ms=1.1, by=felt),
                       line("duel", 2, sites=1, calls=8, ring_ms=1.0, nccl_ms=1.0, by="sites"),
                       way(by, "program", (90, 10)))
        self.expect(0, {"settled after": "step 1"})

    def test_sites_without_trials(self):
        right, other = [tried(1, "ring"), way("ring", "measured", (60, 0))], {"shard": 32}
        self.right("100.0%", *right, way("nccl", "known", (10, 30), **other))
        self.right("37.5%", *right, way("ring", "unmeasured", (7, 0), calls=100, **other))
        self.right("100.0%", *right, way("ring", "unmeasured", (7, 0), calls=99, **other))
        self.right("100.0%", *right, way("nccl", "measured", (0, 60), crank=1, context="b"))

    def test_right_way_of_all_runs(self):
        self.at.write("slipring-2", 0, result(0, True), [tried(1, "ring"), way("ring", "measured", (30, 0))])
        self.at.write("slipring-1", 0, result(0, True), [tried(1, "nccl"), way("nccl", "measured", (0, 10))])
        self.expect(0, {"right way": "75.0%"})

    def test_contexts(self):
        """Each is a site; 0 is that of the size's first one."""
        ways = [way("ring", "measured", (90, 0), context="a"), way("nccl", "measured", (0, 10), context="b")]
        self.right("90.0%", tried(1, "ring"), tried(1, "nccl", context="b"), *ways)
        self.right("100.0%", tried(1, "ring", context="0"), tried(1, "nccl", ring_ms=2.0, context="b"), *ways)
        self.expect(0, {"stuck": "0 of 2"})

    def test_context_without_lines(self):
        """It goes by what the size's first site has measured, and is right where that is; of another size, by nothing."""
        ways = [way("ring", "measured", (60, 0), context="a"), way("ring", "measured", (40, 0), context="b")]
        self.right("100.0%", tried(1, "ring"), *ways,
                   words="slipring-1: measured, by another site's line: allgather shard=64 context=b calls=500")
        self.right("0.0%", tried(1, "ring", ring_ms=3.0), *ways)
        self.right("60.0%", tried(1, "ring"), ways[0], way("ring", "measured", (40, 0), context="b", shard=32),
                   words="measured, but by no line: allgather shard=32")

    def test_stuck(self):
        self.at.write("slipring-2", 0, result(0, True), log([tried(4.5, "duel")]))
        self.expect(0, {"stuck": "1 of 4"}, "p: p.slipring-2: stuck allgather shard=64 context=a: by=duel")
        self.at.write("slipring-2", 0, result(0, True), log([way("ring", "unmeasured", (0, 0), 200, shard=8)]))
        self.expect(0, {"stuck": "1 of 5"}, "stuck allgather shard=8 context=a calls=200: never measured")
        self.at.write("slipring-2", 0, result(0, True), log([way("ring", "unmeasured", (0, 0), 199, shard=8)]))
        self.expect(0, {"stuck": "0 of 5"})

    def test_settled_late(self):
        self.at.write("slipring-1", 0, result(0, True), log([tried(5.2, "ring")]))
        self.expect(0, {"settled after": "step 6"})
        for number in (1, 2):
            self.at.write(f"slipring-{number}", 0, result(0, True), [])
        self.expect(0, {"settled after": "-", "stuck": "0 of 0"})

    def test_other_bits(self):
        self.at.write("slipring-1", 1, result(1, True, losses=[4.0, 3.0, 2.0, 1.5, 1.251, 1.0]))
        self.expect(0, {"losses equal to NCCL's": "4/6, 8.0e-04"})
        self.expect(1, words="WRONG p: losses differ by 7.99e-04", options=("--tolerance", "1e-4"))

    def test_as_far_as_nccl_from_itself(self):
        """Four times as far, and no further."""
        self.at.write("plain-2", 0, result(0, False, losses=[4.0, 3.0, 2.02, 1.5, 1.25, 1.0]))
        for third, status, words in ((2.08, 0, "p: NCCL's runs differ from each other: 2/6, 9.9e-03"),
                                     (2.1, 1, "WRONG p: losses differ by 4.76e-02")):
            self.at.write("slipring-1", 0, result(0, True, losses=[4.0, 3.0, third, 1.5, 1.25, 1.0]))
            self.expect(status, words=words)

    def test_wrong_losses(self):
        for losses in ([4.0, 3.0, 2.0, 1.5, 1.25, 1.1], [4.0, 3.0, 2.0, 1.5, 1.25, float("nan")], [4.0, 3.0]):
            self.at.write("slipring-2", 0, result(0, True, losses=losses))
            self.expect(1, words="WRONG p: losses")

    def test_a_run_that_did_not_end(self):
        self.at.remove("p.slipring-2.rank1.json")
        self.expect(1, {"runs": "1 of 2"}, "WRONG p: p.slipring-2 has not ended on all ranks")
        for name in ("p.slipring-2.rank0.json", "p.slipring-1.rank0.json", "p.slipring-1.rank1.json"):
            self.at.remove(name)
        self.expect(1, {"runs": "0 of 2", "slipring": "-", "ratio": "-", "gathers moved": "-"}, "no run of slipring")

    def test_slipring_was_not_there(self):
        self.at.write("slipring-1", 1, result(1, False))
        self.expect(1, words="WRONG p: p.slipring-1: slipring was not loaded")

    def test_slipring_was_there(self):
        self.at.write("plain-1", 1, result(1, True))
        self.expect(1, words="WRONG p: p.plain-1: slipring was loaded")

    def test_an_error_in_the_log(self):
        self.at.write("slipring-1", 0, result(0, True), log([line("cuda_error", 3, call="x") | {"level": "error"}]))
        self.expect(1, words="WRONG p: p.slipring-1 rank 0: cuda_error")


def wrong():
    at = Folder()
    at.write("slipring-1", 0, result(0, True, losses=[4.0, 3.0, 2.0, 1.5, 1.25, 1.1]))
    status, _, text = at.run()
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(wrong()) if sys.argv[1:] == ["--wrong"] else unittest.main()
