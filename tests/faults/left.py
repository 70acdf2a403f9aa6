#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fault.sh and run.sh find what a test leaves behind, and nothing of what others have on the same machine.

    left.py FAULT_SH                   the test: this process is the others. By TEST_LEFT the scripts tell what it leaves
                                       from what is left by the same test in another run
    left.py --program CASE TAG FD      the program under fault.sh, which leaves something or lets the others make something
"""
import os
import socket
import subprocess
import sys

CASES = {
    # what the program does: what fault.sh has to say
    "nothing": None,
    "connects": None,  # the others have not accepted it when the program has ended
    "doctor": None,  # the others' doctor has its file in /dev/shm
    "socket": "left behind:",
    "file": "left in /dev/shm:",
}


def listen(name):
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0slipring-" + name)
    s.listen(8)
    return s


def in_flight(name, channel):
    """A listening socket that no process holds: it is in a message that nobody reads."""
    s = listen(name)
    socket.send_fds(channel, [b"x"], [s.fileno()])
    s.close()


def shm(case, tag):
    return "/dev/shm/slipring-" + (f"doctor-{tag}" if case == "doctor" else f"left-{tag}")


def program(case, tag, channel):
    if case == "connects":
        socket.socket(socket.AF_UNIX).connect(f"\0slipring-others-{tag}")
    elif case == "socket":
        in_flight(f"left-{tag}", channel)
    elif case in ("doctor", "file"):
        open(shm(case, tag), "x").close()


def check(fault_sh, case, says):
    tag = str(os.getpid())
    others, channel = listen(f"others-{tag}"), socket.socketpair()
    waiting = socket.socket(socket.AF_UNIX)
    waiting.connect(f"\0slipring-others-{tag}")
    in_flight(f"others-left-{tag}", channel[0])  # before the test: not its own
    command = [fault_sh, "--plain", "--", sys.executable, __file__, "--program", case, tag, str(channel[0].fileno())]
    run = subprocess.run(command, pass_fds=[channel[0].fileno()], env=dict(os.environ, TEST_LEFT=tag), capture_output=True, text=True)
    for s in (others, waiting, *channel):
        s.close()
    if os.path.exists(shm(case, tag)):
        os.unlink(shm(case, tag))
    right = run.returncode != 0 and says in run.stderr if says else run.returncode == 0
    if not right:
        print(f"{case}: status {run.returncode}, expected {says or 'nothing'}:\n{run.stderr}")
    return right


if sys.argv[1] == "--program":
    program(sys.argv[2], sys.argv[3], socket.socket(fileno=int(sys.argv[4])))
else:
    sys.exit(0 if all([check(sys.argv[1], case, says) for case, says in CASES.items()]) else 1)
