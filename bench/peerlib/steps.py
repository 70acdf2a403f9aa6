# SPDX-License-Identifier: Apache-2.0
"""What bench/models measures of each model, and what it makes of it."""

import collections
import contextlib
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
LEAST_LOSS_STEPS, USUAL_LOSS_STEPS = 12, 20
SETTLE_STEPS = 4  # without a synchronisation
SETTLE_CALLS = 320  # of each size of a gather, in which slipring has tried its ways
QUIET_STEPS = 8  # in which it has tried nothing more
LEAST_ROUNDS = 2
WARMUP, FIRST_ITERATIONS = 2, 3  # of a measurement, and in the first one
ESTIMATED_SHARE = 0.8  # that steps take of what those with losses take, at least
OTHER_SECONDS = 6  # for the gathers alone, and for the processes to end


class NoTime(Exception):
    """A model can not be measured in the time that is left."""


class Measured:
    """Of one model."""

    def __init__(self, name, sizes):
        self.name, self.sizes = name, sizes
        self.samples, self.gathers = {NCCL: [], OURS: []}, {NCCL: [], OURS: []}
        self.losses, self.steps, self.bytes, self.parameters = {}, [], [], 0
        self.events, self.done = [], False  # of slipring's log
        self.seconds = collections.Counter()  # of each phase
        self.step_seconds, self.needed = 0.0, 0.0  # of a step at first, on the slower side; of what is to come

    def did(self):
        return decisions.describe(self.events)

    def tell_seconds(self):
        words = ", ".join(f"{name} {seconds:.0f}" for name, seconds in self.seconds.items())
        return f"{sum(self.seconds.values()):.0f} s ({words})"

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
            "slipring": self.did(),
            "seconds": dict(self.seconds),
        }


class Run(Turns):
    """Each model has an equal share of the time that is left when it begins; numbers of steps and rounds
    that were not asked for become smaller for a model that is slow."""

    def __init__(self, options, make):
        super().__init__(options, make)
        self.models, self.deadline = [], 0.0

    @contextlib.contextmanager
    def phase(self, measured, name_):
        begin = time.monotonic()
        try:
            yield
        finally:
            measured.seconds[name_] += time.monotonic() - begin

    def new_events(self, measured):
        """What slipring has logged since the last call."""
        events = self.log.new()
        measured.events += events
        return events

    # The beginning of the model.

    def prepare(self, measured):
        job = {"do": "make", "model": measured.name, "sizes": measured.sizes}
        with self.phase(measured, "making"):
            for side in self.sides:
                measured.parameters = self.ask(side, job, FIRST_JOB_SECONDS)["parameters"]
        with self.phase(measured, "losses"):
            self.losses(measured)
        self.new_events(measured)
        self.say(f"{measured.name}: {len(measured.steps)} losses {words_of(measured.apart())}")

    def losses(self, measured):
        """Both sides learn from their beginning: the losses are comparable."""
        most = self.options.loss_steps or USUAL_LOSS_STEPS
        least = self.options.loss_steps or LEAST_LOSS_STEPS
        done = 0
        while done < most:
            steps = min(SETTLE_STEPS, most - done)
            job = {"do": "losses", "steps": steps, "sizes": not done and not self.options.losses_only}
            measured.step_seconds = max(self.some_losses(measured, side, job) for side in self.sides)
            done += steps
            if done >= least and self.cost(measured, self.rounds_wanted()) > self.time_left():
                break

    def some_losses(self, measured, side, job):
        """Seconds of a step."""
        begin = time.monotonic()
        answer = self.ask(side, job, FIRST_JOB_SECONDS)
        measured.bytes = answer.get("bytes", measured.bytes)
        measured.losses.setdefault(side.name, []).extend(answer["losses"])
        if side.name == OURS:
            measured.steps += answer["steps"]
        return (time.monotonic() - begin) / job["steps"]

    # What the time allows.

    def time_left(self):
        """For this model."""
        return self.deadline - time.monotonic()

    def rounds_wanted(self):
        return self.options.rounds or self.options.usual_rounds

    def iterations(self, ms):
        return self.options.iters or int(min(100, max(3, self.options.ms / max(ms, 1e-3))))

    def cost(self, measured, rounds):
        """Seconds that settling and measuring may take, with steps as long as those with losses."""
        seconds = measured.step_seconds
        of_side = WARMUP + FIRST_ITERATIONS + rounds * (WARMUP + self.iterations(seconds * 1e3))
        pauses = 2 * rounds * self.options.pause
        measured.needed = seconds * (self.settle_steps(measured)[0] + 2 * of_side) + pauses + OTHER_SECONDS
        return measured.needed

    def affordable_rounds(self, measured):
        """All that were asked for, or as many of the usual ones as the time allows."""
        least = self.options.rounds or LEAST_ROUNDS
        for rounds in range(self.rounds_wanted(), least - 1, -1):
            if self.cost(measured, rounds) <= self.time_left():
                return rounds
        if measured.needed * ESTIMATED_SHARE > self.left():
            raise NoTime(
                f"needs about {measured.needed:.0f} s more with steps of {measured.step_seconds * 1e3:.0f} ms, "
                f"and {self.left():.0f} s were left; until then {measured.tell_seconds()}"
            )
        return least

    # Times.

    def settle_steps(self, measured):
        """The least and the most steps in which slipring tries the ways of each call site (SLIPRING_TRIALS)."""
        most = self.options.settle
        rarest = min(collections.Counter(measured.bytes).values(), default=1)
        return min(most, math.ceil(SETTLE_CALLS / rarest)), most

    def settle(self, measured, side):
        """Few steps at a time, as slipring only knows what the device has done."""
        least, most = self.settle_steps(measured)
        done = tried = 0
        duels = set()  # that are under way
        while done < least or (
            done < most and (duels or done - tried < QUIET_STEPS) and self.time_left() > measured.needed
        ):
            self.ask(side, {"do": "time", "warmup": 0, "iters": SETTLE_STEPS})
            done += SETTLE_STEPS
            for event in self.new_events(measured):
                if event["event"] == "tried":
                    tried = done
                    (duels.add if event["by"] == "duel" else duels.discard)((event["comm"], event["shard"]))

    def rounds(self, to, job, count):
        """Samples of each side, in turn, into `to`."""
        iters = self.options.iters or FIRST_ITERATIONS
        first = [self.ask(side, job | {"warmup": WARMUP, "iters": iters})["ms"] for side in self.sides]
        job = job | {"warmup": WARMUP, "iters": self.iterations(max(first))}
        for turn in range(count):
            for side in self.sides[:: -1 if turn % 2 else 1]:
                time.sleep(self.options.pause)
                to[side.name].append(self.ask(side, job)["ms"])

    def time(self, measured):
        with self.phase(measured, "settling"):
            rounds = self.affordable_rounds(measured)
            for side in [side for side in self.sides if side.name == OURS]:
                self.settle(measured, side)
        with self.phase(measured, "rounds"):
            self.rounds(measured.samples, {"do": "time"}, rounds)
        times = " ".join(f"{side} {number(measured.median(side))}" for side in measured.samples)
        self.say(f"{measured.name}: {times}")
        if measured.bytes:
            with self.phase(measured, "gathers alone"):
                self.rounds(measured.gathers, {"do": "gathers", "bytes": measured.bytes}, rounds)

    # One model, and all.

    def measure(self, measured):
        self.models.append(measured)
        with self.phase(measured, "starting"):
            self.start()
        self.prepare(measured)
        if not self.options.losses_only:
            self.time(measured)
        self.new_events(measured)
        measured.done = True

    def one(self, name, sizes_):
        measured = Measured(name, sizes_)
        try:
            self.measure(measured)
        except (Refused, NoTime) as why:
            self.leave_out(name, why)
        self.stop()

    def all(self, wanted):
        """`wanted`: (name, sizes)."""

        def work():
            for place, (name, sizes_) in enumerate(wanted):
                self.deadline = time.monotonic() + self.left() / (len(wanted) - place)
                self.one(name, sizes_)

        self.until_stopped(work)
        begun = {one.name: one for one in self.models}
        for name, _ in wanted:
            if name not in begun:
                self.leave_out(name, "not begun")
            elif not begun[name].done and name not in self.left_out:
                self.leave_out(name, unfinished(begun[name]))


def unfinished(measured):
    words = f"did not come to its end: {measured.tell_seconds()}"
    if measured.needed:
        words += f"; settling and measuring take about {measured.needed:.0f} s"
    return words


def words_of(apart):
    if apart is None:
        return "-"
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
        self.models = [one for one in run.models if one.done or one.whole()]

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
        lines = ["- counted in the steps with losses, on the rank with most"] if self.models else []
        lines += [
            f"- {one.name}: {one.parameters / 1e6:.0f} million parameters a rank, {sizes(one)}" for one in self.models
        ]
        lines += [f"- {one.name}: {one.tell_seconds()}, {rounds_of(one)}" for one in self.models]
        lines += [f"- {one.name}: {one.did()}" for one in self.models]
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


def rounds_of(measured):
    rounds = len(measured.samples[NCCL])
    return f"{len(measured.steps)} steps with losses" + (f", {rounds} rounds" if rounds else "")


def sizes(measured):
    return ", ".join(f"{name} {value}" for name, value in measured.sizes.items())
