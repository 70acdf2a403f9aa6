#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes logs as libslipring.so does (SLIPRING_LOG_FORMAT=json, TRACE=1), of a run that never was: for tests of what reads them.

    make_logs.py FOLDER [--ranks 4] [--calls 24] [--seed 1] [--untraced] [--slow-rank R] [--start NS] [--tried] [--old] [--graphs] [--scatters [--reduces]] [--contexts] [--phases]

One communicator whose calls repeat every three: a fused gather (32 MiB shards), one that a copy makes wait (8 MiB), one that the
host waits for (1 MiB, in place); in each iteration a passed gather of 64 KiB and an AllReduce. The second site's receive buffer
differs on the last rank. --tried: rank 0 has tried the ways of its call sites, some twice; with --old, by a library that tells no
contexts, duels and ways. --graphs:
the second site's gathers are in graphs, and every other one of the third's. --scatters: reduce-scatters as well, or all-reduces (scatter_logs.py).
--contexts: calls of the first site are two call sites in turn, from the seventh call on. --phases: buffers move, so that there are many phases of
iterations. All figures follow from the arguments.
"""
import argparse
import json
import os
import random

import scatter_logs

US = 1000


class Rank:
    def __init__(self, args, rank, rng):
        self.args, self.rank, self.rng = args, rank, rng
        self.lines, self.ts, self.pid = [], args.start, 4000 + rank + (args.seed - 1) * 100
        self.comm = "%08x" % (0xc0ffee00 + args.seed)
        self.counts = {}

    def log(self, event, level="info", at=None, **fields):
        self.ts = max(self.ts + 200, at or 0)
        head = {"ts": self.ts, "wall": round(1.79e9 + self.ts / 1e9, 6), "host": "node7", "pid": self.pid, "rank": self.rank, "level": level, "event": event}
        self.lines.append(json.dumps({**head, **fields}, separators=(",", ":")))

    def count(self, reason):
        self.counts[reason] = self.counts.get(reason, 0) + 1

    def common(self):
        return {"comm": self.comm, "crank": self.rank}

    def span(self, call, lane, kind, begin, end, peer=-1, piece=-1, size=0, decision="ring"):
        if not self.args.untraced:
            self.log("span", at=end, **self.common(), call=call, decision=decision, lane=lane, kind=kind, begin=begin, end=end, peer=peer, piece=piece, bytes=size)


def site_of(r, call):
    """A reduce-scatter has a number of its own in each iteration."""
    return (call - 1) % (4 if r.args.scatters else 3)


SITES = [(32 << 20, 0, "fused", 3), (8 << 20, 0, "other_operation", 0), (1 << 20, 1, "host_observes", 0)]
LINK, HBM = 350, 3000  # bytes/ns


def reason_of(r, call):
    site, turn = site_of(r, call), (call - 1) // 3
    return "graph" if r.args.graphs and (site == 1 or site == 2 and turn % 2) else "ring"


def context_of(r, call):
    """Of the trials; the first calls of a size have none yet."""
    return {"context": ("0" if call < 7 else (A, B)[(call - 1) // 3 % 2]) if r.args.contexts and site_of(r, call) == 0 else "0"} if not r.args.old else {}


def gather(r, call, t):
    """One moved gather from time t on; returns when the application's stream goes on."""
    n, me = r.args.ranks, r.rank
    shard, in_place, ended, parts = SITES[site_of(r, call)]
    slow = 1.4 if me == r.args.slow_rank else 1.0
    jitter = lambda: r.rng.randrange(0, 3 * US)
    begin = t
    staged = t + 4 * US + int(shard / HBM) + jitter()
    place = n - 1 if call > 6 else 0
    if not place:
        r.span(call, "publish", "stage", t + 4 * US, staged, size=shard)
    if not in_place:
        r.span(call, "publish", "own", staged, staged + int(shard / HBM), me, 0, shard)
    arrived, at = [], t + 6 * US
    for step in range(1, n):
        peer = (me + step) % n
        ready = max(at, t + 4 * US + int(shard / HBM) + 4 * US) + jitter()
        r.span(call, "pull", "wait", at, ready, peer, 0)
        at = ready + int(shard / LINK * slow)
        r.span(call, "pull", "pull", ready, at, peer, 0, shard)
        arrived.append(at)
    end, exposed, app = arrived[-1], 0, t + 5 * US
    if ended == "fused":
        part = int(shard / LINK * 0.9)
        for i in range(parts + 1):
            ready = arrived[min(i, n - 1) - 1] if i else app
            if ready > app:
                r.span(call, "app", "wait", app, ready, -1, i)
                exposed += ready - app
                app = ready
            r.span(call, "app", "gemm", app, app + part, -1, i)
            app += part
    else:
        app += 10 * US
        if end > app:
            r.span(call, "app", "wait", app, end)
            exposed, app = end - app, end
    r.count(reason_of(r, call))
    r.count(ended)
    if not r.args.untraced:
        r.log("gather", at=end, **r.common(), call=call, decision="ring", reason=reason_of(r, call), shard=shard, **context_of(r, call), count=shard // 2, dtype="bf16",
              in_place=in_place, stream="0x5a0200", recv="0x7f0000", send="0x7e0000", pieces=1, chunks=n, slot=0 if place else n - 1, place=place, push=0,
              begin=begin, end=end, ended=ended, exposed=exposed)
    return app + 20 * US


def passed(r, call, t):
    end = t + 30 * US + r.rng.randrange(0, 8 * US)
    r.count("below_min_bytes")
    if not r.args.untraced:
        r.span(call, "app", "nccl", t, end, size=65536 * r.args.ranks, decision="pass")
        r.log("gather", at=end, **r.common(), call=call, decision="pass", reason="below_min_bytes", shard=65536, count=32768, dtype="bf16", in_place=0,
              stream="0x5a0200", recv="0x1", send="0x2", pieces=0, chunks=0, slot=0, place=0, push=0, begin=t, end=end, ended="-", exposed=end - t)
        r.log("nccl", **r.common(), comm_hash="1a2b3c", nranks=r.args.ranks, func="AllGather", seq=call, count=32768, dtype="ncclBfloat16",
              bytes=65536 * r.args.ranks, algo="RING", proto="LL", channels=4, begin=t + 3 * US, end=end - US, kernel_ns=end - t - 5 * US)
        r.log("collective", **r.common(), func="AllReduce", seq=call, count=1024, dtype="f32", bytes=4096, stream="0x5a0200", begin=end, end=end + 25 * US)
    return end + 40 * US


def places(r, calls):
    """The last rank's receive buffer of site 1 is in another allocation; with --scatters the fourth call is one of these."""
    n = r.args.ranks
    sites = [(shard, in_place, "allgather") for shard, in_place, _, _ in SITES] + [(1 << 20, 0, scatter_logs.op_of(r))] * bool(r.args.scatters)
    for site, (shard, in_place, op) in enumerate(sites):
        odd = site == 1 and r.rank == n - 1
        recv = {"ordinal": 5 if odd else 2 * site, "size": shard * n, "offset": 0}
        send = {**recv, "offset": r.rank * shard} if in_place else {"ordinal": 100 + site, "size": shard, "offset": 0}
        buffers = {f"{side}_{key}": value for side, at in (("recv", recv), ("send", send)) for key, value in {"elsewhere": 0, "known": 1, **at}.items()}
        r.log("place", op=op, **r.common(), id=site, call=site + 1, shard=shard, in_place=in_place, **buffers)
    order = [(call - 1) % len(sites) for call in range(1, calls + 1)]
    if r.args.phases: # iterations of three calls, then of nine, then of three that begin elsewhere, and so on
        order = [(i + i // 40) % len(sites) if i // 80 % 2 else i % 9 // 3 if i % 9 < 8 else 0 for i in range(calls)]
    for first in range(1, calls + 1, 64):
        ids = ",".join(map(str, order[first - 1 : first + 63]))
        r.log("places", **r.common(), first=first, ids=ids)
    r.log("places_end", **r.common(), calls=calls, places=len(sites), more=0)


def begin(r):
    n = r.args.ranks
    r.log("communicator", **r.common(), nranks=n, decision="ring", protocol="pull")
    r.log("connected", **r.common(), nranks=n, slot_bytes=64 << 20, staging_bytes=128 << 20, times=1)
    if not r.args.untraced:
        r.log("trace_start", **r.common(), nranks=n, device=r.rank, name="NVIDIA H200", every=1)
    for shard, in_place, ended, parts in SITES:
        r.log("substitute", op="allgather", **r.common(), nranks=n, count=shard // 2, dtype="bf16", shard=shard, in_place=in_place, reason="ring")
        if ended == "fused":
            r.log("fused", **r.common(), form="B/N", m=8192, n=16384, k=4096, shard=shard, parts=parts + 1, api="GemmEx", via="stream")
        else:
            r.log("joined", **r.common(), shard=shard, reason=ended, by="cuMemcpyAsync" if ended == "other_operation" else "cuStreamSynchronize")
    r.log("pass", op="allgather", **r.common(), nranks=n, count=32768, dtype="bf16", shard=65536, in_place=0, reason="below_min_bytes")


# Two of equal size differ in their ops, or in their context: A, B and C are sites of one size, and A's lines have 0 until it has come often. Shard,
# context, GEMM, what was chosen: NCCL (-1), or the number of parts (1: whole, 0: by the pace), by a duel or not; "open": the duel was not measured.
A, B, C, D = "7e0241f5d31c44a9", "41", "7fffffffffffffff", "be2"
TRIED = [(32 << 20, "0", (8192, 16384, 4096, "tn"), 4), (32 << 20, "0", (8192, 5000, 4096, "tn"), 0), (8 << 20, D, (0, 0, 0), 0), (8 << 20, D, (512, 7000, 96, "nn"), 1),
         (5000, "0", (0, 0, 0), -1), (32 << 20, B, (8192, 16384, 4096, "tn"), -1), (8 << 20, D, (0, 0, 0), 0), (32 << 20, A, (8192, 16384, 4096, "nn"), 4),
         (32 << 20, A, (8192, 16384, 4096, "tn"), 6), (7000, "0", (96, 96, 96, "tt"), 4, "duel"), (7000, "0", (96, 96, 96, "tt"), -1, "duel"), (7001, "0", (0, 0, 0), 0, "duel"),
         (7002, "0", (64, 64, 64, "nt"), 4, "open"), (7005, "0", (64, 64, 32, "nt"), 4, "duel"), (7005, "0", (64, 64, 64, "nt"), 4), (7006, "0", (64, 64, 32, "nt"), -1),
         (7006, "0", (64, 64, 64, "nt"), 4), (7007, "0", (64, 64, 64, "nt"), 4), (7007, "0", (64, 64, 64, "nt"), -1, "open"),
         (7008, "0", (64, 64, 32, "nt"), 4, "open"), (7008, "0", (64, 64, 64, "nt"), 4)]
# Sites, calls of a turn, of a duel.
DUELS = [(4, 24, "ring"), (1, 12, "nccl"), (2, 341, "sites"), (2, 12, "sites")]
# Shard, context, which way and why at the end. The one that comes twice was told at the end of the process, and when the communicator was destroyed after that.
WAYS = [(32 << 20, A, "ring", "measured"), (8 << 20, D, "ring", "measured"), (5000, D, "nccl", "measured"), (32 << 20, B, "nccl", "measured"), (32 << 20, C, "ring", "measured"),
        (7000, "0", "nccl", "measured"), (7001, "0", "ring", "program"), (7002, "0", "ring", "measured"), (7003, A, "nccl", "known"), (7003, B, "ring", "unmeasured"),
        (7004, "0", "ring", "measured"), (7000, "0", "nccl", "measured"),
        (7005, "0", "ring", "measured"), (7006, "0", "ring", "measured"), (7007, "0", "nccl", "measured"), (7008, "0", "ring", "measured")]


def about(r, op, **fields):
    """Old libraries do not name the operation and the context."""
    return fields if r.args.old else dict(op=op, **fields)


def tried(r):
    n = r.args.ranks
    for shard, context, gemm, chosen, *duel in TRIED:
        parts = ",".join("%d:%.4f" % (p, r.rng.lognormvariate(0, 0.7)) for p in (1, n, 3 * n // 2, 2 * n, 3 * n))
        chosen = {4: n, 6: 3 * n}.get(chosen, chosen)
        what = dict(shard=shard, **({} if r.args.old else {"context": context}), m=gemm[0], n=gemm[1], k=gemm[2], batch=min(gemm[0], 1), trans=gemm[3] if gemm[0] else "-", type="bf16" if gemm[0] else "-", gathered="b" if gemm[0] else "-")
        by = "nccl" if chosen < 0 else "ring"
        time = lambda: round(r.rng.lognormvariate(0, 0.7), 4)
        measured = lambda: dict(calls=r.rng.randrange(7, 64), clock=r.rng.choice(["device", "host"]), ring_ms=time(), nccl_ms=time())
        r.log("tried", **about(r, "allgather", **r.common()), **what, stage="ways", **measured(), parts_ms=parts if gemm[0] else "none", by="duel" if duel else by, parts=max(chosen, 0))
        if duel == ["duel"]:
            r.log("tried", **about(r, "allgather", **r.common()), **what, stage="duel", **measured(), parts_ms="%d:%.4f" % (chosen, time()) if chosen > 0 else "none", by=by, parts=max(chosen, 0))
    for sites, calls, by in [] if r.args.old else DUELS:
        ms = [round(calls * r.rng.lognormvariate(0, 0.7), 4) for _ in range(2)]
        ms[1] *= by != "sites" or calls > 12 # of one nothing was measured by NCCL
        r.log("duel", **r.common(), sites=sites, calls=calls, ring_ms=ms[0], nccl_ms=ms[1], by=by)
    for reason in ("trial", "measured", "gemm_whole"):
        r.counts[reason] = r.rng.randrange(1, 300)


def ways(r):
    for shard, context, by, reason in [] if r.args.old else WAYS:
        over = [r.rng.randrange(0, 5000), r.rng.randrange(0, 50)][:: -1 if by == "nccl" else 1]
        r.log("site_way", op="allgather", **r.common(), shard=shard, context=context, calls=sum(over) + 84, by=by, reason=reason, over_ring=over[0], over_nccl=over[1])


def end(r, calls, passes):
    places(r, calls)
    scatters = calls // 4 if r.args.scatters else 0
    more = scatter_logs.end(r, scatters) if scatters else {}
    calls -= scatters
    n, moved = r.args.ranks, sum(SITES[i % 3][0] for i in range(calls)) * r.args.ranks
    if not r.args.untraced:
        r.log("nccl_sum", **r.common(), comm_hash="1a2b3c", nranks=n, func="AllGather", bytes=65536 * n, dtype="ncclBfloat16", algo="RING", proto="LL",
              channels=4, calls=passes, min_ns=26000, mean_ns=29000, max_ns=33000)
    r.log("summary", calls=calls + passes, bytes=moved + 65536 * n * passes, substituted=calls, substituted_bytes=moved, passed=passes, fused=(calls + 2) // 3,
          gemm_chunks=4 * ((calls + 2) // 3), joined=calls - (calls + 2) // 3, staged=6 * (n - 1), zero_copy=(calls - 6) * (n - 1), pushed=0, mapped=9, exports=3,
          imports=9, import_hits=2, import_closes=0, verified=0, verify_bad=0, **more)
    for reason, times in r.counts.items():
        r.log("count", reason=reason, n=times)
    r.log("blocks", hits=40, misses=5, evictions=1, trims=0, idle=0, used_bytes=0, kept_bytes=512 << 20, peak_bytes=768 << 20)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--calls", type=int, default=24)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--start", type=int, default=50_000_000_000)
    p.add_argument("--untraced", action="store_true")
    p.add_argument("--tried", action="store_true")
    p.add_argument("--old", action="store_true")
    p.add_argument("--graphs", action="store_true")
    p.add_argument("--scatters", action="store_true")
    p.add_argument("--reduces", action="store_true")
    p.add_argument("--contexts", action="store_true")
    p.add_argument("--phases", action="store_true")
    p.add_argument("--slow-rank", type=int, default=-1)
    args = p.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    for rank in range(args.ranks):
        r = Rank(args, rank, random.Random(args.seed * 1000 + rank))
        begin(r)
        if args.scatters:
            scatter_logs.begin(r)
        t, passes = args.start + 2_000_000 + r.rng.randrange(0, 5 * US), 0
        for call in range(1, args.calls + 1):
            if args.scatters and call % 4 == 0:
                t = scatter_logs.scatter(r, call, t)
                continue
            t = gather(r, call, t)
            if site_of(r, call) == 2:
                passes += 1
                t = passed(r, passes, t)
        if args.tried and rank == 0:
            tried(r)
            ways(r)
        end(r, args.calls, passes)
        with open(os.path.join(args.folder, "slipring-node7-%d.jsonl" % r.pid), "w") as f:
            f.write("\n".join(r.lines) + "\n")


if __name__ == "__main__":
    main()
