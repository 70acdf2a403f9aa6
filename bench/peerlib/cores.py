# SPDX-License-Identifier: Apache-2.0
"""Which cores of the host the ranks run on: rank r of every side on the same ones, so that the host's
time can be compared.

Each rank has a share of its own, near its GPU where the system tells what is near. One core of it is
for the thread that issues work; all others of the process keep to the rest.
"""

import collections
import contextlib
import os
import threading

GPUS = "/sys/bus/pci/devices"
CORES = "/sys/devices/system/cpu"
AUTOGRAD = "pt_autograd"  # PyTorch's threads that issue the work of backward passes

# Of a rank: `rest` is for all its threads but the one that issues work, which has the core `issue`. With a
# share of one core both are that one.
Place = collections.namedtuple("Place", "rest issue")


def parse(text):
    """The kernel's lists, such as 0-3,8."""
    cores = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def name(cores):
    """The other way round."""
    runs = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def listed(*path):
    """The cores that a file of the system lists; none when it can not be read."""
    try:
        with open(os.path.join(*path), encoding="ascii") as file:
            return parse(file.read())
    except (OSError, ValueError):
        return set()


def physical(cores):
    """In groups that share a physical core."""
    groups, left = [], set(cores)
    for core in sorted(cores):
        if core in left:
            together = listed(CORES, f"cpu{core}", "topology", "thread_siblings_list") & left | {core}
            groups.append(sorted(together))
            left -= together
    return groups


def near(gpus, allowed):
    """For each GPU, by its address on the bus, what is near it. Unless that is known of all, and any two
    have the same cores or none in common, it is everything."""
    sets = [frozenset(listed(GPUS, gpu.lower(), "local_cpulist") & allowed) for gpu in gpus]
    known = all(sets) and all(a == b or not a & b for a in sets for b in sets)
    return sets if known else [allowed] * len(gpus)


def divide(cores, parts):
    """Equal shares of whole physical cores, as far as there are enough; None when there are too few."""
    groups = physical(cores)
    if len(groups) < parts:
        groups = [[core] for core in sorted(cores)]
    if len(groups) < parts:
        return None
    return [groups[part * len(groups) // parts : (part + 1) * len(groups) // parts] for part in range(parts)]


def place(share):
    """The last physical core of the share issues work, and does nothing else, if there is another."""
    rest = [core for group in share[:-1] for core in group] or share[-1][:-1] or share[-1]
    return Place(frozenset(rest), share[-1][-1])


def places(gpus, allowed=None):
    """A Place for each rank, whose GPU's address is in `gpus`, empty when it is not known; None when there
    are fewer cores than ranks. `allowed`: what may be used, else what this process may."""
    sets, found = near(gpus, frozenset(allowed or os.sched_getaffinity(0))), {}
    for cores in set(sets):
        ranks = [rank for rank, near_rank in enumerate(sets) if near_rank == cores]
        shares = divide(cores, len(ranks))
        if shares is None:
            return None
        found.update(zip(ranks, map(place, shares)))
    return [found[rank] for rank in range(len(gpus))]


def option(found):
    """As bench/pin.h reads it."""
    return ":".join(f"{name(one.rest)}/{one.issue}" for one in found)


def describe(found):
    if not found:
        return "not pinned"
    return "; ".join(f"rank {rank} on {name(one.rest)}, issues on {one.issue}" for rank, one in enumerate(found))


class Issuer:
    """In a rank: keeps the thread that makes it on the core `issue`, and all others off it. `rest`: theirs."""

    def __init__(self, issue, rest):
        self.issue, self.rest, self.thread = issue, rest, threading.get_native_id()
        os.sched_setaffinity(self.thread, {issue})
        self.keep()

    def keep(self):
        """Threads that were begun since the last call have the core of the one that began them."""
        for thread in map(int, os.listdir("/proc/self/task")):
            if thread != self.thread:
                with contextlib.suppress(OSError):  # it has ended
                    self.move(thread)

    def move(self, thread):
        with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as file:
            issues = file.read().startswith(AUTOGRAD)
        now = os.sched_getaffinity(thread)
        if issues or self.issue in now:
            os.sched_setaffinity(thread, {self.issue} if issues else now - {self.issue} & self.rest or self.rest)
