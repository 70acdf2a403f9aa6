# SPDX-License-Identifier: Apache-2.0
"""What bench/peers measures, in which order, and what it keeps of it.

In each round all sides take their turn, and the turns rotate; one side works, the others wait. The
samples of a cell are those of the rounds. What a side can not do is noted once, and the run goes on
without it.
"""

import collections
import os
import statistics
import time

import cores
from sides import Failed, Refused, run_json

FORMS = ("stream", "event", "fresh")
SHAPES = (
    (8192, 8192, 8192),
    (8192, 8192, 7168),
    (8192, 8192, 1280),
    (16384, 8192, 1280),
    (32768, 8192, 1024),
    (16384, 4096, 4096),
    (4096, 4096, 4096),
    (2048, 8192, 1024),
    (16384, 16384, 8192),
    (32768, 16384, 8192),
    (32768, 32768, 8192),
)
QUICK_SHAPES = ((8192, 8192, 1280), (4096, 4096, 4096), (2048, 8192, 1024))
MODELLED_SHAPES = ((192, 64, 48), (64, 96, 128))  # the software GPU only has to do it
GATHER_BYTES = tuple(64 << 10 << step for step in range(0, 16, 2)) + (2 << 30,)
MODELLED_GATHER_BYTES = (65536, 262144)
TRY_ITERATIONS = 30  # without a synchronisation
START_SECONDS = 180  # PyTorch on a machine that has not read it yet
JOB_SECONDS, FIRST_JOB_SECONDS = 30, 90  # the first job of a row makes its buffers, and may compile


class OutOfTime(Exception):
    pass


class Samples(collections.defaultdict):
    """{key: [value, ...]}"""

    def __init__(self):
        super().__init__(list)

    def median(self, key):
        return statistics.median(self[key]) if self.get(key) else None

    def spread(self, key):
        values = self.get(key)
        return (
            {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": values}
            if values
            else None
        )


class Results:
    """Keys: (row, form, side) of whole, wrong and checked; (row, side) of gather; row of cool and warm;
    (bytes, side, what) of alone."""

    def __init__(self):
        self.whole, self.gather, self.alone = Samples(), Samples(), Samples()
        self.cool, self.warm = Samples(), Samples()  # the GEMM alone
        self.checked, self.wrong = {}, {}  # numbers of elements
        self.alone_checked, self.alone_wrong = {}, {}
        self.blocks = {}  # side: {"blocks": ..., "kernels": [...]}
        self.left_out = {}  # side, or a cell of it: why
        self.stopped = None  # why the run ended early


class Run:
    def __init__(self, options, setup, sides):
        self.options, self.setup, self.sides = options, setup, list(sides)
        self.results, self.begin = Results(), time.monotonic()
        self.seen = set()  # (side, row) that has its buffers, (side, row, form) that is settled

    def left(self):
        seconds = self.options.limit - (time.monotonic() - self.begin)
        if seconds <= 0:
            raise OutOfTime(f"stopped at the limit of {self.options.limit:.0f} s")
        return seconds

    def leave_out(self, name, why):
        """Once: what fails in one row of a side often fails in all of them."""
        told = self.results.left_out
        if name not in told and not any(name.split()[0] == other.split()[0] and why == told[other] for other in told):
            told[name] = why
            self.options.say(f"left out: {name}: {why}")

    def drop(self, side, why):
        self.leave_out(side.name, why)
        self.sides.remove(side)
        side.stop(time.monotonic())  # it may hang

    def start(self):
        """All at once, as starting takes long; then each has to say that it is ready."""
        for step in (lambda side: side.begin(), lambda side: side.ready(min(self.left(), START_SECONDS))):
            for side in list(self.sides):
                try:
                    step(side)
                except (Failed, OSError) as why:
                    self.drop(side, str(why))

    def ask(self, side, job):
        """The answer, or None when the side could not give one."""
        row, seconds = tuple(job["row"]), JOB_SECONDS
        if (side.name, row) not in self.seen:
            self.seen.add((side.name, row))
            seconds = FIRST_JOB_SECONDS
        limited = self.left() < seconds
        try:
            return side.ask(job, min(self.left(), seconds))
        except Refused as why:
            self.leave_out(f"{side.name} ({job.get('form', job['do'])}, {name_of(row)})", str(why))
        except Failed as why:
            if limited:
                self.left()  # it is the run that had no more time, if it has none
            self.drop(side, str(why))
        return None

    # The table of shapes.

    def iterations(self, row, ms):
        """About so many milliseconds of them, from what a machine of this kind may need for one."""
        if self.options.iters:
            return self.options.iters
        m, k, n = row
        expected = max(2 * m * n * k / 700e9, 2 * m * k / 350e6, 0.05)
        return int(min(400, max(8, ms / expected)))

    def job(self, do, row, side, form=None):
        iters = self.iterations(row, self.options.ms)
        settled = (side.name, row, form or do) in self.seen
        self.seen.add((side.name, row, form or do))
        settle = 3 if settled else min(self.options.settle, self.iterations(row, 4 * self.options.ms))
        job = {"do": do, "row": row, "iters": iters, "warmup": max(settle, iters // 10)}
        return job | ({"form": form} if form else {})

    def sample(self, to, key, side, job):
        time.sleep(self.options.pause)
        answer = self.ask(side, job)
        if answer:
            to[key].append(answer["ms"])
        return answer

    def with_gemm(self):
        """The first side that knows the GEMM alone, which is the same on all; none when there is none."""
        return [side for side in self.sides if side.gathers][:1]

    def cool(self, row):
        """The GEMM alone after a pause."""
        for side in self.with_gemm():
            time.sleep(self.options.cool)
            job = self.job("gemm", row, side)
            self.sample(self.results.cool, row, side, job | {"iters": self.iterations(row, 10), "warmup": 2})

    def let_try(self, job, side):
        """Iterations in which slipring tries the ways of a call site (SLIPRING_TRIALS); few at a time, as it only
        knows what the device has done."""
        for _ in range(0, self.options.tries if side.tries else 0, TRY_ITERATIONS):
            if side in self.sides:
                self.ask(side, job | {"warmup": 0, "iters": TRY_ITERATIONS})

    def first_sample(self, to, key, side, job):
        self.let_try(job, side)
        return self.sample(to, key, side, job) if side in self.sides else None

    def check(self, row, form, side):
        answer = self.ask(side, {"do": "check", "row": row, "form": form})
        if answer:
            self.results.checked[row, form, side.name] = answer["of"]
            if answer["wrong"]:
                self.results.wrong[row, form, side.name] = answer["wrong"]

    def warm(self, row):
        """The GEMM alone in a turn of its own, of as many iterations as the others': what a device that is
        limited by its power can sustain."""
        for side in self.with_gemm():
            self.sample(self.results.warm, row, side, self.job("gemm", row, side))

    def turn(self, row, form, number):
        """All sides, and with the first form the GEMM alone: None stands for it."""
        first = form == self.options.forms[0]
        takers = self.sides + [None] * first
        turn = number % len(takers) if takers else 0
        for side in takers[turn:] + takers[:turn]:
            if side is None:
                self.warm(row)
            elif side.forms != ("own",):
                self.side_turn(row, form, side, number)
            elif first:
                self.side_turn(row, "own", side, number)

    def side_turn(self, row, form, side, number):
        key, job = (row, form, side.name), self.job("form", row, side, form)
        if number:
            self.sample(self.results.whole, key, side, job)
        elif self.first_sample(self.results.whole, key, side, job):
            self.check(row, form, side)

    def shape(self, row):
        for number in range(self.options.rounds):
            self.cool(row)
            for form in self.options.forms:
                self.turn(row, form, number)
            for side in [side for side in self.sides if side.gathers]:
                take = self.sample if number else self.first_sample
                take(self.results.gather, (row, side.name), side, self.job("gather", row, side))
            self.options.say(f"{name_of(row)}: round {number + 1} of {self.options.rounds}, {self.left():.0f} s left")

    def shapes(self):
        for row in self.options.shapes:  # before anything else makes the device warm
            self.cool(row)
        for row in self.options.shapes:
            self.shape(row)
        for side in [side for side in self.sides if side.gathers and side.tells_blocks]:
            answer = self.ask(side, {"do": "blocks", "row": self.options.shapes[-1]})
            if answer:
                self.results.blocks[side.name] = answer

    # Gathers that no GEMM follows.

    def gather_turn(self, launch, extra, number):
        words = ["--ranks", str(self.setup.ranks), "--bytes", ",".join(map(str, self.options.gathers)), "--gib", "64"]
        words += ["--calls", str(self.options.calls), "--seconds", "3600"] + extra  # the time is kept here
        words += ["--in-place"] if self.options.in_place else []
        words += ["--check"] if number == 0 else []
        words += ["--cores", cores.option(self.setup.places)] if self.setup.places else []
        seconds = min(self.left(), FIRST_JOB_SECONDS)
        result = run_json(launch, self.setup, self.setup.gather_cost, words, seconds)
        for size in self.options.gathers:
            for what in ("device_us", "host_us", "latency_us"):
                self.results.alone[size, launch.name, what].append(result[str(size)][what])
            if number == 0:
                self.results.alone_checked[size, launch.name] = result[str(size)]["checked"]

    def gathers(self, entries):
        """`entries`: (Launch, further options of gather_cost)."""
        entries = list(entries)
        if not os.path.exists(self.setup.gather_cost):
            self.leave_out("gathers alone", f"{self.setup.gather_cost} is not there")
            return
        for number in range(self.options.rounds):
            turn = number % max(1, len(entries))
            for entry in entries[turn:] + entries[:turn]:
                self.left()
                try:
                    self.gather_turn(*entry, number)
                except Failed as why:
                    self.left()
                    if why.status == 1:
                        self.results.alone_wrong[entry[0].name] = str(why)
                    self.leave_out(f"{entry[0].name} (gathers alone)", str(why))
                    entries.remove(entry)
            self.options.say(f"gathers alone: round {number + 1} of {self.options.rounds}, {self.left():.0f} s left")


def name_of(row):
    return ",".join(map(str, row))
