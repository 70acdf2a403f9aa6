# SPDX-License-Identifier: Apache-2.0
"""For check_figures.py: what a report says of reduce-scatters, from the lines. `c` is that module's: check, near, number, percentile, ..."""
import collections


def key_of(x):
    return x["comm"], x["shard"], x["count"], x["dtype"], x["in_place"]


def rows_of(c, text, head):
    lines = c.section(text, "Reduce-scatters").split("\n")
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
        if x["event"] == "scatter" or x.get("op") == "reducescatter" and x["event"] in ("substitute", "pass"):
            found[key_of(x)].append(x)
    order = {comm: i for i, comm in enumerate(dict.fromkeys(x["comm"] for x in lines if "comm" in x))}
    return sorted(found.items(), key=lambda item: (order[item[0][0]], *item[0][1:3], item[0][4], item[0][3]))


def check_decisions(c, text, lines):
    rows, want = rows_of(c, text, "call site  communicator"), sites(lines)
    c.check(len(rows) == len(want), "%d reduce-scatters, not %d" % (len(rows), len(want)))
    for (number, comm, shape, went, gemm), (key, of) in zip(rows, want):
        bytes_, kind = shape.split(", ", 1)
        c.check(comm == key[0] and c.near(c.number(bytes_, c.BYTES), key[1]) and kind == "%d %s%s" % (key[2], key[3], ", in place" * key[4]), "%s: %s, not %s" % (number, shape, key))
        reasons = {x["reason"] for x in of}
        shown = set(went.replace("NCCL: ", "").replace("; ", ", ").replace(" and ", ", ").split(", "))
        c.check(shown == reasons, "%s went to %s, not %s" % (number, went, reasons))
        made = any(x.get("made") or x.get("ended") == "fused" for x in of)
        blocks = {"%(m)d x %(n)d x %(k)d in %(parts)d" % x for x in lines if x["event"] == "produced" and x["comm"] == key[0] and x["shard"] == key[1]}
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


def check_advice(c, text, lines):
    said, n = " ".join(c.section(text, "What to do").split()), max(x.get("nranks", 0) for x in lines)
    for i, (key, of) in enumerate(sites(lines)):
        reasons = {x["reason"] for x in of}
        room = -(-(key[1] * (n - 1)) // (2 << 20))
        c.check(("#%d does not fit the staging slots: SLIPRING_SLOT_BYTES=%dM does" % (i + 1, room) in said) == ("reduce_scatter_room" in reasons), "advice on room of #%d" % (i + 1))
        tried = any(x["event"] == "tried" and x["op"] == "reducescatter" and x["shard"] == key[1] for x in lines)
        untried = "reduce_scatter_untried" in reasons and not tried
        c.check(("#%d: its ways were not tried to the end" % (i + 1) in said) == untried, "advice on what was not tried to the end, #%d" % (i + 1))
    total = lambda name: sum(x.get(name, 0) for x in lines if x["event"] == "summary")
    made, wrong = total("scatters_produced"), total("scatters_produced") - total("scatters_fused")
    c.check(("%d of %d GEMMs that were computed in blocks" % (wrong, made) in said) == (wrong >= 8 and 4 * wrong > made), "advice on wrong guesses: %d of %d" % (wrong, made))


def check_scatters(c, text, lines):
    if not any(x["event"] == "scatter" or x.get("op") == "reducescatter" for x in lines):
        return c.check("Reduce-scatters" not in text, "a section of reduce-scatters, without one")
    said = " ".join(c.section(text, "Reduce-scatters").split())
    for name, words in (("scatters", "%d calls of all ranks;"), ("scatters_substituted", "%d went over the ring"), ("scatters_fused", "%d of these behind"), ("scatters_produced", "%d GEMMs were")):
        total = sum(x.get(name, 0) for x in lines if x["event"] == "summary")
        c.check(words % total in said, "%s is not %d" % (name, total))
    counts = collections.Counter()
    for x in lines:
        if x["event"] == "scatter_count":
            counts[x["reason"]] += x["n"]
    c.check({row[0]: int(row[1]) for row in rows_of(c, text, "reason") if row[1] != "-"} == counts, "counts of reasons are not %s" % counts)
    check_decisions(c, text, lines)
    check_times(c, text, lines)
    check_advice(c, text, lines)
