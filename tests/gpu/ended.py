#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says of each rank of each communicator how its gathers ended, from JSON logs with SLIPRING_TRACE=1.

    ended.py [--alike] NAME LOG...

--alike: all ranks of a communicator must have as many fused, but for one in ten: first calls may differ, as libraries
allocate what they need then.
"""
import argparse
import collections
import json
import sys


def gathers(paths):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for line in file:
                event = json.loads(line) if line.startswith("{") else {}
                if event.get("event") == "gather":
                    yield event


def count(paths):
    """{communicator: {rank: counter of how gathers ended}}"""
    comms = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
    for event in gathers(paths):
        how = event["ended"] if event["decision"] == "ring" else event["reason"]
        comms[event["comm"]][event["crank"]][how] += 1
    return comms


def unlike(comm, ranks):
    fused = {rank: counts["fused"] for rank, counts in ranks.items()}
    if len(ranks) < 2 or not all(ranks.values()):
        return [f"{comm}: only ranks {sorted(ranks)} gathered"]
    apart = max(fused.values()) - min(fused.values())
    return [f"{comm}: fused by rank: {fused}"] if apart * 10 > max(sum(counts.values()) for counts in ranks.values()) else []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alike", action="store_true")
    parser.add_argument("name")
    parser.add_argument("logs", nargs="+")
    options = parser.parse_args()
    comms, bad = count(options.logs), []
    for comm, ranks in sorted(comms.items()):
        for rank, counts in sorted(ranks.items()):
            ways = ", ".join(f"{how} {number}" for how, number in counts.most_common())
            print(f"{options.name}: communicator {comm} rank {rank}: {sum(counts.values())} gathers: {ways}")
        bad += unlike(comm, ranks) if options.alike else []
    if not comms:
        bad.append("no gather in the logs")
    for line in bad:
        print(f"{options.name}: {line}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
