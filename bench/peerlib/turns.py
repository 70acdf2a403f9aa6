# SPDX-License-Identifier: Apache-2.0
"""Two sides that live through a run and take turns; the run ends in time, with what it has."""

import itertools
import os
import time

import decisions
from measure import JOB_SECONDS, START_SECONDS, OutOfTime
from sides import Failed, stop_all

NCCL, OURS, CONTROL = "nccl", "slipring", "control"


def maker(setup, settings, make_side, control=False):
    """A function that makes both sides with make_side(name, prefix), and the Log of slipring's rank 0; each
    time another one. `settings`: more of slipring's, NAME=VALUE. `control`: the second side is NCCL again."""
    groups = itertools.count()

    def make():
        if control:
            return [make_side(NCCL, []), make_side(CONTROL, [])], decisions.Log(os.devnull)
        path = os.path.join(os.path.abspath(setup.logs), f"decisions.{next(groups)}.rank%r.jsonl")
        ours = setup.slipring(["log=info", "log_format=json", f"log_file={path}"] + settings)
        return [make_side(NCCL, []), make_side(OURS, ours)], decisions.Log(path.replace("%r", "0"))

    return make


class Turns:
    def __init__(self, options, make):
        """`make`() returns new sides, which have not begun, and slipring's Log."""
        self.options, self.make = options, make
        self.sides, self.log = [], None
        self.begin, self.left_out, self.stopped = time.monotonic(), {}, None

    def left(self):
        seconds = self.options.limit - (time.monotonic() - self.begin)
        if seconds <= 0:
            raise OutOfTime(f"stopped at the limit of {self.options.limit:.0f} s")
        return seconds

    def start(self):
        self.sides, self.log = self.make()
        for side in self.sides:
            side.begin()
        for side in self.sides:
            side.ready(min(self.left(), START_SECONDS))

    def stop(self):
        stop_all(self.sides, 1 if self.stopped else 8)

    def ask(self, side, job, seconds=JOB_SECONDS):
        return side.ask(job, min(self.left(), seconds))

    def say(self, text):
        self.options.say(f"{text}, {max(0, self.options.limit - (time.monotonic() - self.begin)):.0f} s left")

    def leave_out(self, name, why):
        self.left_out[name] = str(why)
        self.say(f"left out: {name}: {why}")

    def until_stopped(self, work):
        """Calls it; when it does not come to its end, `stopped` says why."""
        try:
            work()
        except (OutOfTime, KeyboardInterrupt) as why:
            self.stopped = str(why) or "interrupted"
        except (Failed, OSError) as why:
            out_of_time = time.monotonic() - self.begin >= self.options.limit
            self.stopped = f"stopped at the limit of {self.options.limit:.0f} s" if out_of_time else f"failed: {why}"
        if self.stopped:
            self.options.say(self.stopped)
