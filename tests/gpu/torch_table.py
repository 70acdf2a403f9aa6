#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares runs of torch_mlp.py or torch_tp.py, and says what their decision logs counted.

    torch_table.py check NAME PLAIN.json SLIPRING.json STRICT.json --logs PREFIX [--tolerance X] [--all-fused]
    torch_table.py times NAME PLAIN.json... --with SLIPRING.json...

check: the losses of the strict run (the ring, no GEMM split) must be those of the plain one bit for bit; those of the
slipring run may differ by the tolerance (relative, at any step), as a GEMM in parts may use other cuBLAS kernels. The logs
are PREFIX.rank*.decisions, as JSON. --all-fused: every all-gather must have been substituted, and consumed by a GEMM from
the second step on: in the first one, libraries allocate and free what they need, and a free waits for everything.
"""
import argparse
import collections
import glob
import json
import math
import statistics
import sys


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def events(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def difference(a, b):
    """Largest relative difference at any step; infinite when a loss is not a number."""
    pairs = [(float.fromhex(x), float.fromhex(y)) for x, y in zip(a["losses"], b["losses"], strict=True)]
    each = [abs(x - y) / abs(x) for x, y in pairs]
    return max(each) if all(map(math.isfinite, each)) else math.inf


def decisions(prefix):
    """Of each rank: the counters by reason, and the lines of what was decided."""
    ranks = []
    for path in sorted(glob.glob(prefix + ".rank*.decisions")):
        lines = events(path)
        counts = collections.Counter()
        for line in lines:
            if line["event"] == "count":
                counts[line["reason"]] += line["n"]
        ranks.append((counts, lines))
    return ranks


def describe(line):
    if line["event"] == "fused":
        return f"fused {line['form']} m={line['m']} n={line['n']} k={line['k']} parts={line['parts']} api={line['api']} via={line.get('via', '-')}"
    if line["event"] == "joined":
        return f"joined shard={line['shard']} reason={line['reason']} by={line['by']}"
    if line["event"] in ("substitute", "pass"):
        return f"{line['event']} count={line['count']} dtype={line['dtype']} reason={line['reason']}"
    return None


def all_fused(plain, counts):
    steps, in_one = len(plain["losses"]), plain["gathers_a_step"]
    return counts["ring"] == steps * in_one and counts["fused"] >= (steps - 1) * in_one


def check(arguments):
    plain, ours, strict = (load(path) for path in arguments.results)
    bits, apart = plain["losses"] == strict["losses"], difference(plain, ours)
    ranks = decisions(arguments.logs)
    wrong = []
    if not bits:
        wrong.append(f"strict losses differ, by {difference(plain, strict):.1e}")
    if apart > arguments.tolerance:
        wrong.append(f"losses differ by {apart:.1e}, more than {arguments.tolerance:.1e}")
    if not ranks:
        wrong.append("no decision log")
    for number, (counts, _) in enumerate(ranks):
        if counts["ring"] == 0:
            wrong.append(f"rank {number}: no gather was substituted")
        if arguments.all_fused and not all_fused(plain, counts):
            wrong.append(f"rank {number}: {counts['ring']} gathers substituted, {counts['fused']} fused")
    first = ranks[0][0] if ranks else {}
    print(f"{arguments.name}: loss {plain['first']:.6f} -> {plain['last']:.6f}, {len(plain['losses'])} steps; ring without "
          f"split GEMMs: {'bit-equal' if bits else 'DIFFERENT'}; slipring: within {apart:.1e}")
    print("  rank 0: " + ", ".join(f"{reason} {n}" for reason, n in first.items()))
    for line in dict.fromkeys(filter(None, map(describe, ranks[0][1] if ranks else []))):
        print("  " + line)
    return wrong


def times(arguments):
    plain, ours = ([load(path)["ms"] for path in part] for part in (arguments.results, arguments.ours))
    a, b = statistics.median(plain), statistics.median(ours)
    print(f"{arguments.name}: {a:.2f} ms a step without, {b:.2f} with; {a / b:.2f} times as fast "
          f"({', '.join(f'{x:.1f}' for x in plain)}; {', '.join(f'{x:.1f}' for x in ours)})")
    return []


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("check", "times"))
    p.add_argument("name")
    p.add_argument("results", nargs="+", metavar="FILE")
    p.add_argument("--with", dest="ours", nargs="+", default=[], metavar="FILE")
    p.add_argument("--logs", metavar="PREFIX")
    p.add_argument("--tolerance", type=float, default=0)
    p.add_argument("--all-fused", action="store_true")
    arguments = p.parse_args()
    wrong = check(arguments) if arguments.what == "check" else times(arguments)
    for line in wrong:
        print(f"{arguments.name}: {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
