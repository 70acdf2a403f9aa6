# SPDX-License-Identifier: Apache-2.0
"""For check_figures.py: what a report says of reduce-scatters and all-reduces, from the lines. `c` is that module's: check, near, number, percentile, ..."""
import collections
import re

TITLE = "Reduce-scatters and all-reduces"
WORDS = {"reducescatter": "reduce-scatter", "allreduce": "all-reduce"}
COUNTS = {"scatter_count": "reducescatter", "reduce_count": "allreduce"}


def key_of(x):
    return x["comm"], x["op"], x["shard"], x["count"], x["dtype"], x["in_place"]


def rows_of(c, text, head):
    lines = c.section(text, TITLE).split("\n")
    at = next((i for i, l in enumerate(lines) if l.startswith("  " + head)), None)
    if at is None:
        return []
    table = []
    for l in lines[at:]:
        if not l.startswith("  ") or (table and l.startswith(("  reason ", "  call site "))):
            break
        table.append(l)
    return c.text_rows(table)[1:]


def sites(lines):
    found = collections.defaultdict(list)
    for x in lines:
        if x["event"] == "scatter" or x.get("op") in WORDS and x["event"] in ("substitute", "pass"):
            found[key_of(x)].append(x)
    order = {comm: i for i, comm in enumerate(dict.fromkeys(x["comm"] for x in lines if "comm" in x))}
    return sorted(found.items(), key=lambda item: (order[item[0][0]], item[0][1] == "allreduce", *item[0][2:4], item[0][5], item[0][4]))


def check_decisions(c, text, lines):
    rows, want = rows_of(c, text, "call site  communicator"), sites(lines)
    c.check(len(rows) == len(want), "%d sites, not %d" % (len(rows), len(want)))
    for (number, comm, words, shape, went, gemm), (key, of) in zip(rows, want):
        bytes_, kind = shape.split(", ", 1)
        c.check(comm == key[0] and words == WORDS[key[1]] and number == number_of(c, text, key), "%s: %s %s, not %s" % (number, comm, words, key))
        c.check(c.near(c.number(bytes_, c.BYTES), key[2]) and kind == "%d %s%s" % (key[3], key[4], ", in place" * key[5]), "%s: %s, not %s" % (number, shape, key))
        reasons = {x["reason"] for x in of}
        shown = set(went.replace("NCCL: ", "").replace("; ", ", ").replace(" and ", ", ").split(", "))
        c.check(shown == reasons, "%s went to %s, not %s" % (number, went, reasons))
        made = any(x.get("made") or x.get("ended") == "fused" for x in of)
        blocks = {"%(m)d x %(n)d x %(k)d in %(parts)d" % x for x in lines if x["event"] == "produced" and x["comm"] == key[0] and x["shard"] == key[2]
                  and x.get("op", key[1]) == key[1]}
        c.check(set(gemm.split("; ")) <= blocks if blocks else gemm == ("whole" if made else "none known"), "%s: GEMM %s, not %s" % (number, gemm, blocks))


def check_times(c, text, lines):
    rows, want = rows_of(c, text, "call site  measured"), sites(lines)
    c.check(len(rows) == (len(want) if any(x["event"] == "scatter" for x in lines) else 0), "%d rows of times" % len(rows))
    for (number, measured, median, p90, exposed, overlap), (_, of) in zip(rows, want):
        of = [x for x in of if x["event"] == "scatter"]
        if not of:
            c.check((measured, median, p90, exposed, overlap) == ("-",) * 5, "%s has times" % number)
            continue
        time = [x["end"] - x["begin"] for x in of]
        hidden = sum(max(0, t - x["exposed"]) for t, x in zip(time, of))
        c.check(measured == "%d, %d fused" % (len(of), sum(x["ended"] == "fused" for x in of)), "%s: measured %s" % (number, measured))
        for name, shown, exact in (("median", median, c.percentile(time, 50)), ("p90", p90, c.percentile(time, 90)), ("exposed", exposed, c.percentile([x["exposed"] for x in of], 50))):
            c.check(c.near(c.number(shown, c.UNITS), exact), "%s: %s %s, not %d ns" % (number, name, shown, exact))
        c.check(abs(float(overlap[:-1]) - 100 * hidden / sum(time)) <= 0.51, "%s: overlap %s, not %.2f%%" % (number, overlap, 100 * hidden / sum(time)))


def number_of(c, text, key):
    """That of the first call site of its size."""
    name = "%s, %s" % (WORDS[key[1]], c.bytes_text(key[2]))
    return next((row[0].split(":")[0] for row in c.block(text, "Call sites")[1:] if c.name_of(row[0]) in (name, name + " (a)")), "none")


def check_advice(c, text, lines):
    said, n = " ".join(c.section(text, "What to do").split()), max(x.get("nranks", 0) for x in lines)
    for key, of in sites(lines):
        reasons = {x["reason"] for x in of}
        room = -(-(key[2] * (n - 1)) // (2 << 20))
        name = "%s %s" % (WORDS[key[1]].capitalize(), number_of(c, text, key))
        c.check(("%s does not fit the staging slots: SLIPRING_SLOT_BYTES=%dM does" % (name, room) in said) == ("reduce_scatter_room" in reasons), "advice on room of %s" % name)
        tried = any(x["event"] == "tried" and x["op"] == key[1] and x["shard"] == key[2] for x in lines)
        untried = "reduce_scatter_untried" in reasons and not tried
        c.check(("%s: ring and NCCL were not compared to the end" % name in said) == untried, "advice on what was not tried to the end, %s" % name)
    total = lambda name: sum(x.get(name, 0) for x in lines if x["event"] == "summary")
    made, wrong = total("scatters_produced"), total("scatters_produced") - total("scatters_fused")
    c.check(("%d of %d GEMMs that were computed in blocks" % (wrong, made) in said) == (wrong >= 8 and 4 * wrong > made and 16 * wrong > total("scatters") + total("reduces")), "advice on wrong guesses: %d of %d" % (wrong, made))


def traced(lines, op=None, pid=None):
    """How many, and of them together the time, and how much of it was hidden or exposed."""
    of = [x for x in lines if x["event"] == "scatter" and op in (None, x["op"]) and pid in (None, x["pid"])]
    time = [x["end"] - x["begin"] for x in of]
    return len(of), sum(time), sum(max(0, t - x["exposed"]) for t, x in zip(time, of)), sum(x["exposed"] for x in of)


def check_glance(c, text, lines, total):
    said = " ".join(c.section(text, "The run").split())
    for op, name in (("reducescatter", "scatters"), ("allreduce", "reduces")):
        (n, time, hidden, _), (calls, moved) = traced(lines, op), (total(name), total(name + "_substituted"))
        if not calls and not n:
            c.check(WORDS[op].capitalize() + "s " not in said, "%ss at a glance, without one" % WORDS[op])
            continue
        at = re.search(r"%ss (\d+) calls of all ranks; (\d+) over the ring, (\d+) by NCCL(?:; of (\S+ \S+) in (\d+) that were traced, (\S+ \S+) were hidden)?"
                       % WORDS[op].capitalize(), said)
        c.check(at and (int(at[1]), int(at[2]), int(at[3])) == (calls, moved, calls - moved), "%ss at a glance" % WORDS[op])
        good = at and (n == 0 if not at[4] else n == int(at[5]) and c.near(c.number(at[4], c.UNITS), time) and c.near(c.number(at[6], c.UNITS), hidden))
        c.check(good, "times of %ss at a glance, not %d, %d, %d" % (WORDS[op], n, time, hidden))


def check_ranks(c, text, lines):
    rows = re.findall(r"^  (rank \d+) +(\d+)  +(\S+ \S+|-) +(\S+ \S+|-) +(\d+%|-)$", c.section(text, "Ranks"), re.M)
    want = {"rank %d" % x["rank"]: traced(lines, pid=x["pid"]) for x in lines if x["event"] == "summary"} if traced(lines)[0] else {}
    c.check(len(rows) == len(want), "%d rows of ranks, not %d" % (len(rows), len(want)))
    for rank, n, time, exposed, overlap in rows:
        good = int(n) == want[rank][0] and (not want[rank][0] or c.near(c.number(time, c.UNITS), want[rank][1]) and c.near(c.number(exposed, c.UNITS), want[rank][3]))
        c.check(good, "traced of %s: %s, %s, %s" % (rank, n, time, exposed))
        c.check(not want[rank][0] or abs(float(overlap[:-1]) - 100 * want[rank][2] / want[rank][1]) <= 0.51, "overlap of %s: %s" % (rank, overlap))


def check_scatters(c, text, lines):
    if not any(x["event"] == "scatter" or x.get("op") in WORDS for x in lines):
        return c.check(TITLE not in text, "a section of reduce-scatters, without one")
    said, total = " ".join(c.section(text, TITLE).split()), lambda name: sum(x.get(name, 0) for x in lines if x["event"] == "summary")
    for name, words in (("scatters", "%d reduce-scatters of all ranks, %d of them over the ring"), ("reduces", "%d all-reduces of all ranks, %d of them over the ring")):
        want = words % (total(name), total(name + "_substituted"))
        c.check((want in said) == (total(name) > 0), "it does not say %s" % want)
    for name, words in (("scatters_fused", "%d of those over the ring went behind"), ("scatters_produced", "%d GEMMs were")):
        c.check(words % total(name) in said, "%s is not %d" % (name, total(name)))
    check_glance(c, text, lines, total)
    check_ranks(c, text, lines)
    counts = collections.Counter()
    for x in lines:
        if x["event"] in COUNTS:
            counts[x["reason"]] += x["n"]
    c.check({row[0]: int(row[1]) for row in rows_of(c, text, "reason") if row[1] != "-"} == counts, "counts of reasons are not %s" % counts)
    check_decisions(c, text, lines)
    check_times(c, text, lines)
    check_advice(c, text, lines)
