#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first line of a report, of runs that ended in different ways.

    verdicts.py SLIPRING_REPORT

Fails with a line for each verdict that is another one.
"""
import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20


class Log:
    """Rank 0 of two."""

    def __init__(self, settings=""):
        self.lines, self.ts = [], 10**9
        self.line("process", version="0.2.0", nccl=22809, cuda=13000, settings=settings, command="train.py")
        self.line("communicator", comm="c0ffee01", crank=0, nranks=2, decision="ring", protocol="pull")

    def line(self, event, **fields):
        self.ts += 10**9
        self.lines.append({"ts": self.ts, "host": "node7", "pid": 77, "rank": 0, "level": "info", "event": event, **fields})
        return self

    def tried(self, shard, ring, nccl, by):
        return self.line("tried", op="allreduce", comm="c0ffee01", crank=0, shard=shard, context="a", m=0, n=0, k=0, batch=0, trans="-", type="-",
                         gathered="-", stage="ways", calls=20, clock="device", ring_ms=ring, nccl_ms=nccl, parts_ms="none", by=by, parts=0)

    def duel(self, ring, nccl, by):
        return self.line("duel", comm="c0ffee01", crank=0, sites=1, calls=8, ring_ms=ring, nccl_ms=nccl, rounds=3, less=0, by=by)

    def way(self, shard, by, reason, over_ring=0, over_nccl=0, calls=None):
        return self.line("site_way", op="allreduce", comm="c0ffee01", crank=0, shard=shard, context="a", by=by, reason=reason, over_ring=over_ring,
                         over_nccl=over_nccl, calls=calls or over_ring + over_nccl + 60)

    def end(self, calls, moved, **reasons):
        self.line("summary", calls=0, bytes=0, substituted=0, substituted_bytes=0, passed=0, reduces=calls, reduces_substituted=moved)
        for reason, n in reasons.items():
            self.line("reduce_count", reason=reason, n=n)
        return self


def cases():
    won = Log().tried(MIB, 0.75, 1.0, "ring").way(MIB, "ring", "measured", over_ring=400)
    yield won.end(460, 430), "Won: 250 µs of the 1.00 ms (25.0%) that a call takes by NCCL, with its GEMM; 100 ms in 400 calls: measured at 1 call site."
    both = Log().tried(MIB, 0.75, 1.0, "ring").tried(2 * MIB, 3.0, 2.0, "nccl").way(MIB, "ring", "measured", over_ring=400)
    both.way(2 * MIB, "nccl", "measured", over_nccl=100)
    yield both.end(620, 430), "Won: 200 µs of the 1.20 ms (16.7%) that a call takes by NCCL, with its GEMM; 100 ms in 500 calls: measured at 2 call sites."
    program = Log().tried(MIB, 1.5, 1.0, "duel").duel(22.0, 22.5, "ring").way(MIB, "ring", "program", over_ring=400)
    yield program.end(460, 430), "Won: 0.500 ms of the 22.500 ms (2.2%) that 8 calls, and what is between them, take by NCCL: measured, by turns."
    even = Log().tried(MIB, 1.5, 1.0, "duel").duel(22.5, 22.4, "ring").way(MIB, "ring", "program", over_ring=400)
    yield even.end(460, 430), "Even: 0.100 ms of the 22.400 ms (0.4%)"
    lost = Log().tried(MIB, 1.5, 1.0, "duel").duel(25.0, 22.5, "sites").way(MIB, "ring", "program", over_ring=400)
    yield lost.end(460, 430), "Lost: 2.500 ms of the 22.500 ms (11.1%)"
    beside = Log().tried(MIB, 1.5, 1.0, "duel").duel(25.0, 22.5, "nccl").way(MIB, "nccl", "program", over_nccl=400)
    yield beside.end(460, 30), "Not worth it here: 8 calls, and what is between them, take 25.000 ms over the ring and 22.500 ms by NCCL"
    none = Log().tried(MIB, 1.5, 1.0, "nccl").way(MIB, "nccl", "measured", over_nccl=400)
    yield none.end(460, 30), "Not worth it here: at the one call site NCCL is faster, or as fast, and has the calls: measured there. Leave slipring out."
    part = Log().tried(MIB, 1.5, 1.0, "nccl").way(MIB, "nccl", "measured", over_nccl=400).way(2 * MIB, "nccl", "unmeasured", calls=7)
    yield part.end(467, 30), "Nothing won: at 1 call site NCCL is faster, or as fast, and has the calls; 1 other was not measured to the end, with 7 calls at most, and it takes up to 268."
    much = Log().tried(MIB, 1.5, 1.0, "nccl").way(MIB, "nccl", "measured", over_nccl=400).way(2 * MIB, "nccl", "unmeasured", calls=2900)
    yield much.end(3360, 30), "Nothing won: at 1 call site NCCL is faster, or as fast, and has the calls; 1 other was not measured, though tried."
    few = Log().way(MIB, "ring", "unmeasured", over_ring=3, calls=9)
    yield few.end(9, 3), "Not known whether it helped: the program made too few calls to compare ring and NCCL, 9 at most at one call site. It takes up to 268."
    yield Log("TRIALS=1 TRIALS_AFTER=4").way(MIB, "ring", "unmeasured", calls=9).end(9, 3), "Not known whether it helped: the program made too few calls to compare ring and NCCL, 9 at most at one call site. It takes up to 120."
    yield Log().way(MIB, "ring", "unmeasured", calls=900).end(900, 300), "Not known whether it helped: ring and NCCL were tried, but in half of the rounds or more their times could not be measured"
    end = Log().tried(MIB, 1.5, 1.0, "duel").duel(22.0, 25.0, "ring").way(MIB, "ring", "unmeasured", calls=100)
    yield end.end(100, 30), "Not known whether it helped: ring and NCCL were compared at the end of the run only: 8 calls, and what is between them, take 22.000 ms over the ring, 25.000 ms by NCCL."
    late = Log().tried(MIB, 0.75, 1.0, "ring").way(MIB, "ring", "measured", calls=90)
    yield late.end(90, 30), "Not known whether it helped: ring and NCCL were compared at the end of the run only. It takes up to 268 calls of a call site; there were 90 at most."
    failed = Log().tried(MIB, 0.75, 1.0, "ring").way(MIB, "ring", "measured", over_ring=400)
    yield failed.line("communicator_failed", comm="c0ffee01", crank=0, peer=1, call=9, msg="x").end(460, 430), "Failed, see What to do. Until then: Won: 250 µs of the 1.00 ms"
    yield Log("MIN_BYTES=0 TRIALS=0").end(9, 9), "Not known whether it helped: ring and NCCL were not compared, as SLIPRING_TRIALS=0 says."
    yield Log("TRIALS=05").end(9, 9), "Not known whether it helped: these logs do not say"
    yield Log().end(9, 9, graph=9), "Not known whether it helped: most calls are in CUDA graphs"
    yield Log().end(9, 0, below_min_bytes=8, trial=1), "Nothing was moved: all 9 calls stayed with NCCL, 8 of them for below_min_bytes: "
    yield Log().end(0, 0), "These logs show no all-gather, reduce-scatter or all-reduce."


def main():
    bad = n = 0
    for log, want in cases():
        n += 1
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log")
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in log.lines)
            text = subprocess.run([sys.argv[1], path], check=True, capture_output=True, text=True).stdout
        said = " ".join(text.split("===\n", 1)[1].split("\n  When ", 1)[0].split())
        if not said.startswith(want):
            print("said:   %s\nwanted: %s" % (said, want))
            bad += 1
    print("%d verdicts" % n)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
