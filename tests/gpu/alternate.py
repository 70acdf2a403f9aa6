#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the same measurement in several ways, in turn, and prints the medians side by side.

    alternate.py --rounds 5 --label "64 MiB" --metric worst.gather.gpu_ms --side old "COMMAND..." --side new "COMMAND..."

Each command gets --json FILE as its last options and writes an object there; a metric is a path into it. All metrics are times:
the ratio is that of the first side's median to another's, so above 1 the other one is faster. --at-least: it fails below that
ratio. The order of the sides turns from round to round.

Exit status: 0, 1 for a ratio that is too small, or the status of a command that failed.
"""
import argparse
import functools
import json
import shlex
import statistics
import subprocess
import sys
import tempfile


def run(command, seconds):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        words = shlex.split(command) + ["--json", out.name]
        try:
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            sys.stderr.write(str(late.stdout or ""))
            sys.exit(f"alternate: not ended after {seconds} s: {shlex.join(words)}")
        if done.returncode:
            sys.stderr.write(done.stdout)
            print(f"alternate: status {done.returncode} from: {shlex.join(words)}", file=sys.stderr)
            sys.exit(done.returncode if done.returncode > 0 else 1)
        with open(out.name, encoding="utf-8") as file:
            return json.load(file)


def value(result, metric):
    return functools.reduce(lambda part, key: part[key], metric.split("."), result)


def measure(options):
    runs = {name: [] for name, _ in options.side}
    for number in range(options.rounds):
        turn = number % len(options.side)
        for name, command in options.side[turn:] + options.side[:turn]:
            runs[name].append(run(command, options.timeout))
    return runs


def row(label, metric, runs):
    """The cells of one metric, and the ratios of the first side to each other one."""
    medians = [statistics.median(value(result, metric) for result in results) for results in runs.values()]
    spread = [[value(result, metric) for result in results] for results in runs.values()]
    ratios = [medians[0] / other if other else 0 for other in medians[1:]]
    cells = [label, metric] + [f"{median:.4g} ({min(all_):.4g}-{max(all_):.4g})" for median, all_ in zip(medians, spread)]
    return cells + [f"{ratio:.3f}" for ratio in ratios], ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", nargs=2, action="append", required=True, metavar=("NAME", "COMMAND"))
    parser.add_argument("--metric", nargs="+", required=True)
    parser.add_argument("--label", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-least", type=float, default=0)
    parser.add_argument("--timeout", type=float, default=90, help="seconds for one run")
    parser.add_argument("--no-head", action="store_true", help="rows only")
    options = parser.parse_args()
    runs, names, low = measure(options), [name for name, _ in options.side], []
    if not options.no_head:
        head = ["", "time"] + names + [f"{names[0]} / {name}" for name in names[1:]]
        print("| " + " | ".join(head) + " |\n" + "| --- " * len(head) + "|")
    for metric in options.metric:
        cells, ratios = row(options.label, metric, runs)
        print("| " + " | ".join(cells) + " |", flush=True)
        low += [f"{options.label} {metric}: {ratio:.3f} is below {options.at_least}" for ratio in ratios if ratio < options.at_least]
    for line in low:
        print(line)
    sys.exit(1 if low else 0)


if __name__ == "__main__":
    main()
