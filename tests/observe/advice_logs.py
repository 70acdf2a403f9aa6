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
    "host": [joined(reason="host_observes", by="cuStreamSynchronize")] + gathers("host_observes"),
    # Seventeen sites, one cause.
    "event": [x for i in range(17) for x in [joined(SHARD + i * 4096, reason="other_operation", by="cuStreamWaitEvent")] + gathers("other_operation", 4, SHARD + i * 4096, 1 + 4 * i)],
    "transpose": [("count", dict(reason="gemm_transpose", n=7))],
    "process": [("process", dict(version="9.8.7", nccl=22809, cuda=13010, settings="MIN_BYTES=0 TRIALS=0", command="python3 train.py --steps `5`"))],
}


def main():
    folder, case = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    comm = dict(comm="c0ffee01", crank=0)
    lines = [("communicator", dict(nranks=2, decision="ring", protocol="pull"))] + CASES[case]
    with open(os.path.join(folder, "slipring-node7-1.jsonl"), "w") as f:
        for i, (event, fields) in enumerate(lines):
            head = dict(ts=10**9 + i * 1000, wall=1.79e9, host="node7", pid=1, rank=0, level="info", event=event)
            f.write(json.dumps({**head, **({} if event in ("count", "process") else comm), **fields}) + "\n")


if __name__ == "__main__":
    main()
