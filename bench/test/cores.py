#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How bench/'s drivers divide the host's cores (peerlib/cores.py), on machines that are made up here, and
whether a rank's threads keep to them.

usage: cores.py
"""

import os
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "peerlib"))

import cores


def write(text, *path):
    os.makedirs(os.path.dirname(os.path.join(*path)), exist_ok=True)
    with open(os.path.join(*path), "w", encoding="ascii") as file:
        file.write(text + "\n")


class Lists(unittest.TestCase):
    def test_both_ways(self):
        self.assertEqual(cores.parse("0-2,8,10-11\n"), {0, 1, 2, 8, 10, 11})
        self.assertEqual(cores.parse(""), set())
        self.assertEqual(cores.name({10, 0, 1, 2, 8, 11}), "0-2,8,10-11")


class Machine(unittest.TestCase):
    """Core n and core n + `half` share a physical core."""

    half = 8

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(setattr, cores, "GPUS", cores.GPUS)
        self.addCleanup(setattr, cores, "CORES", cores.CORES)
        cores.GPUS, cores.CORES = (os.path.join(folder.name, name) for name in ("gpus", "cores"))
        self.all = set(range(2 * self.half))
        for core in self.all:
            pair = f"{core % self.half},{core % self.half + self.half}"
            write(pair, cores.CORES, f"cpu{core}", "topology", "thread_siblings_list")

    def near(self, **lists):
        for gpu, text in lists.items():
            write(text, cores.GPUS, f"0000:{gpu}:00.0", "local_cpulist")

    def shares(self, *gpus, allowed=None):
        found = cores.places([f"0000:{gpu}:00.0" for gpu in gpus], allowed or self.all)
        for one in found:
            self.assertNotIn(one.issue, one.rest)
            self.assertNotIn((one.issue + self.half) % (2 * self.half), one.rest, "a sibling of the core that issues")
        used = [core for one in found for core in {one.issue} | one.rest]
        self.assertEqual(len(used), len(set(used)), "two ranks have the same core")
        return [cores.name({one.issue} | one.rest) for one in found]

    def test_near_each_gpu(self):
        self.near(AA="0-15", **{"1a": "0-3,8-11", "9b": "4-7,12-15"})
        self.assertEqual(self.shares("9B", "1A"), ["4-6,12-15", "0-2,8-11"])

    def test_two_gpus_of_one_node(self):
        self.near(**{"1a": "0-3,8-11", "9b": "0-3,8-11"})
        self.assertEqual(self.shares("1a", "9b"), ["0,8-9", "2,10-11"])

    def test_nothing_known(self):
        self.assertEqual(self.shares("1a", "9b"), ["0-2,8-11", "4-6,12-15"])

    def test_lists_that_overlap(self):
        self.near(**{"1a": "0-15", "9b": "4-7,12-15"})
        self.assertEqual(self.shares("1a", "9b"), ["0-2,8-11", "4-6,12-15"])

    def test_only_what_is_allowed(self):
        self.near(**{"1a": "0-3,8-11", "9b": "4-7,12-15"})
        self.assertEqual(self.shares("1a", "9b", allowed={0, 1, 8, 5, 6, 13}), ["0-1,8", "5-6,13"])

    def test_one_core_each(self):
        found = cores.places(["", ""], {2, 3})
        self.assertEqual([(set(one.rest), one.issue) for one in found], [({2}, 2), ({3}, 3)])
        self.assertEqual(cores.option(found), "2/2:3/3")

    def test_one_physical_core_each(self):
        found = cores.places(["", ""], {2, 3, 10, 11})
        self.assertEqual([(set(one.rest), one.issue) for one in found], [({2}, 10), ({3}, 11)])

    def test_too_few(self):
        self.assertIsNone(cores.places(["", "", ""], {2, 3}))
        self.assertEqual(cores.describe(None), "not pinned")


class Threads(unittest.TestCase):
    """In this process; on a machine of one core both have that."""

    def setUp(self):
        self.allowed = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, self.allowed)
        self.end, self.threads = threading.Event(), []
        self.addCleanup(self.join)

    def join(self):
        self.end.set()
        for thread in self.threads:
            thread.join()

    def begin(self, name=None):
        """A thread that waits: its number."""
        ready, number = threading.Event(), []

        def body():
            number.append(threading.get_native_id())
            if name:
                write(name, f"/proc/self/task/{number[0]}/comm")
            ready.set()
            self.end.wait()

        self.threads.append(threading.Thread(target=body))
        self.threads[-1].start()
        ready.wait()
        return number[0]

    def test_others_keep_off(self):
        first = self.begin()
        issue = max(self.allowed)
        rest = self.allowed - {issue} or self.allowed
        issuer = cores.Issuer(issue, rest)
        later, autograd = self.begin(), self.begin("pt_autograd_0")
        issuer.keep()
        self.assertEqual(os.sched_getaffinity(0), {issue})
        self.assertEqual(os.sched_getaffinity(autograd), {issue})
        for thread in (first, later):
            self.assertEqual(os.sched_getaffinity(thread), rest)


if __name__ == "__main__":
    unittest.main()
