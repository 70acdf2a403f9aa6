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
        self.gemm = results.cool.spread(row)
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
        parts = [self.gemm and self.gemm["median"], self.best_gather()]
        return max(parts) if all(parts) else None

    def above_bound(self):
        return self.ours / self.bound() if self.ours and self.bound() else None

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
        titles = ["M, K, N", "form", "GEMM alone"] + [f"gather, {side}" for side in with_gather] + self.sides
        titles += [f"{side} / {OURS}" for side in self.peers] + [f"{OURS} / bound"] * (OURS in self.sides)
        lines = [
            f"Milliseconds of one iteration, median (least-most) of {self.options.rounds} rounds:",
            "",
            head(titles),
        ]
        for row in self.rows:
            cells = [name_of(row.row).replace(",", ", "), row.form, cell(row.gemm)]
            cells += [cell(row.gathers.get(side)) for side in with_gather]
            cells += [cell(row.times.get(side)) + (" WRONG" if side in row.wrong else "") for side in self.sides]
            cells += [ratio(row.against(side)) for side in self.peers] + [ratio(row.above_bound())] * (
                OURS in self.sides
            )
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
        far = [
            f"{row.title()}: {row.above_bound():.3f}"
            for row in self.rows
            if row.above_bound() and row.best_gather() >= row.gemm["median"] / 4 and row.above_bound() > 1.08
        ]
        if self.peers:
            lines.append(f"- rows in which a peer is faster: {'; '.join(slower) or 'none'}")
            lines += [f"- rows in which slipring is less than 1.05 times as fast as fused: {'; '.join(near)}"] * bool(
                near
            )
            lines.append(
                "- rows more than 1.08 above the bound, of those whose gather takes a quarter of the GEMM or more: "
                + ("; ".join(far) or "none")
            )
        return "\n".join(lines)

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
            "gather_ms": row.gathers,
            "ms": row.times,
            "ratio": {side: row.against(side) for side in self.peers},
            "bound_ms": row.bound(),
            "above_bound": row.above_bound(),
            "wrong": row.wrong,
        }
