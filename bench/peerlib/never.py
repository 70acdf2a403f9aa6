# SPDX-License-Identifier: Apache-2.0
"""What bench/never_slower measures of each row, and what it makes of it."""

import json
import statistics
import time

import decisions
import sides
from measure import FIRST_JOB_SECONDS
from sides import Refused
from table import cell, head, line, number, ratio
from turns import CONTROL, NCCL, OURS, Turns

SITES = 60  # rows of one group of processes: slipring tries the ways of 64 call sites
SETTLE_ITERATIONS = 30  # without a synchronisation
FIRST_ITERATIONS = 12  # slipring maps buffers in its first calls
SETTLE_MS = 150  # and clocks need their time
PARTS_MS, PARTS_TIMES = 20, 3  # of iterations that are issued ahead, each time
BUSY = 0.9  # of an iteration: the device bounds it
SHARES = (0, 5, 10, 25, 50, 75, 90, 100)


class AgGemmRows(sides.AgGemmSide):
    """bench/ag_gemm, started for every job."""

    DTYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}

    def ask(self, job, seconds):
        if job["do"] == "make":
            self.row = job["row"]
        if job["do"] in ("make", "drop", "parts"):
            return {}
        checked = job["do"] == "check"
        words = ["--ranks", self.setup.ranks, "--warmup", job.get("warmup", 1), "--iters", job.get("iters", 1)]
        words += ["--check", "full" if checked else "off"] + self.shape()
        result = sides.run_json(self, self.setup, self.setup.ag_gemm, list(map(str, words)), seconds, wrong_status=1)
        if checked:
            return {"wrong": result["check"]["wrong"], "of": result["check"]["checked"]}
        return {"ms": result["worst"]["gather" if self.row["form"] == "none" else "whole"]["gpu_ms"]}

    def shape(self):
        row = self.row
        m, k, n = row["m"], row["k"], row["n"]
        words = ["--dtype", row["dtype"]] + ["--side-stream"] * row["event"]
        if row["form"] == "none":
            return words + ["--form", "bn", "--m", 1, "--n", m, "--k", k]
        words += ["--interpose-op", "alloc"] * row["fresh"]
        if row["form"] == "gradient":
            return words + ["--form", "an", "--m", k, "--n", n, "--k", m, "--beta", 1]
        return words + ["--form", "at" if row["form"] == "weight" else "bn", "--m", n, "--n", m, "--k", k]


class Measured:
    """Of one row: the samples of each side, one list for each group of processes that has measured it, and
    what slipring did."""

    def __init__(self, row, ours):
        self.row, self.ours, self.groups = row, ours, []
        self.parts = {NCCL: [], ours: []}  # {"host_ms": ..., "device_ms": ...} of each group
        self.wrong, self.checked, self.did, self.counters = {}, 0, "", {}

    def samples(self, side):
        return [value for group in self.groups for value in group[side]]

    def spread(self, side):
        values = self.samples(side)
        return {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": values}

    def ratio(self):
        return self.spread(NCCL)["median"] / self.spread(self.ours)["median"]

    def part(self, side, name):
        """host_ms or device_ms; None when it is not known."""
        values = [parts[name] for parts in self.parts[side]]
        return statistics.median(values) if values else None

    def bound(self):
        """By the device, when it is busy all the time, nearly, and longer than the host; None when that is not known."""
        if not all(self.parts.values()):
            return None
        return "device" if all(self.fills(side) for side in self.parts) else "host"

    def fills(self, side):
        device = self.part(side, "device_ms")
        return device > self.part(side, "host_ms") and device >= BUSY * self.spread(side)["median"]

    def of_groups(self):
        """The ratio in each group of processes."""
        return [statistics.median(group[NCCL]) / statistics.median(group[self.ours]) for group in self.groups]

    def rounds(self):
        """The ratio of each round."""
        return [a / b for a, b in zip(self.samples(NCCL), self.samples(self.ours))]

    def json(self):
        return {
            **self.row._asdict(),
            "title": self.row.title(),
            "shard_bytes": self.row.shard_bytes(),
            "ms": {side: self.spread(side) for side in (NCCL, self.ours)},
            "bound": self.bound(),
            "parts": {side: {name: self.part(side, name) for name in ("host_ms", "device_ms")} for side in self.parts},
            "ratio": self.ratio(),
            "groups": self.of_groups(),
            "rounds": self.rounds(),
            "slipring": self.did,
            "counters": self.counters,
            "wrong": self.wrong,
            "checked": self.checked,
        }


class Run(Turns):
    def __init__(self, options, make):
        super().__init__(options, make)
        self.rows, self.ours = [], CONTROL if options.control else OURS

    def iterations(self, ms, budget, least):
        return self.options.iters or int(min(2000, max(least, budget / max(ms, 1e-3))))

    def settle(self, side):
        """Until the ways of a call site have been tried (SLIPRING_TRIALS) and a program is steady; few iterations
        at a time, as slipring only knows what the device has done. Returns milliseconds of one."""
        first = {"do": "time", "warmup": 0, "iters": self.options.iters or FIRST_ITERATIONS}
        ms = self.ask(side, first, FIRST_JOB_SECONDS)["ms"]
        if self.options.iters:
            return ms
        more = min(2000, max(self.options.settle, int(SETTLE_MS / max(ms, 1e-3))))
        at_once = max(SETTLE_ITERATIONS, more // 16)
        for _ in range(0, more, at_once):
            ms = self.ask(side, {"do": "time", "warmup": 0, "iters": at_once})["ms"]
        return ms

    def rounds(self, measured):
        """Of both sides, when they have settled, in turn: {side: samples}."""
        settled = [self.settle(side) for side in self.sides]
        iters, group = self.iterations(max(settled), self.options.ms, 5), {NCCL: [], self.ours: []}
        job = {"do": "time", "warmup": min(iters, max(3, iters // 10)), "iters": iters}
        for turn in range(self.options.rounds):
            for side in self.sides[:: -1 if turn % 2 else 1]:
                time.sleep(self.options.pause)
                answer = self.ask(side, job)
                group[side.name].append(answer["ms"])
                measured.counters = answer.get("counters") or measured.counters
        self.take_parts(measured, max(settled))
        return group

    def take_parts(self, measured, ms):
        iters = self.options.iters or int(min(16, max(2, PARTS_MS / max(ms, 1e-3))))
        for side in self.sides:
            parts = self.ask(side, {"do": "parts", "iters": iters, "times": PARTS_TIMES})
            measured.parts[side.name] += [parts] if parts else []

    def check(self, measured):
        for side in self.sides:
            answer = self.ask(side, {"do": "check"}, FIRST_JOB_SECONDS)
            measured.checked += answer["of"]
            if answer["wrong"]:
                measured.wrong[side.name] = measured.wrong.get(side.name, 0) + answer["wrong"]

    def measure(self, measured):
        """Adds what this group of processes finds."""
        try:
            for side in self.sides:
                self.ask(side, {"do": "make", "row": measured.row._asdict()}, FIRST_JOB_SECONDS)
            group = self.rounds(measured)
            self.check(measured)
            measured.groups.append(group)
            measured.did = decisions.describe(self.log.new())
            self.tell(measured)
        except Refused as why:
            self.leave_out(measured.row.title(), why)
        for side in self.sides:
            self.ask(side, {"do": "drop"})

    def tell(self, measured):
        times = " ".join(f"{side} {number(measured.spread(side)['median'])}" for side in measured.parts)
        wrong = f" WRONG {measured.wrong}" if measured.wrong else ""
        self.say(f"{measured.row.title()}: {times} ratio {measured.ratio():.3f}{wrong} [{measured.did}]")

    def first(self, rows):
        for number_, row in enumerate(rows):
            if number_ % SITES == 0:
                self.stop()
                self.start()
            measured = Measured(row, self.ours)
            self.measure(measured)
            self.rows += [measured] * bool(measured.groups)

    def again(self):
        """Rows in which slipring seems slower, in new processes: some are slow for all of their lives."""
        slower = [measured for measured in self.rows if measured.ratio() < self.options.below]
        if not slower:
            return
        self.say(f"{len(slower)} rows again, in new processes")
        self.stop()
        self.start()
        for measured in slower:
            self.measure(measured)

    def all(self, rows):
        self.until_stopped(lambda: self.first(rows))
        if not self.stopped and self.options.below:
            self.until_stopped(self.again)


# The table.

GROUPS = (
    ("all", lambda one: True),
    ("with a GEMM", lambda one: one.row.form != "none"),
    ("activations gathered", lambda one: one.row.form == "activations"),
    ("weight gathered", lambda one: one.row.form == "weight"),
    ("gradient of a weight", lambda one: one.row.form == "gradient"),
    ("gathers alone", lambda one: one.row.form == "none"),
    ("barrier in each iteration", lambda one: one.row.barrier),
    ("no barrier", lambda one: not one.row.barrier),
    ("fresh buffers", lambda one: one.row.fresh),
    ("the same buffers", lambda one: not one.row.fresh),
    ("on the GEMM's stream", lambda one: not one.row.event),
    ("by event", lambda one: one.row.event),
    ("bf16", lambda one: one.row.dtype == "bf16"),
    ("fp16", lambda one: one.row.dtype == "fp16"),
    ("fp32", lambda one: one.row.dtype == "fp32"),
    ("bound by the host", lambda one: one.bound() == "host"),
    ("bound by the device", lambda one: one.bound() == "device"),
)


def percentile(ordered, share):
    """Between the two nearest values, in proportion."""
    place = share / 100 * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def distribution(rows):
    ordered = sorted(measured.ratio() for measured in rows)
    return {share: percentile(ordered, share) for share in SHARES}


def in_the_end(counters):
    """What slipring did in the last samples."""
    if not counters:
        return "-"
    words = f"{counters['substituted']} of {counters['calls']} moved, {counters['staged']} staged"
    fused = counters["fused"]
    return words + (f", {fused} fused in {counters['gemm_chunks'] / fused:.3g} parts" if fused else "")


def parts_cell(one, side):
    host, device = one.part(side, "host_ms"), one.part(side, "device_ms")
    return "-" if host is None else f"{number(host)} + {number(device)}"


class Report:
    def __init__(self, facts, run, options):
        self.facts, self.run, self.options = facts, run, options
        self.rows = sorted(run.rows, key=Measured.ratio)

    def markdown(self):
        parts = [self.about(), self.groups(), self.worst(), self.notes()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def about(self):
        return "\n".join(f"- {name}: {value}" for name, value in self.facts)

    def groups(self):
        if not self.rows:
            return ""
        titles = [f"NCCL / {self.run.ours}", "rows", "least"] + [f"{share}%" for share in SHARES[1:-1]]
        lines = [head(titles + ["most", "below 0.98", "below 1"])]
        for name, belongs in GROUPS:
            rows = [measured for measured in self.rows if belongs(measured)]
            if not rows:
                continue
            below = [str(sum(measured.ratio() < bound for measured in rows)) for bound in (0.98, 1)]
            lines.append(line([name, str(len(rows))] + [ratio(v) for v in distribution(rows).values()] + below))
        return "\n".join(lines)

    def worst(self):
        if not self.rows:
            return ""
        titles = [
            "worst rows",
            "NCCL ms",
            f"{self.run.ours} ms",
            "ratio",
            "bound by",
            "host + device ms: NCCL",
            self.run.ours,
            "of each round",
            "of each group",
            "what slipring did",
            "in the end",
        ]
        return "\n".join([head(titles)] + [line(self.cells(one)) for one in self.rows[: self.options.worst]])

    def cells(self, one):
        did = one.did + "".join(f"; WRONG: {side}, {count} elements" for side, count in one.wrong.items())
        rounds = f"{min(one.rounds()):.3f}-{max(one.rounds()):.3f}"
        return [
            one.row.title(),
            cell(one.spread(NCCL)),
            cell(one.spread(one.ours)),
            ratio(one.ratio()),
            one.bound() or "-",
            *(parts_cell(one, side) for side in one.parts),
            rounds,
            ", ".join(f"{value:.3f}" for value in one.of_groups()),
            did,
            in_the_end(one.counters),
        ]

    def notes(self):
        wrong = "; ".join(f"{one.row.title()}: {one.wrong}" for one in self.rows if one.wrong)
        checked = sum(one.checked for one in self.rows)
        lines = [f"- results: {wrong or 'all exact'}, {len(self.rows)} rows, {checked} elements compared"]
        if self.rows:
            least, middle = self.rows[0], statistics.median(one.ratio() for one in self.rows)
            lines.append(f"- worst ratio {least.ratio():.3f} (row {least.row.title()}), median {middle:.3f}")
        lines += [f"- left out: {name}: {why}" for name, why in self.run.left_out.items()]
        return "\n".join(lines + ([f"- {self.run.stopped}"] if self.run.stopped else []))

    def json(self):
        value = {
            "program": "never_slower",
            "facts": dict(self.facts),
            "seed": self.options.seed,
            "ratio": f"nccl / {self.run.ours}, medians over rounds of the slowest rank",
            "rows": [one.json() for one in self.rows],
            "distribution": {
                name: distribution(rows)
                for name, belongs in GROUPS
                for rows in [[one for one in self.rows if belongs(one)]]
                if rows
            },
            "left_out": self.run.left_out,
            "stopped": self.run.stopped,
            "wrong": sum(sum(one.wrong.values()) for one in self.rows),
        }
        return json.dumps(value, indent=1) + "\n"
