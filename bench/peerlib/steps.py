# SPDX-License-Identifier: Apache-2.0
"""What bench/models measures of each model, and what it makes of it."""

import json
import math
import statistics
import time

import decisions
from measure import FIRST_JOB_SECONDS
from sides import Refused
from table import cell, head, line, number, ratio
from turns import NCCL, OURS, Turns

FIRST_STEPS = 10  # in which slipring may stage shards
SETTLE_STEPS = 4  # without a synchronisation


class Measured:
    """Of one model."""

    def __init__(self, name, sizes):
        self.name, self.sizes = name, sizes
        self.samples, self.gathers = {NCCL: [], OURS: []}, {NCCL: [], OURS: []}
        self.losses, self.steps, self.bytes, self.parameters = {}, [], [], 0
        self.did, self.done = "", False

    def spread(self, values):
        return values and {
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "samples": values,
        }

    def median(self, side):
        return statistics.median(self.samples[side])

    def whole(self):
        return all(self.samples.values())

    def ratio(self):
        return self.median(NCCL) / self.median(OURS) if self.whole() else None

    def gone(self):
        """What is saved of the time that NCCL's gathers of a step take alone."""
        alone = self.gathers[NCCL]
        return (self.median(NCCL) - self.median(OURS)) / statistics.median(alone) if alone and self.whole() else None

    def apart(self):
        """The largest relative difference of the losses at any step; None when there are none."""
        pairs = [
            [float.fromhex(value) for value in pair]
            for pair in zip(*(self.losses.get(side, []) for side in (NCCL, OURS)))
        ]
        each = [abs(a - b) / max(abs(a), 1e-300) for a, b in pairs]
        return (max(each) if all(map(math.isfinite, each)) else math.inf) if each else None

    def counted(self, name, first=0, last=None):
        return sum(step.get(name, 0) for step in self.steps[first:last])

    def json(self):
        return {
            "model": self.name,
            "sizes": self.sizes,
            "parameters": self.parameters,
            "ms": {side: self.spread(values) for side, values in self.samples.items()},
            "ratio": self.ratio(),
            "gathers_ms": {side: self.spread(values) for side, values in self.gathers.items()},
            "gathers_bytes": self.bytes,
            "gone": self.gone(),
            "losses": self.losses,
            "losses_apart": self.apart(),
            "steps": self.steps,
            "staged_first": self.counted("staged", 0, FIRST_STEPS),
            "staged_later": self.counted("staged", FIRST_STEPS),
            "slipring": self.did,
        }


class Run(Turns):
    def __init__(self, options, make):
        super().__init__(options, make)
        self.models = []

    def prepare(self, measured):
        """Makes the model on each side and has it learn from its beginning: the losses are comparable."""
        job = {"do": "make", "model": measured.name, "sizes": measured.sizes}
        for side in self.sides:
            measured.parameters = self.ask(side, job, FIRST_JOB_SECONDS)["parameters"]
        for side in self.sides:
            answer = self.ask(side, {"do": "losses", "steps": self.options.loss_steps}, FIRST_JOB_SECONDS)
            measured.losses[side.name] = answer["losses"]
            if side.name == OURS:
                measured.steps = answer["steps"]
        apart = measured.apart()
        self.say(f"{measured.name}: losses {words_of(apart)}")

    def iterations(self, ms):
        return self.options.iters or int(min(100, max(3, self.options.ms / max(ms, 1e-3))))

    def settle(self, side):
        """Steps in which slipring tries the ways of each call site (SLIPRING_TRIALS); few at a time, as it only
        knows what the device has done."""
        for _ in range(0, self.options.settle, SETTLE_STEPS):
            self.ask(side, {"do": "time", "warmup": 0, "iters": SETTLE_STEPS})

    def rounds(self, to, job):
        """Samples of each side, in turn, into `to`."""
        first = [self.ask(side, job | {"warmup": 2, "iters": self.options.iters or 3})["ms"] for side in self.sides]
        job = job | {"warmup": 2, "iters": self.iterations(max(first))}
        for turn in range(self.options.rounds):
            for side in self.sides[:: -1 if turn % 2 else 1]:
                time.sleep(self.options.pause)
                to[side.name].append(self.ask(side, job)["ms"])

    def measure(self, measured):
        self.models.append(measured)
        self.prepare(measured)
        if not self.options.losses_only:
            self.time(measured)
        measured.did, measured.done = decisions.describe(self.log.new()), True

    def time(self, measured):
        for side in self.sides:  # both, as each is a step
            measured.bytes = self.ask(side, {"do": "sizes"})["bytes"]
        for side in [side for side in self.sides if side.name == OURS]:
            self.settle(side)
        self.rounds(measured.samples, {"do": "time"})
        times = " ".join(f"{side} {number(measured.median(side))}" for side in measured.samples)
        self.say(f"{measured.name}: {times}")
        if measured.bytes:
            self.rounds(measured.gathers, {"do": "gathers", "bytes": measured.bytes})

    def one(self, name, sizes):
        try:
            self.measure(Measured(name, sizes))
        except Refused as why:
            self.leave_out(name, why)

    def all(self, wanted):
        """`wanted`: (name, sizes)."""

        def work():
            for name, sizes in wanted:
                self.start()
                self.one(name, sizes)
                self.stop()

        self.until_stopped(work)


def words_of(apart):
    return "equal" if apart == 0 else f"within {apart:.1e}"


TITLES = (
    "model",
    "NCCL ms",
    "slipring ms",
    "NCCL / slipring",
    "gathers a step",
    "MiB a rank",
    "gathers alone: NCCL ms",
    "slipring ms",
    "of NCCL's gathers gone",
    "losses",
    "gathers moved",
    "fused",
    "joined",
    f"staged, steps 1-{FIRST_STEPS}",
    "staged, later",
)


class Report:
    def __init__(self, facts, run, options):
        self.facts, self.run, self.options = facts, run, options
        self.models = [one for one in run.models if one.done]

    def markdown(self):
        parts = [self.about(), self.table(), self.notes()]
        return "\n\n".join(part for part in parts if part) + "\n"

    def about(self):
        return "\n".join(f"- {name}: {value}" for name, value in self.facts)

    def table(self):
        if not self.models:
            return ""
        return "\n".join([head(TITLES)] + [line(self.cells(one)) for one in self.models])

    def cells(self, one):
        apart, gone = one.apart(), one.gone()
        cells = [one.name] + [cell(one.spread(values)) for values in one.samples.values()] + [ratio(one.ratio())]
        cells += [str(len(one.bytes)), number(sum(one.bytes) / 2**20)] if one.bytes else ["-", "-"]
        cells += [cell(one.spread(values)) for values in one.gathers.values()]
        cells += ["-" if gone is None else f"{gone:.0%}", words_of(apart)]
        if not any(one.steps):
            return cells + ["-"] * 5
        cells += [f"{one.counted('substituted')} of {one.counted('calls')}"]
        cells += [str(one.counted(name)) for name in ("fused", "joined")]
        return cells + [str(one.counted("staged", 0, FIRST_STEPS)), str(one.counted("staged", FIRST_STEPS))]

    def notes(self):
        lines = (
            [f"- counted in the first {self.options.loss_steps} steps, on the rank with most"] if self.models else []
        )
        lines += [
            f"- {one.name}: {one.parameters / 1e6:.0f} million parameters a rank, {sizes(one)}" for one in self.models
        ]
        lines += [f"- {one.name}: {one.did}" for one in self.models]
        lines += [f"- left out: {name}: {why}" for name, why in self.run.left_out.items()]
        return "\n".join(lines + ([f"- {self.run.stopped}"] if self.run.stopped else []))

    def json(self):
        value = {
            "program": "models",
            "facts": dict(self.facts),
            "models": [one.json() for one in self.run.models],
            "left_out": self.run.left_out,
            "stopped": self.run.stopped,
        }
        return json.dumps(value, indent=1) + "\n"


def sizes(measured):
    return ", ".join(f"{name} {value}" for name, value in measured.sizes.items())
