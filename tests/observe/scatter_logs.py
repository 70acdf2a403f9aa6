# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatters for make_logs.py: in each iteration one behind the parts of its GEMM (16 MiB shards, from the second on), one behind a
whole GEMM that was never tried to the end, one that no GEMM computes, and one that does not fit the slots. With --reduces these are
all-reduces, beside a reduce-scatter of 4 MiB shards that stays with NCCL; the GEMM before the all-reduce of that size is in parts, too. With
--old the library tells no collective of such GEMMs."""
US = 1000
SITES = [(16 << 20, "ring"), (4 << 20, "reduce_scatter_untried"), (3 << 20, "reduce_scatter_untried"), (300 << 20, "reduce_scatter_room")]
BLOCKS = 4


OTHER = (4 << 20, "below_min_bytes")


def op_of(r):
    return "allreduce" if r.args.reduces else "reducescatter"


def count_of(r, shard):
    """An all-reduce's is of all shards."""
    return shard // 2 * (r.args.ranks if r.args.reduces else 1)


def begin(r):
    n = r.args.ranks
    for i, (shard, reason) in enumerate(SITES):
        for made in (0, 1) if i < 2 else (0,):
            r.log("substitute" if reason == "ring" else "pass", op=op_of(r), **r.common(), nranks=n, count=count_of(r, shard), dtype="bf16", shard=shard,
                  in_place=0, made=made, reason=reason)
    if r.args.reduces:
        r.log("pass", op="reducescatter", **r.common(), nranks=n, count=OTHER[0] // 2, dtype="bf16", shard=OTHER[0], in_place=1, made=0, reason=OTHER[1])
    for shard, _ in SITES[:1 + r.args.reduces]:
        r.log("produced", **({} if r.args.old else {"op": op_of(r)}), **r.common(), m=4096, n=shard // 8192 * n, k=512, shard=shard, parts=BLOCKS * n)
    if r.rank == 0:
        r.log("tried", op=op_of(r), **r.common(), shard=SITES[0][0], context="0", m=4096, n=2048 * n, k=512, batch=1, trans="nt", type="bf16", gathered="c",
              stage="ways", calls=25, clock="device", ring_ms=1.2345, nccl_ms=1.5, parts_ms="1:1.2345,4:0.9876", by="ring", parts=4)


def scatter(r, call, t):
    """The ring's call number `call`; returns when the stream goes on."""
    n, me, shard = r.args.ranks, r.rank, SITES[0][0]
    fused, part = call > 4, shard // BLOCKS
    made = []
    for i in range(n * BLOCKS if fused else 0):
        r.span(call, "app", "gemm", t, t + 30 * US, piece=i)
        t += 30 * US
        made.append(t)
    entry, at, first = t, made[0] if fused else t, None
    for i in range(n * BLOCKS):
        to, piece = (me + 1 + i // BLOCKS) % n, i % BLOCKS
        if to == me:
            break
        ready = max(at, made[i] if fused else t) + r.rng.randrange(1, 3 * US)
        r.span(call, "publish", "wait", at, ready, to, piece)
        at = ready + part // 350
        r.span(call, "publish", "push", ready, at, to, piece, part)
        first = ready if first is None else first
    for i in range(BLOCKS):
        ready = max(at + 2 * US, entry - 1)
        r.span(call, "pull", "wait", at, ready, piece=i)
        at = ready + 6 * US
        r.span(call, "pull", "sum", ready, at, piece=i, size=part)
    for i in range(BLOCKS if r.args.reduces else 0):
        ready = at + 4 * US
        r.span(call, "copy", "wait", at, ready, piece=i)
        for step in range(1, n):
            at = ready + 2 * US
            r.span(call, "copy", "pull", ready, at, (me + step) % n, i, part)
            ready = at
    join = at + 3 * US
    r.span(call, "app", "wait", entry, join)
    if not r.args.untraced:
        r.log("scatter", at=join, op=op_of(r), **r.common(), call=call, decision="ring", reason="ring" if call % 8 else "graph", shard=shard, count=count_of(r, shard), dtype="bf16", in_place=0, stream="0x1",
              recv="0x2", send="0x3", pieces=240, parts=n * BLOCKS, begin=min(first, entry), end=at, ended="fused" if fused else "whole", exposed=join - entry,
              spans=0, cut=0, error=800)
    return join + 20 * US


def end(r, calls):
    """For the line summary; and what is counted."""
    for reason in {reason for _, reason in SITES}:
        r.log("reduce_count" if r.args.reduces else "scatter_count", reason=reason, n=calls * sum(x == reason for _, x in SITES))
    if r.args.reduces:
        r.log("scatter_count", reason=OTHER[1], n=2 * calls)
    for op, by, of in [(op_of(r), "ring", calls), ("allgather", "ring", 0)] if r.rank == 0 else []: # one size and context, two sites
        r.log("site_way", op=op, **r.common(), shard=SITES[0][0], context="5ca7", calls=of, by=by, reason="measured", over_ring=of, over_nccl=0)
    counts = (2 * calls, 0, calls * len(SITES), calls) if r.args.reduces else (calls * len(SITES), calls, 0, 0)
    return dict(zip(("scatters", "scatters_substituted", "reduces", "reduces_substituted"), counts), scatters_fused=max(calls - 1, 0), scatters_produced=2 * calls)
