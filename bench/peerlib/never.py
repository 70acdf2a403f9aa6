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
from turns import NCCL, OURS, Turns

SITES = 60  # rows of one group of processes: slipring tries the ways of 64 call sites
SETTLE_ITERATIONS = 30  # without a synchronisation
FIRST_ITERATIONS = 12  # slipring maps buffers in its first calls
SETTLE_MS = 150  # and clocks need their time
SHARES = (0, 5, 10, 25, 50, 75, 90, 100)


class AgGemmRows(sides.AgGemmSide):
    """bench/ag_gemm, started for every job."""

    DTYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}

    def ask(self, job, seconds):
        if job["do"] == "make":
            self.row = job["row"]
        if job["do"] in ("make", "drop"):
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

    def __init__(self, row):
        self.row, self.groups = row, []
        self.wrong, self.checked, self.did, self.counters = {}, 0, "", {}

    def samples(self, side):
        return [value for group in self.groups for value in group[side]]

    def spread(self, side):
        values = self.samples(side)
        return {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": values}

    def ratio(self):
        return self.spread(NCCL)["median"] / self.spread(OURS)["median"]

    def of_groups(self):
        """The ratio in each group of processes."""
        return [statistics.median(group[NCCL]) / statistics.median(group[OURS]) for group in self.groups]

    def rounds(self):
        """The ratio of each round."""
        return [a / b for a, b in zip(self.samples(NCCL), self.samples(OURS))]

    def json(self):
        return {
            **self.row._asdict(),
            "title": self.row.title(),
            "shard_bytes": self.row.shard_bytes(),
            "ms": {side: self.spread(side) for side in (NCCL, OURS)},
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
        self.rows = []

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
        iters, group = self.iterations(max(settled), self.options.ms, 5), {NCCL: [], OURS: []}
        job = {"do": "time", "warmup": min(iters, max(3, iters // 10)), "iters": iters}
        for turn in range(self.options.rounds):
            for side in self.sides[:: -1 if turn % 2 else 1]:
                time.sleep(self.options.pause)
                answer = self.ask(side, job)
                group[side.name].append(answer["ms"])
                measured.counters = answer.get("counters") or measured.counters
        return group

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
        times = " ".join(f"{side} {number(measured.spread(side)['median'])}" for side in (NCCL, OURS))
        wrong = f" WRONG {measured.wrong}" if measured.wrong else ""
        self.say(f"{measured.row.title()}: {times} ratio {measured.ratio():.3f}{wrong} [{measured.did}]")

    def first(self, rows):
        for number_, row in enumerate(rows):
            if number_ % SITES == 0:
                self.stop()
                self.start()
            measured = Measured(row)
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
    ("all", lambda row: True),
    ("with a GEMM", lambda row: row.form != "none"),
    ("activations gathered", lambda row: row.form == "activations"),
    ("weight gathered", lambda row: row.form == "weight"),
    ("gradient of a weight", lambda row: row.form == "gradient"),
    ("gathers alone", lambda row: row.form == "none"),
    ("barrier in each iteration", lambda row: row.barrier),
    ("no barrier", lambda row: not row.barrier),
    ("fresh buffers", lambda row: row.fresh),
    ("the same buffers", lambda row: not row.fresh),
    ("on the GEMM's stream", lambda row: not row.event),
    ("by event", lambda row: row.event),
    ("bf16", lambda row: row.dtype == "bf16"),
    ("fp16", lambda row: row.dtype == "fp16"),
    ("fp32", lambda row: row.dtype == "fp32"),
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
        titles = ["NCCL / slipring", "rows", "least"] + [f"{share}%" for share in SHARES[1:-1]]
        lines = [head(titles + ["most", "below 0.98", "below 1"])]
        for name, belongs in GROUPS:
            rows = [measured for measured in self.rows if belongs(measured.row)]
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
            "slipring ms",
            "ratio",
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
            cell(one.spread(OURS)),
            ratio(one.ratio()),
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
            "ratio": "nccl / slipring, medians over rounds of the slowest rank",
            "rows": [one.json() for one in self.rows],
            "distribution": {
                name: distribution(rows)
                for name, belongs in GROUPS
                for rows in [[one for one in self.rows if belongs(one.row)]]
                if rows
            },
            "left_out": self.run.left_out,
            "stopped": self.run.stopped,
            "wrong": sum(sum(one.wrong.values()) for one in self.rows),
        }
        return json.dumps(value, indent=1) + "\n"
