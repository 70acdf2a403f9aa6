# SPDX-License-Identifier: Apache-2.0
"""What bench/peers has measured, as Markdown and as JSON."""

import json
import statistics

from measure import name_of

OURS = "slipring"


def head(cells):
    return "| " + " | ".join(cells) + " |\n" + "| --- " * len(cells) + "|"


def line(cells):
    return "| " + " | ".join(cells) + " |"


def number(value):
    """Four figures, without an exponent."""
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}"


def cell(spread):
    return f"{number(spread['median'])} ({number(spread['min'])}-{number(spread['max'])})" if spread else "-"


def ratio(value):
    return f"{value:.3f}" if value else "-"


def size_name(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def slower(gemm, gather):
    parts = [gemm and gemm["median"], gather]
    return max(parts) if all(parts) else None


class Row:
    """One shape in one form."""

    def __init__(self, report, row, form):
        self.row, self.form, self.report = row, form, report
        results = report.results
        self.times = {
            side: results.whole.spread(key)
            for side in report.sides
            for key in [report.key(row, form, side)]
            if key in results.whole
        }
        self.gemm, self.gemm_warm = results.cool.spread(row), results.warm.spread(row)
        self.gathers = {
            side: results.gather.spread((row, side)) for side in report.sides if (row, side) in results.gather
        }
        self.ours = self.times[OURS]["median"] if OURS in self.times else None
        self.wrong = {
            side: results.wrong[key]
            for side in report.sides
            for key in [report.key(row, form, side)]
            if key in results.wrong
        }

    def against(self, side):
        """How many times as long the side takes as slipring."""
        return self.times[side]["median"] / self.ours if side in self.times and self.ours else None

    def best_gather(self):
        return min((spread["median"] for spread in self.gathers.values()), default=None)

    def bound(self):
        """No schedule is faster than the slower one of the two parts."""
        return slower(self.gemm, self.best_gather())

    def warm_bound(self):
        """The same with what the GEMM takes in the rounds."""
        return slower(self.gemm_warm, self.best_gather())

    def above(self, bound):
        return self.ours / bound if self.ours and bound else None

    def above_bound(self):
        return self.above(self.bound())

    def above_warm_bound(self):
        return self.above(self.warm_bound())

    def title(self):
        return f"({name_of(self.row)}) {self.form}"


class Report:
    def __init__(self, facts, results, options):
        self.facts, self.results, self.options = facts, results, options
        order = ["nccl", OURS, "fused", "async-tp", "zero-cta"] + [name for name, _ in options.also]
        there = {key[-1] for key in results.whole} | {key[1] for key in results.gather}
        self.sides = [name for name in order if name in there]
        rows = [Row(self, row, form) for row in options.shapes for form in options.forms]
        self.rows = [row for row in rows if row.times]
        self.peers = [side for side in self.sides if side != OURS and OURS in self.sides]

    def key(self, row, form, side):
        own = (row, "own", side)
        return own if own in self.results.whole else (row, form, side)

    # Markdown.

    def markdown(self):
        parts = [self.about(), self.shapes(), self.summary(), self.blocks(), self.gathers(), self.notes()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def about(self):
        return "\n".join(f"- {name}: {value}" for name, value in self.facts)

    def shapes(self):
        if not self.rows:
            return ""
        with_gather = [side for side in self.sides if any(side in row.gathers for row in self.rows)]
        titles = (
            ["M, K, N", "form", "GEMM alone", "GEMM warm"] + [f"gather, {side}" for side in with_gather] + self.sides
        )
        titles += [f"{side} / {OURS}" for side in self.peers]
        titles += [f"{OURS} / bound", f"{OURS} / warm bound"] if OURS in self.sides else []
        lines = [
            f"Milliseconds of one iteration, median (least-most) of {self.options.rounds} rounds:",
            "",
            head(titles),
        ]
        for row in self.rows:
            cells = [name_of(row.row).replace(",", ", "), row.form, cell(row.gemm), cell(row.gemm_warm)]
            cells += [cell(row.gathers.get(side)) for side in with_gather]
            cells += [cell(row.times.get(side)) + (" WRONG" if side in row.wrong else "") for side in self.sides]
            cells += [ratio(row.against(side)) for side in self.peers]
            cells += [ratio(row.above_bound()), ratio(row.above_warm_bound())] if OURS in self.sides else []
            lines.append(line(cells))
        return "\n".join(lines)

    def summary(self):
        """Against each peer in a line, then the rows that miss what is aimed at."""
        lines = []
        for side in self.peers:
            known = [(row.against(side), row) for row in self.rows if row.against(side)]
            if known:
                least, where = min(known, key=lambda pair: pair[0])
                middle = statistics.median(value for value, _ in known)
                lines.append(
                    f"- {side} / {OURS}: median {middle:.3f}, least {least:.3f} at {where.title()}, {len(known)} rows"
                )
        slower = [
            f"{row.title()}: {side} {row.against(side):.3f}"
            for row in self.rows
            for side in self.peers
            if row.against(side) and row.against(side) < 1
        ]
        near = [
            f"{row.title()}: {row.against('fused'):.3f}"
            for row in self.rows
            if row.against("fused") and 1 <= row.against("fused") < 1.05
        ]
        if self.peers:
            lines.append(f"- rows in which a peer is faster: {'; '.join(slower) or 'none'}")
            lines += [f"- rows in which slipring is less than 1.05 times as fast as fused: {'; '.join(near)}"] * bool(
                near
            )
            lines += self.far_above()
        return "\n".join(lines)

    def far_above(self):
        """Of rows whose gather takes a quarter of the GEMM or more."""
        for name, gemm, above in (
            ("bound", lambda row: row.gemm, Row.above_bound),
            ("warm bound", lambda row: row.gemm_warm, Row.above_warm_bound),
        ):
            counted = [row for row in self.rows if above(row) and row.best_gather() >= gemm(row)["median"] / 4]
            far = [f"{row.title()}: {above(row):.3f}" for row in counted if above(row) > 1.08]
            yield f"- rows more than 1.08 above the {name}, of {len(counted)} whose gather takes a quarter of the GEMM or more: " + (
                "; ".join(far) or "none"
            )

    def blocks(self):
        if not self.results.blocks:
            return ""
        lines = [
            "Multiprocessors that a gather alone takes: the blocks of its largest kernel, by torch.profiler "
            "(copies on copy engines are no kernels):",
            "",
            head(["side", "blocks", "kernels"]),
        ]
        for side, seen in self.results.blocks.items():
            lines.append(line([side, str(seen["blocks"]), ", ".join(seen["kernels"]) or "none"]))
        return "\n".join(lines)

    def gathers(self):
        alone = self.results.alone
        names = list(dict.fromkeys(name for _, name, _ in alone))
        if not names:
            return ""
        place = "in place" if self.options.in_place else "out of place"
        lines = [
            f"Gathers alone, {place}, microseconds: on the device back to back, of the host in a call, "
            "and from the call to the end of a synchronisation:",
            "",
        ]
        whats = [("device_us", "device"), ("host_us", "host"), ("latency_us", "latency")]
        peers = [name for name in names if not name.startswith(OURS)]
        titles = ["shard"] + [f"{title}, {name}" for _, title in whats for name in names]
        titles += ["best peer / slipring, device"] if OURS in names and peers else []
        lines.append(head(titles))
        for size in self.options.gathers:
            if not any((size, name, "device_us") in alone for name in names):
                continue
            cells = [size_name(size)] + [cell(alone.spread((size, name, what))) for what, _ in whats for name in names]
            if OURS in names and peers:
                ours, best = alone.median((size, OURS, "device_us")), [
                    alone.median((size, name, "device_us")) for name in peers
                ]
                best = [value for value in best if value]
                cells.append(ratio(min(best) / ours if best and ours else None))
            lines.append(line(cells))
        return "\n".join(lines)

    def notes(self):
        results, lines = self.results, []
        elements = sum(results.checked.values())
        if results.checked:
            wrong = "; ".join(
                f"{side} {form} ({name_of(row)}): {count} wrong" for (row, form, side), count in results.wrong.items()
            )
            lines.append(
                f"- results: {wrong or 'all exact'}, {len(results.checked)} cells, {elements} elements compared"
            )
        for name, why in results.alone_wrong.items():
            lines.append(f"- gathers alone: WRONG: {name}: {why}")
        if results.alone_checked:
            lines.append(f"- gathers alone: exact, {sum(results.alone_checked.values())} bytes compared on rank 0")
        lines += [f"- left out: {name}: {why}" for name, why in results.left_out.items()]
        lines += [f"- {results.stopped}: the table has what was measured until then"] if results.stopped else []
        return "\n".join(lines)

    # JSON.

    def json(self):
        results = self.results
        value = {
            "program": "peers",
            "facts": dict(self.facts),
            "ranks_ms": "slowest rank, median over rounds",
            "sides": self.sides,
            "rows": [self.row_json(row) for row in self.rows],
            "gathers": [
                {"bytes": size, "side": name, what: spread}
                for size, name, what in results.alone
                for spread in [results.alone.spread((size, name, what))]
            ],
            "in_place": self.options.in_place,
            "blocks": results.blocks,
            "left_out": results.left_out,
            "stopped": results.stopped,
            "checked": sum(results.checked.values()),
            "wrong": sum(results.wrong.values()),
            "gathers_wrong": results.alone_wrong,
        }
        return json.dumps(value, indent=1) + "\n"

    def row_json(self, row):
        m, k, n = row.row
        return {
            "m": m,
            "k": k,
            "n": n,
            "form": row.form,
            "gemm_ms": row.gemm,
            "gemm_warm_ms": row.gemm_warm,
            "gather_ms": row.gathers,
            "ms": row.times,
            "ratio": {side: row.against(side) for side in self.peers},
            "bound_ms": row.bound(),
            "above_bound": row.above_bound(),
            "warm_bound_ms": row.warm_bound(),
            "above_warm_bound": row.above_warm_bound(),
            "wrong": row.wrong,
        }
