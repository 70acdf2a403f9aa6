# SPDX-License-Identifier: Apache-2.0
"""What trace_check.py checks of the lines `scatter`, of reduce-scatters and all-reduces, and of their spans. expect(good, where, text) notes what is wrong."""
import itertools

ELEMENT = {"bf16": 2, "fp16": 2, "fp32": 4}
ROUNDING = 2000  # ns: two times of one clock, which are floats of milliseconds


def select(s, lane, kind):
    return [x for x in s["spans_of"] if x["lane"] == lane and x["kind"] == kind]


def pushes(s, peer):
    return [x for x in select(s, "publish", "push") if x["peer"] == peer]


def copies(s, peer):
    return [x for x in select(s, "copy", "pull") if x["peer"] == peer]


def is_all(s):
    return s["op"] == "allreduce"


def length(s, rank):
    """Of a rank's shard: the last ones of an all-reduce may be shorter, or empty."""
    return max(0, min(s["shard"], s["count"] * ELEMENT[s["dtype"]] - rank * s["shard"])) if is_all(s) else s["shard"]


def ranges(parts):
    """(first byte, behind the last one, part) of each."""
    ends = list(itertools.accumulate(x["bytes"] for x in parts))
    return list(zip([0] + ends, ends, parts))


def whole(parts, bytes_):
    return [x["piece"] for x in parts] == list(range(len(parts))) and sum(x["bytes"] for x in parts) == bytes_ and all(x["bytes"] for x in parts)


def check_copies(expect, where, s, nranks, rank):
    """Of an all-reduce: the sums of the others."""
    peers = [(rank + step) % nranks for step in range(1, nranks)] if is_all(s) else []
    waits, pulls = select(s, "copy", "wait"), select(s, "copy", "pull")
    expect(all(whole(copies(s, peer), length(s, peer)) for peer in peers) and len(pulls) == sum(len(copies(s, peer)) for peer in peers), where,
           "the sums of each peer were not copied, each part once")
    parts = max((len(copies(s, peer)) for peer in peers), default=0)
    waited = [w["piece"] for w in waits] # for the parts of shard 0, which may be the own one
    expect(waited == list(range(len(waits))) and len(waits) >= parts and bool(waits) == is_all(s), where, f"the copy lane waited for parts {waited}")


def check_scatter(expect, where, s, nranks, rank):
    sums, stands = select(s, "pull", "sum"), select(s, "app", "wait")
    pushed = {(rank + step) % nranks: pushes(s, (rank + step) % nranks) for step in range(1, nranks)}
    all_pushes = select(s, "publish", "push")
    expect(all(whole(p, length(s, peer)) for peer, p in pushed.items()) and sum(map(len, pushed.values())) == len(all_pushes), where, "not all parts were sent to each peer, once")
    expect(whole(sums, length(s, rank)), where, "the own shard was not added, each part once")
    expect(s["parts"] == len(sums) + len(all_pushes) or s["ended"] != "fused", where, f"{s['parts']} parts said")
    waits = select(s, "pull", "wait")
    expect([w["piece"] for w in waits] == [-1] + [x["piece"] for x in sums], where, "the pull lane did not wait for the slots, and then for each part")
    expect(len(stands) == 1, where, f"the stream was joined {len(stands)} times")
    check_copies(expect, where, s, nranks, rank)
    pulls = select(s, "copy", "pull")
    if not sums + pulls or not all_pushes + sums or not stands:
        return expect(False, where, "nothing to look at")
    for x in s["spans_of"]:
        expect(x["begin"] <= x["end"] + ROUNDING, where, f"a span ends before it begins: {x}")
    for lane in ("publish", "pull", "copy", "app"):
        of = [x for x in s["spans_of"] if x["lane"] == lane]
        for a, b in zip(of, of[1:]):
            expect(a["end"] <= b["begin"] + ROUNDING, where, f"the {lane} lane does two things at once: {a} {b}")
    join = stands[0]
    expect(s["begin"] == min(x["begin"] for x in all_pushes + stands), where, "it does not begin with its first part, or its call")
    expect(s["end"] == max([s["begin"]] + [x["end"] for x in sums + pulls]), where, "it does not end with its last sum, or copy of one")
    expect(s["exposed"] == join["end"] - join["begin"], where, "exposed is not how long the stream stood still")
    for x in sums + all_pushes + pulls:
        expect(join["end"] + ROUNDING >= x["end"], where, f"the stream went on before {x}")
    check_gemm(expect, where, s, nranks, rank, pushed, sums, join)


def check_gemm(expect, where, s, nranks, rank, pushed, sums, join):
    gemms = select(s, "app", "gemm")
    if s["ended"] != "fused":
        expect(s["ended"] == "whole" and not gemms, where, "parts of a GEMM, but not fused")
        return
    blocks = len(sums)
    if not gemms:
        return expect(False, where, "fused, but no parts of a GEMM")
    expect([g["piece"] for g in gemms] == list(range(s["parts"])) and s["parts"] == nranks * blocks, where, f"{len(gemms)} parts of the GEMM, not {s['parts']}")
    expect(join["begin"] + ROUNDING >= gemms[-1]["end"], where, "the stream came to the call before the GEMM's end")
    made = {shard: [] for shard in range(nranks)}
    for i, gemm in enumerate(gemms): # all of a shard, or of an all-reduce a block of each in turn
        made[(rank + 1 + (i % nranks if is_all(s) else i // blocks)) % nranks].append(gemm)
    for shard, parts in made.items():
        for gemm, used in zip(parts, sums if shard == rank else pushed.get(shard, [])):
            expect(used["begin"] + ROUNDING >= gemm["end"], where, f"{used} before {gemm}")


def check_scatter_across(expect, calls):
    """The same call on all ranks: nothing is added before it has been written, nor written before there is room."""
    for r, s in calls.items():
        for o, other in calls.items():
            where, error = f"{s['op']} {s['call']}, from rank {o} to {r}", s["error"] + other["error"] + ROUNDING
            if r == o:
                continue
            parts, room = ranges(pushes(other, r)), select(s, "pull", "wait")[0]
            # That they are free is said before the wait's end is stamped.
            expect(not parts or parts[0][2]["end"] + error >= room["begin"], where, "written before the slots were free")
            for first, last, copied in ranges(copies(s, o)):
                for begin, end, added in ranges(select(other, "pull", "sum")):
                    expect(begin >= last or end <= first or copied["begin"] + error >= added["end"], where, f"{copied} before {added}")
            for first, last, added in ranges(select(s, "pull", "sum")):
                for begin, end, part in parts:
                    expect(begin >= last or end <= first or added["begin"] + error >= part["end"], where, f"{added} before {part}")
