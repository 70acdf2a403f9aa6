#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the log of one rank of two, of a run that never was, for one case of what a report advises.

    advice_logs.py FOLDER CASE

The table CASES says what is in the log; a gather is of 1 MiB from each rank, and 100 us of it are exposed.
"""
import json
import os
import sys

SHARD = 1 << 20
GEMM = dict(m=512, n=4096, k=256, trans="tn", recv="0x7f0000", a="0x7a0000", b="0x7f0000")
JOINED = dict(reason="gemm_other_operand", by="GEMM")


def joined(shard=SHARD, **fields):
    return ("joined", dict(shard=shard, **fields))


def gathers(ended, n=12, shard=SHARD, first=1):
    at = [(call, 10**9 + call * 10**6) for call in range(first, first + n)]
    return [("gather", dict(call=call, decision="ring", reason="ring", shard=shard, begin=t, end=t + 10**5, exposed=10**5, ended=ended)) for call, t in at]


PROCESS = ("count", "scatter_count", "process", "summary")
SCATTER = dict(op="reducescatter", count=8 << 20, dtype="bf16", in_place=0)


def scatter(event, shard, reason, made=1):
    return (event, dict(**SCATTER, nranks=2, shard=shard, reason=reason, made=made))


def way(shard, reason, calls):
    return ("site_way", dict(op="reducescatter", shard=shard, context="a", by="nccl", reason=reason, calls=calls, over_ring=0, over_nccl=calls))


def about(settings):
    return ("process", dict(version="9.8.7", nccl=22809, cuda=13010, settings=settings, command="train.py"))


CASES = {
    "part": [joined(**JOINED, **GEMM, reads="part", read_bytes=SHARD)],
    "inside": [joined(**JOINED, **{**GEMM, "b": "0x7f8000"}, reads="inside", read_bytes=SHARD // 2)],
    "more": [joined(**JOINED, **GEMM, reads="more", read_bytes=4 * SHARD)],
    "elsewhere": [("overtaken", dict(shard=SHARD, by="GEMM", **{**GEMM, "b": "0x7b0000"}, reads="elsewhere", read_bytes=0))],
    # The next GEMM consumes it: nothing is wrong.
    "elsewhere_fused": [("overtaken", dict(shard=SHARD, by="GEMM", **{**GEMM, "b": "0x7b0000"}, reads="elsewhere", read_bytes=0)),
                        ("fused", dict(shard=SHARD, form="B/N", m=512, n=4096, k=256, parts=4, api="GemmEx", via="stream"))],
    "three_parts": [joined(**JOINED, **{**GEMM, "n": n}, reads="part", read_bytes=SHARD) for n in (100, 200, 300)],
    "from_host": [joined(reason="other_operation", by="cuMemcpyHtoDAsync_v2")] + gathers("other_operation"),
    "copy": [joined(reason="other_operation", by="cuMemcpyDtoDAsync_v2")] + gathers("other_operation"),
    "kernel": [joined(reason="other_operation", by="cuLaunchKernel")] + gathers("other_operation"),
    "host": [joined(reason="host_observes", by="cuStreamSynchronize"), joined(**JOINED, **GEMM)] + gathers("host_observes"),
    "host_alone": [joined(reason="host_observes", by="cuStreamSynchronize")] + gathers("host_observes"),
    # Seventeen sites, one cause.
    "event": [x for i in range(17) for x in [joined(SHARD + i * 4096, reason="other_operation", by="cuStreamWaitEvent")] + gathers("other_operation", 4, SHARD + i * 4096, 1 + 4 * i)],
    # What costs most is first; what has failed before all, and what costs nobody knows what last.
    "order": [("count", dict(reason="gemm_transpose", n=7)), joined(reason="host_observes", by="cuStreamSynchronize"), joined(2 * SHARD, reason="other_operation", by="cuLaunchKernel"),
              ("communicator_failed", dict(peer=1, call=9, piece=9, status="peer_failed", msg="the peer's process ended"))]
             + gathers("host_observes", 10) + gathers("other_operation", 20, 2 * SHARD, 20),
    # Shards that the slots hold in pieces only; as many that they hold; and one that nothing has computed.
    "slots": [("connected", dict(nranks=2, slot_bytes=1 << 20, staging_bytes=2 << 20)), scatter("substitute", 7 << 20, "ring"), scatter("substitute", 2 << 20, "ring"),
              scatter("substitute", 5 << 20, "ring", 0)],
    "untried_off": [about("MIN_BYTES=0 TRIALS=0"), scatter("pass", SHARD, "reduce_scatter_untried")],
    "untried_cublas": [scatter("pass", SHARD, "reduce_scatter_untried")],
    "untried_few": [about("TRIALS_AFTER=8 TRIALS=2"), scatter("pass", SHARD, "reduce_scatter_untried"), way(SHARD, "unmeasured", 40)],
    "untried_unmeasured": [scatter("pass", SHARD, "reduce_scatter_untried"), way(SHARD, "unmeasured", 2900)],
    "untried_many": [scatter("pass", SHARD, "reduce_scatter_untried"), way(2 * SHARD, "measured", 400)],
    "untried_once": [scatter("pass", SHARD, "reduce_scatter_untried"), way(SHARD, "unmeasured", 1)],
    # Of three sizes the two that are worth it.
    "tiny": [("pass", dict(op="allgather", shard=8, count=4, dtype="bf16", in_place=0, reason="below_min_bytes")), ("count", dict(reason="below_min_bytes", n=5))],
    "sizes": [("pass", dict(op="allgather", shard=8, count=4, dtype="bf16", in_place=0, reason="below_min_bytes")), scatter("pass", 96 << 10, "below_min_bytes"),
              scatter("pass", 1 << 20, "below_min_bytes"), ("count", dict(reason="below_min_bytes", n=5)), ("scatter_count", dict(reason="below_min_bytes", n=60))],
    "transpose": [("count", dict(reason="gemm_transpose", n=7))],
    "process": [("process", dict(version="9.8.7", nccl=22809, cuda=13010, settings="MIN_BYTES=0 TRIALS=0", command="python3 train.py --steps `5`"))],
}


def main():
    folder, case = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    for rank in range(2): # the other one has nothing to say
        comm = dict(comm="c0ffee01", crank=rank)
        lines = [("communicator", dict(nranks=2, decision="ring", protocol="pull"))] + (CASES[case] if rank == 0 else [])
        lines += [("summary", dict(calls=0, bytes=0, substituted=0, passed=0))]
        with open(os.path.join(folder, "slipring-node7-%d.jsonl" % rank), "w") as f:
            for i, (event, fields) in enumerate(lines):
                head = dict(ts=10**9 + i * 1000, wall=1.79e9, host="node7", pid=1 + rank, rank=rank, level="info", event=event)
                f.write(json.dumps({**head, **({} if event in PROCESS else comm), **fields}) + "\n")


if __name__ == "__main__":
    main()
