#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""In the place of the Python that has PyTorch: speaks as bench/peerlib/torch_rank.py does, and
measures nothing.

plain ranks answer with 2 ms (3 ms with FAKE_MS=3), rank 0 a little faster; with FAKE_SILENT=1 not at
all. fused refuses every job. async-tp ends at the first one, on rank 1, with words on stderr. With
FAKE_WRONG=1 every product of `fresh` is wrong.

As a rank of bench/never_slower: 1 ms under slipring, else 2 ms. Row FAKE_REFUSED can not be made; on
rank 1 the process ends at row FAKE_ENDED. With FAKE_SLOW_ONCE=FILE row 1 takes slipring 3 ms in the
process that makes the file.

As a rank of bench/models: the same times, and 0.5 ms for gathers alone. Under slipring the first
three steps stage a shard, on rank 1, with FAKE_STAGED=1 the last one as well, and with FAKE_APART=1
the last loss is another one. The model FAKE_REFUSED can not be made. A step with
losses takes FAKE_STEP_S seconds, 0.
"""

import argparse
import json
import os
import sys
import time

USUAL_STEPS = 20  # with losses
learned = 0
slow = False  # as a rank of bench/never_slower, in the present row


def slow_once(name, rank, ours):
    path = os.environ.get("FAKE_SLOW_ONCE")
    if path and ours and rank == 0 and name == "1" and not os.path.exists(path):
        open(path, "w", encoding="utf-8").close()
        return True
    return False


def make(job, rank, ours):
    global slow, learned
    learned = 0
    name = str(job["row"]["number"] if "row" in job else job["model"])
    if name == os.environ.get("FAKE_REFUSED"):
        return {"error": "OutOfMemoryError: too large"}
    if name == os.environ.get("FAKE_ENDED") and rank == 1:
        sys.exit("ValueError: no more")
    slow = slow_once(name, rank, ours)
    return {"parameters": 5}


def losses(job, rank, ours):
    """Of USUAL_STEPS steps, the next few."""
    global learned
    steps = range(learned, learned + job["steps"])
    learned = steps.stop
    values = [float(USUAL_STEPS - step) for step in steps]
    if ours and "FAKE_APART" in os.environ and learned == USUAL_STEPS:
        values[-1] += 0.25
    late = USUAL_STEPS - 1 if "FAKE_STAGED" in os.environ else None
    counters = [
        {"calls": 4, "substituted": 3, "fused": 2, "joined": 1, "staged": int(rank == 1 and (step < 3 or step == late))}
        for step in steps
    ]
    answer_ = {"losses": [value.hex() for value in values], "steps": counters if ours else [{} for _ in counters]}
    return answer_ | ({"bytes": [1 << 20, 2 << 20]} if job["sizes"] else {})


def answer_row_or_model(job, rank):
    """Of bench/never_slower and bench/models; None when the job is none of theirs."""
    ours = "libslipring" in os.environ.get("LD_PRELOAD", "")
    if job["do"] == "make":
        return make(job, rank, ours)
    if job["do"] == "losses":
        time.sleep(job["steps"] * float(os.environ.get("FAKE_STEP_S", "0")))
        return losses(job, rank, ours)
    ms = 3.0 if slow else 1.0 if ours else 2.0
    return {
        "drop": {},
        "time": {"ms": ms, "counters": {}},
        "gathers": {"ms": 0.5},
        "parts": {"host_ms": float(os.environ.get("FAKE_HOST_MS", "0.25")), "device_ms": ms},
    }.get(job["do"])


def answer(job, role, rank):
    known = answer_row_or_model(job, rank)
    if known is not None:
        return known
    if role == "fused":
        return {"error": "RuntimeError: not here"}
    if role == "async-tp" and rank == 1:
        sys.exit("ValueError: no compiler")
    if job["do"] == "check":
        return {"wrong": 5 if job.get("form", "fresh") == "fresh" and "FAKE_WRONG" in os.environ else 0, "of": 100}
    if job["do"] == "blocks":
        return {"blocks": 24, "kernels": ["gather_kernel"]}
    parts = {"gemm": 1.0, "gather": 0.5}
    return {"ms": parts.get(job["do"], float(os.environ.get("FAKE_MS", "2"))) - 0.25 * (rank == 0)}


def main():
    if sys.argv[1] == "-c":  # the driver asks where the CUDA libraries of PyTorch's wheel are
        return
    parser = argparse.ArgumentParser()
    for name in ("--role", "--device", "--nccl", "--issue"):
        parser.add_argument(name)
    parser.add_argument("--reply-fd", type=int)
    options = parser.parse_args(sys.argv[3:])
    rank = int(os.environ["RANK"])
    print("cores", sorted(os.sched_getaffinity(0)), options.issue, flush=True)
    with os.fdopen(options.reply_fd, "w", encoding="utf-8") as replies:
        print(json.dumps({"torch": "0.0", "device": "fake", "nccl": "0.0"}), file=replies, flush=True)
        for line in sys.stdin:
            if "FAKE_SILENT" in os.environ:
                print("silent", flush=True)
                time.sleep(60)
            print(json.dumps(answer(json.loads(line), options.role, rank)), file=replies, flush=True)


if __name__ == "__main__":
    main()
