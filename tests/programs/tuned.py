#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random programs on the software GPU (iterations.c): whether their call sites go the way that was measured to be best.

    tuned.py PROGRAM LIBRARY SOFTGPU_DIR [--kinds forms,sites,...] [--seeds 1..3] [--calls 6000] [--jobs 2]

Of each run: it ends and its results are right; all ranks moved as many calls; and of each site of rank 0 that its
line `site_way` is what the log says before it:

  measured    of the latest lines `tried` of the site the chosen way's sum is the lesser one, or within what is certain
  program     the communicator has a line `duel` that says so, and its times do
  unmeasured  only where nothing was tried to the end: so few calls that no stage was over, or no line `duel` or `tried`
              of it that decided

and that behind the choice no call went the other way, trials apart. A site with many calls of which nothing was ever
tried, or which was not decided when the latest duel was certain, is *stuck*.

Exit status: 0 when at least 99 of 100 sites are as said and none is stuck, 1 when not, 2 for bad arguments.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import subprocess
import sys
import tempfile

KINDS = ("forms", "sites", "groups", "evaluate", "hiccups")
TIE = {"device": 0.98, "host": 0.95}  # the ring has to be better than NCCL by this
WITHIN = 0.10  # what is no certain difference: medians of rows are told, the decision knows all ranks
MANY = 1500  # calls of a site in which it is decided, or nothing is certain


def lines_of(folder):
    lines = []
    for path in glob.glob(os.path.join(folder, "log.*")):
        with open(path, encoding="utf-8") as file:
            lines += [json.loads(line) for line in file]
    return sorted(lines, key=lambda one: one["ts"])


def site_of(line):
    return line["op"], line["shard"], line["context"]


def sums(rows):
    """Over the ring with the parts that were chosen, and by NCCL."""
    ring = nccl = 0.0
    for row in rows:
        parts = dict(one.split(":") for one in row["parts_ms"].split(",")) if row["parts_ms"] != "none" else {}
        ms = float(parts.get(str(row["parts"]), row["ring_ms"])) if row["stage"] == "ways" else row["ring_ms"]
        ring += ms * row["calls"]
        nccl += row["nccl_ms"] * row["calls"]
    return ring, nccl


def latest_rows(lines, site):
    """The rows of the latest decision: the last line that decides, and those of its stage just before it."""
    rows = [one for one in lines if one["event"] == "tried" and site_of(one) == site and one["by"] != "duel"]
    return [one for one in rows if rows[-1]["ts"] - one["ts"] < 1e6 and one["stage"] == rows[-1]["stage"]]


def judge_measured(line, rows):
    ring, nccl = sums(rows)
    if not rows:
        return "no line tried that decides"
    if {one["by"] for one in rows} != {line["by"]}:
        return f"goes by {line['by']}, but the rows say {rows[-1]['by']}"
    tie = min(TIE[one["clock"]] for one in rows)
    wrong = ring > nccl * (1 + WITHIN) if line["by"] == "ring" else ring < nccl * tie * (1 - WITHIN)
    return f"goes by {line['by']}: ring {ring:.4f}, NCCL {nccl:.4f} ms" if wrong else ""


def judge_program(line, duels):
    decided = [one for one in duels if one["by"] == line["by"]]
    if not decided:
        return f"goes by {line['by']} for the program, but no duel says so"
    wrong = (decided[-1]["less"] > 0) != (line["by"] == "ring")
    return f"the duel's times are the other way round: {decided[-1]}" if wrong else ""


def judge_site(line, lines):
    """What is wrong; and whether it is stuck."""
    duels = [one for one in lines if one["event"] == "duel"]
    rows = latest_rows(lines, site_of(line))
    if line["reason"] == "measured" and not (line["context"] == "0" or rows):
        return "", False  # as the size's first site, whose line is judged
    other = line["over_nccl" if line["by"] == "ring" else "over_ring"]
    if line["reason"] in ("measured", "program") and other > 0.02 * (line["over_ring"] + line["over_nccl"]):
        return f"{other} calls went the other way behind the choice", False
    if line["reason"] == "measured":
        return judge_measured(line, rows), False
    if line["reason"] == "program":
        return judge_program(line, duels), False
    tried = [one for one in lines if one["event"] == "tried" and site_of(one) == site_of(line)]
    stuck = line["calls"] > MANY and (not duels + tried or not tried and duels[-1]["by"] != "sites")
    return "stuck" if stuck else "", stuck


def run(options, kind, seed):
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, LD_LIBRARY_PATH=options.softgpu, OPENBLAS_NUM_THREADS="1",
                           LD_PRELOAD=":".join(filter(None, [os.environ.get("TEST_PRELOAD_FIRST"), options.library])),
                           SLIPRING_MIN_BYTES="0", SLIPRING_LOG="info", SLIPRING_LOG_FORMAT="json",
                           SLIPRING_LOG_FILE=os.path.join(folder, "log.%p"))
        environment |= dict(one.split("=", 1) for one in options.set)
        iterations = max(40, options.calls // 8)
        done = subprocess.run([options.program, "2", kind, str(seed), str(iterations)], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines = lines_of(folder)
    if done.returncode:
        return [f"exit status {done.returncode}: {done.stdout.strip()[-300:]}"], 0, 0
    wrong, stuck = [], 0
    moved = {(one["substituted"], one["scatters_substituted"]) for one in lines if one["event"] == "summary"}
    if len(moved) != 1:
        wrong.append(f"ranks have moved different numbers of calls: {sorted(moved)}")
    sites = [one for one in lines if one["event"] == "site_way"]
    if not sites:
        wrong.append("no site is told of")
    for line in sites:
        why, is_stuck = judge_site(line, lines)
        stuck += is_stuck
        if why:
            wrong.append(f"{line['op']} {line['shard']} {line['context']}, {line['calls']} calls: {why}")
    return wrong, len(sites), stuck


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("library")
    p.add_argument("softgpu")
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--seeds", default="1..3", help="FIRST..LAST")
    p.add_argument("--calls", type=int, default=6000, help="of a program, about")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = p.parse_args()
    first, last = map(int, options.seeds.split(".."))
    if not set(options.kinds.split(",")) <= set(KINDS):
        p.error(f"--kinds: of {', '.join(KINDS)}")
    failed = False
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for kind in options.kinds.split(","):
            seeds = range(first, last + 1)
            results = list(pool.map(lambda seed, kind=kind: run(options, kind, seed), seeds))
            sites, stuck = sum(one[1] for one in results), sum(one[2] for one in results)
            wrong = [f"{kind} {seed}: {why}" for seed, one in zip(seeds, results) for why in one[0]]
            print(f"{kind}: {len(seeds)} programs, {sites} sites, {len(wrong)} not as said, {stuck} stuck", flush=True)
            print("".join(f"    {why}\n" for why in wrong), end="", flush=True)
            failed |= stuck > 0 or len(wrong) * 100 > sites
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
