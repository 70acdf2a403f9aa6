#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the lines that SLIPRING_TRACE writes (docs/tracing.md), of all ranks of a program.

  trace_check.py [--calls KIND=N]... [--ended REASON]... [--want EXPRESSION]... [--without RANK] [--not-all] [--differ] [--not-in-time] FILE...

Each communicator of each rank has to have one trace_start, one trace_end that accounts for every sampled call, and one gather line for each
sampled all-gather, one scatter line for each sampled reduce-scatter of the ring; each its spans, whole and in order; the times of different ranks have to fit each other within the stated error.

  --calls ring=N, graph=N, pass=N, scatter=N, FUNC=N   each rank's communicators have N such lines together (graph: those of ring that
                         a graph made; scatter-graph, scatter-fused: of scatter)
  --ended REASON         some gather has ended so
  --want EXPRESSION      true of the totals of each rank (names: trace_end's fields, summed; exposed, lines; n(KIND))
  --without RANK         that rank measures nothing
  --not-all              samples may have been dropped, have failed, or not have been complete
  --differ               the ranks' settings differ
  --table TITLE          prints what was measured, by rank and how gathers ended
  --not-in-time          the communicator ends while its work is in flight
"""
import collections
import json
import sys

from trace_scatters import check_scatter, check_scatter_across

SLOTS = 2 # staging slots of a rank
ROUNDING = 2000  # ns: two times of one clock, which are floats of milliseconds
bad = []


def expect(good, where, text):
    if not good:
        bad.append(f"{where}: {text}")
    return good


def read(paths):
    """Lines by (communicator, rank): {event: [line]}, and each gather's spans in line["spans_of"]."""
    comms = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for line in map(json.loads, f):
                if line["event"] in ("trace_start", "trace_end", "clock", "gather", "scatter", "span", "collective"):
                    comms[line["comm"], line["crank"]][line["event"]].append(line)
    for lines in comms.values():
        of = {(g["decision"], g["call"]): g.setdefault("spans_of", []) for g in lines["gather"] + lines["scatter"]}
        for s in lines["span"]:
            of.get((s["decision"], s["call"]), []).append(s)
    return comms


def select(spans, lane=None, kind=None):
    return [s for s in spans if lane in (None, s["lane"]) and kind in (None, s["kind"])]


def by_peer(spans):
    found = collections.defaultdict(dict)
    for s in spans:
        found[s["peer"]][s["piece"]] = s
    return found


def whole(spans, g):
    """The spans are the pieces 0, 1, ... of a shard, or one copy of it."""
    return (sorted(s["piece"] for s in spans) in (list(range(g["pieces"])), [0])
            and sum(s["bytes"] for s in spans) == g["shard"])


def check_times(where, g):
    start = g["start"]
    for s in g["spans_of"]:
        expect(s["begin"] <= s["end"] + ROUNDING, where, f"a span ends before it begins: {s}")
        expect(s["begin"] >= g["begin"], where, f"a span begins before its gather: {s}")
    brought = [s["end"] for s in g["spans_of"] if s["kind"] in ("own", "nccl") or s["lane"] == "pull" and s["peer"] >= 0]
    expect(brought and abs(g["end"] - max(brought)) <= ROUNDING, where, "the end is not that of the last byte")
    expect(g["begin"] <= g["end"], where, "it ends before it begins")
    expect(start["ts"] - g["error"] <= g["begin"] and g["end"] <= g["ts"] + g["error"], where,
           f"not between trace_start and its line, within {g['error']} ns: {start['ts']} {g['begin']} {g['end']} {g['ts']}")
    waits = [s for s in g["spans_of"] if s["lane"] == "app" and s["kind"] in ("wait", "nccl")]
    expect(g["exposed"] == sum(s["end"] - s["begin"] for s in waits), where, "exposed is not the sum of the waits")
    for lane in ("publish", "pull"):
        spans = select(g["spans_of"], lane)
        # In a graph what comes from slots comes beside what comes from other peers' places.
        for peer in set(s["peer"] for s in spans) if g["reason"] == "graph" else (None,):
            alone = [s for s in spans if peer in (None, s["peer"])]
            for a, b in zip(alone, alone[1:]):
                expect(a["end"] <= b["begin"] + ROUNDING, where, f"the {lane} lane does two things at once: {a} {b}")


def check_ring(where, g, nranks, rank):
    spans, peers = g["spans_of"], set(range(nranks)) - {rank}
    pull, push = by_peer(select(spans, "pull", "pull")), by_peer(select(spans, "publish", "push"))
    waits = select(spans, "pull", "wait")
    own, stage = select(spans, "app", "own"), select(spans, "publish", "stage")
    expect(waits and waits[0]["peer"] in peers and waits[0]["piece"] == 0, where, "the pull lane does not begin by waiting for all")
    expect(waits and waits[-1]["peer"] < 0 and waits[-1]["piece"] == g["pieces"] - 1, where, "nor end by waiting for the readers")
    expect(all(s["peer"] in peers | {-1} and s["piece"] in range(g["pieces"]) for s in waits), where, "a wait for nothing")
    for peer, pieces in list(pull.items()) + list(push.items()):
        expect(peer in peers and whole(pieces.values(), g), where, f"not all pieces of peer {peer}")
    expect(len(select(spans, kind="pull")) == sum(map(len, pull.values())), where, "a piece was pulled twice")
    expect(g["slot"] + g["place"] + g["push"] == nranks - 1 and len(push) == g["push"], where, "peers are not accounted for")
    expect(whole(stage, g) if g["slot"] else not stage, where, "staged in another way than said")
    expect(sum(s["bytes"] for s in own) == (0 if g["in_place"] else g["shard"]), where, "the own shard was not copied as said")
    slots = [s["piece"] for s in select(spans, "publish", "wait") if s["peer"] < 0]
    waited = g["slot"] and g["reason"] != "graph" # a replay waits for slots beside other words
    expect(slots == (list(range(g["pieces"])) if waited else []), where, "waits for slots are not those of what was staged")
    check_end(where, g, pull)


def check_end(where, g, pull):
    """How the application's streams came to see the gather."""
    app = select(g["spans_of"], "app")
    joins = [s for s in app if s["kind"] == "wait" and s["peer"] < 0]
    gemms, waits = select(app, kind="gemm"), [s for s in app if s["kind"] == "wait" and s["peer"] >= 0]
    expect(joins, where, "no stream was joined")
    if g["ended"] != "fused":
        expect(not gemms and not waits, where, "parts of a GEMM, but not fused")
        return
    expect(len(joins) == 1, where, f"{len(joins)} joins: the stream that called counts although another one took the gather over")
    expect([s["piece"] for s in gemms] == list(range(len(gemms))) and gemms, where, "not all parts of the GEMM")
    for a, b in zip(gemms, gemms[1:]):
        expect(a["end"] <= b["begin"] + ROUNDING, where, "parts of a GEMM overlap")
    ahead = [s["end"] for s in select(g["spans_of"], "publish", "stage") if s["piece"] < SLOTS]
    for w in waits:
        expect(w["peer"] != g["crank"] or w["end"] + ROUNDING >= max(ahead, default=0), where, "a part came before the first pieces were staged")
        last = max((p["end"] for p in pull.get(w["peer"], {}).values() if chunk_of(g, p) <= w["piece"]), default=0)
        expect(w["end"] + ROUNDING >= last, where, f"a part did not wait for its chunk: {w}")


def chunk_of(g, pull):
    group = -(-g["pieces"] // g["chunks"])
    return pull["piece"] // group


def check_across(calls):
    """The same call on all ranks: nothing is read before it has been written, by the common clock."""
    for r, g in calls.items():
        for o, h in calls.items():
            where, error = f"call {g['call']}, from rank {o} to {r}", g["error"] + h["error"] + ROUNDING
            pushed = by_peer(select(h["spans_of"], "publish", "push")).get(r)
            pulled = by_peer(select(g["spans_of"], "pull", "pull")).get(o)
            if r == o:
                continue
            expect(pushed or pulled, where, "neither pushed nor pulled")
            staged = {s["piece"]: s for s in select(h["spans_of"], "publish", "stage")}
            for piece, p in (pulled or {}).items() if h["place"] == 0 and not pushed else ():
                expect(p["begin"] + error >= staged[piece]["end"], where, f"piece {piece} was pulled before it was staged")
            # What is expected elsewhere, or nowhere, is written, and waited for at the end of the gather.
            end = select(g["spans_of"], "pull", "wait")[-1]["end"]
            for piece, p in (pushed or {}).items():
                expect(end + error >= p["end"], where, f"piece {piece} had arrived before it was pushed")
                expect(not pulled or p["begin"] + error >= pulled[piece]["end"], where, f"piece {piece} was corrected before it was pulled")


def check_turn(where, gathers):
    """The calls of a communicator run one after another, each as a whole, and in the order of the calls."""
    for a, b in zip(gathers, gathers[1:]):
        before, after = select(a["spans_of"], "pull"), select(b["spans_of"], "pull")
        expect(before and after and before[-1]["end"] <= after[0]["begin"] + a["error"] + b["error"] + ROUNDING, where,
               f"call {b['call']} began before call {a['call']} had ended")


def check_rank(where, lines, options):
    start, end = lines["trace_start"], lines["trace_end"]
    expect(len(start) == 1 and len(end) == 1, where, f"{len(start)} trace_start, {len(end)} trace_end")
    if not start or not end:
        return
    start, end = start[0], end[0]
    written = len(lines["gather"]) + len(lines["scatter"]) + len(lines["collective"])
    expect(end["written"] == written, where, f"{written} lines, trace_end says {end['written']}")
    expect(end["sampled"] == end["written"] + end["dropped"] + end["failed"] + end["unfinished"], where, f"not all are accounted for: {end}")
    if "not-all" not in options:
        expect(end["sampled"] == end["written"], where, f"not all were written: {end}")
    if "not-in-time" not in options and written:
        expect(lines["clock"] and end["error"] == max(c["error"] for c in lines["clock"]), where, "the clock's error was not said")
    for g in lines["gather"]:
        here = f"{where}, {g['decision']} call {g['call']}"
        g["start"] = start
        expect(g["spans"] == len(g["spans_of"]) and g["cut"] == 0, here, f"{len(g['spans_of'])} spans, {g['spans']} said, {g['cut']} cut")
        check_times(here, g)
        if g["decision"] == "ring":
            check_ring(here, g, start["nranks"], g["crank"])
    for s in lines["scatter"]:
        here = f"{where}, {s['op']} {s['call']}"
        s["start"] = start
        expect(s["spans"] == len(s["spans_of"]) and s["cut"] == 0, here, f"{len(s['spans_of'])} spans, {s['spans']} said, {s['cut']} cut")
        check_scatter(expect, here, s, start["nranks"], s["crank"])
    for kind in ("ring", "pass"):
        numbers = sorted(g["call"] for g in lines["gather"] + lines["scatter"] if g["decision"] == kind)
        expect(len(numbers) == len(set(numbers)) and all(n % start["every"] == 1 % start["every"] for n in numbers), where,
               f"{kind} calls are not each {start['every']}th, once: {numbers}")
        # Calls of graphs are among them. Of passed ones some are not measured.
        expect(kind == "pass" or "not-all" in options or numbers == list(range(1, len(numbers) * start["every"] + 1, start["every"])), where,
               f"ring calls are missing: {numbers}")
    check_turn(where, sorted([g for g in lines["gather"] if g["decision"] == "ring"] + lines["scatter"], key=lambda g: g["call"]))
    for c in lines["collective"]:
        expect(c["begin"] <= c["end"] <= c["ts"] + c["error"], where, f"times: {c}")


def totals(comms, rank):
    mine = [lines for (_, r), lines in comms.items() if r == rank]
    gathers = [g for lines in mine for g in lines["gather"]]
    count = collections.Counter(g["decision"] for g in gathers)
    count.update("scatter" for lines in mine for s in lines["scatter"])
    count.update("reduce" for lines in mine for s in lines["scatter"] if s["op"] == "allreduce")
    count.update("scatter-fused" for lines in mine for s in lines["scatter"] if s["ended"] == "fused")
    count.update("scatter-graph" for lines in mine for s in lines["scatter"] if s["reason"] == "graph")
    count.update("graph" for g in gathers if g["reason"] == "graph")
    count.update(c["func"] for lines in mine for c in lines["collective"])
    t = collections.Counter()
    for lines in mine:
        for e in lines["trace_end"]:
            t.update({k: e[k] for k in ("sampled", "written", "dropped", "failed", "unfinished")})
    t.update(exposed=sum(g["exposed"] for g in gathers), lines=len(gathers))
    return {**{k: t[k] for k in ("sampled", "written", "dropped", "failed", "unfinished", "exposed", "lines")}, "n": lambda k: count[k]}


def print_table(title, comms):
    groups = collections.defaultdict(list)
    for (_, rank), lines in comms.items():
        for g in lines["gather"]:
            groups[rank, g["ended"]].append(g)
    print(f"{title}: means in ms\nrank  ended              gathers  gather   exposed  spans  clock error us")
    for (rank, ended), gathers in sorted(groups.items()):
        n = len(gathers)
        mean = lambda value: sum(map(value, gathers)) / n
        print(f"{rank:4}  {ended:17} {n:8} {mean(lambda g: g['end'] - g['begin']) / 1e6:8.4f} {mean(lambda g: g['exposed']) / 1e6:8.4f}"
              f" {mean(lambda g: g['spans']):6.1f} {max(g['error'] for g in gathers) / 1e3:10.1f}")


def main(args):
    options, wants, ended, without, files, title = set(), [], [], [], [], None
    while args:
        arg = args.pop(0)
        if arg == "--calls":
            kind, n = args.pop(0).split("=")
            wants.append(f"n('{kind}') == {n}")
        elif arg == "--want":
            wants.append(args.pop(0))
        elif arg == "--table":
            title = args.pop(0)
        elif arg == "--ended":
            ended.append(args.pop(0))
        elif arg == "--without":
            without.append(int(args.pop(0)))
        elif arg.startswith("--"):
            options.add(arg[2:])
        else:
            files.append(arg)
    comms = read(files)
    expect(comms, "log", "no lines")
    for (name, rank), lines in comms.items():
        check_rank(f"{name} rank {rank}", lines, options)
    calls = collections.defaultdict(dict)
    for (name, rank), lines in comms.items():
        for g in lines["gather"]:
            if g["decision"] == "ring":
                calls[name, g["call"]][rank] = g
    scatters = collections.defaultdict(dict)
    for (name, rank), lines in comms.items():
        for s in lines["scatter"]:
            scatters[name, s["call"]][rank] = s
    for (name, call), ranks in scatters.items():
        if not options & {"not-all", "differ"}:
            expect(len(ranks) == next(iter(ranks.values()))["start"]["nranks"], f"{name} call {call}", f"only ranks {sorted(ranks)} have it")
        check_scatter_across(expect, ranks)
    for (name, call), ranks in calls.items():
        if not options & {"not-all", "differ"}:
            expect(len(ranks) == next(iter(ranks.values()))["start"]["nranks"], f"{name} call {call}", f"only ranks {sorted(ranks)} have it")
        check_across(ranks)
    ranks = {rank for _, rank in comms}
    expect(not ranks & set(without), "log", f"rank {without} was measured")
    for rank in sorted(ranks):
        for want in wants:
            t = totals(comms, rank)
            expect(eval(want, {}, t), f"rank {rank}", f"not true: {want} of {dict(t)}")
    reasons = {g["ended"] for lines in comms.values() for g in lines["gather"]}
    for reason in ended:
        expect(reason in reasons, "log", f"no gather ended by {reason}: {sorted(reasons)}")
    if title:
        print_table(title, comms)
    for text in bad[:20]:
        print("FAILED:", text, file=sys.stderr)
    return 1 if bad else 0


sys.exit(main(sys.argv[1:]))
