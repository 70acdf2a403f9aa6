#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of two ranks that goes in twelve ways (job.c), and what the first ten lines of the report on it say.

    jobs.py --launcher FILE --lib FILE --softgpu DIR --job FILE --other FILE --report FILE [WAY...]

--other: the library under another version number. Fails with the lines of each report that does not say what it should: the
verdict, and what to do first. Prints all. Times are a CPU's, so that of a number only its being there counts.
"""
import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

TIME = r"[0-9.]+ (?:ns|µs|ms|s)"
MEASURED = r"(Won|Lost|Even): %s of the %s \([0-9.]+%%\) that a call takes by NCCL, .* measured at 1 call site\.|Not worth it here: .* Leave slipring out\." % (TIME, TIME)
FEW = r"Not known whether it helped: the program made too few calls to compare ring and NCCL, %d at most at one call site\. It takes up to 120\."
LONGER = r"- Run for 120 calls of a call site or more\."
NONE = r"Nothing here suggests a change\."
NO_END = r"- The log of rank 1 \(no totals\) has no end: killed, ended by _exit, or the disk was full\."
LATE = r"- %s of the run: rank 1 comes late: %s behind the other rank \(median\), in [0-9]+ of [0-9]+ calls\. The other rank waits for it" % (TIME, TIME)

# Of each way: the program's, its steps, settings, environment, what becomes of the logs, and what the report begins with, in this order.
WAYS = {
    # On a machine that has other work to do a rank may come late.
    "fine": ("fine", 160, [], {}, None, [MEASURED, "What to do (?:%s|%s)" % (NONE, LATE)]),
    "slow rank": ("slow", 40, [], {}, None, [FEW % 40, LATE, LONGER]),
    "late rank": ("late", 40, [], {}, None, [FEW % 40, LATE, LONGER]),
    "small sizes": ("small", 40, ["min_bytes=4M"], {}, None,
                    [r"Nothing was moved: all 80 calls stayed with NCCL, for below_min_bytes", r"- %s of the run: 80 all-gathers of all ranks, of 64 KiB .*SLIPRING_MIN_BYTES=64K" % TIME]),
    "killed rank": ("killed", 60, [], {}, None,
                    [r"Failed, see What to do\. Until then: .*Not known", r"- Communicator [0-9a-f]+ failed at call [0-9]+ on rank 0 because of rank 1: the peer's process ended .*"
                     r"Look at the output of rank 1: its log ends, without totals, %s after" % TIME]),
    "_exit": ("exit", 40, [], {}, None, [FEW % 40, NO_END, LONGER]),
    "full disk": ("fine", 40, [], {"JOB_RANK1": "SLIPRING_LOG_FILE=/dev/full"}, None, [FEW % 40, r"- There is no log of rank 1, .* disk is full", LONGER]),
    "cut log": ("fine", 40, [], {}, "cut", [FEW % 40, NO_END, LONGER]),
    "mixed versions": ("fine", 40, [], {"JOB_RANK1": "LD_PRELOAD={first}{other}"}, None,
                       [r"Nothing was moved: all 80 calls stayed with NCCL, for version_differs", r"- Communicator [0-9a-f]+ stays with NCCL \(version_differs\), 80 all-gathers of all ranks: .*"
                        r"rank 0 has [0-9.]+, rank 1 has 99\.1\.2\. What helps: use one build"]),
    "all NCCL": ("fine", 40, [], {"NCCL_P2P_DISABLE": "1"}, None, [r"Nothing was moved: all 80 calls stayed with NCCL, for p2p_disabled", r"\(p2p_disabled\), 80 all-gathers .*unset them"]),
    "no GEMM": ("no-gemm", 40, [], {}, None, [FEW % 40, r"- %s of the run: cu[A-Za-z]+, at 1 call site .* the host waits for the gather itself, .* no GEMM reads" % TIME]),
    "graphs": ("graph", 60, [], {}, None, [r"most calls are in CUDA graphs, where ring and NCCL are not compared", r"- Make up to 120 calls of each size outside of CUDA graphs .*SLIPRING_GRAPHS=off"]),
}


def cut(folder):
    """Of the log of rank 1 what a disk took, up to within its last third."""
    path = next(p for p in glob.glob(folder + "/*.jsonl") if b'"rank":1,' in open(p, "rb").read())
    data = open(path, "rb").read()
    data = data[: len(data) * 2 // 3]
    open(path, "wb").write(data[: data.rindex(b"\n") + 1])


def run(o, way, folder):
    program, steps, settings, environment, then, _ = WAYS[way]
    first = os.environ.get("TEST_PRELOAD_FIRST", "") # a sanitizer's runtime
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1", LD_LIBRARY_PATH=o.softgpu + ":" + os.environ.get("LD_LIBRARY_PATH", ""))
    env.update((name, value.format(other=o.other, first=first and first + ":")) for name, value in environment.items())
    given = ["min_bytes=0", "alloc_min=4K", "trials=1", "trials_after=4", *settings]
    command = [o.launcher, "run", "--lib", o.lib, *(x for s in given for x in ("--set", s)), "--record", folder, "--", o.job, program, str(steps)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    if then == "cut":
        cut(folder)
    report = subprocess.run([o.report, folder], capture_output=True, text=True, timeout=120).stdout
    return done.stderr, [line for line in report.split("\n")[2:] if line and not line.startswith("---")][:10]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("launcher", "lib", "softgpu", "job", "other", "report"):
        p.add_argument("--" + name, required=True)
    p.add_argument("way", nargs="*", default=list(WAYS))
    o = p.parse_args()
    bad = 0
    for way in o.way:
        with tempfile.TemporaryDirectory() as folder:
            told, lines = run(o, way, folder)
        words = " ".join(" ".join(lines).split())
        good = re.search(".*?".join("(?:%s)" % w for w in WAYS[way][5]), words)
        bad += not good
        print("%s %s\n%s%s\n" % ("==" if good else "WRONG:", way, "\n".join(lines), "" if good else "\nstderr: " + told))
    print("%d ways, %d wrong" % (len(o.way), bad))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
