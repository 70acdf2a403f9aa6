# SPDX-License-Identifier: Apache-2.0
"""What the programs here that drive sides share: options, where everything lies, what is said of a run."""

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
import time

import cores

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WHEELS = """
import glob, sys
print(*(folder for path in sys.path for folder in sorted(glob.glob(path + "/nvidia/*/lib"))), sep="\\n")
"""
DEVICES = """
import ctypes
cuda, count, name = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.create_string_buffer(100)
bus = ctypes.create_string_buffer(100)
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and cuda.cuDeviceGetName(name, 100, 0) == 0:
    print(count.value, name.value.decode())
    for device in range(count.value):
        print(bus.value.decode() if cuda.cuDeviceGetPCIBusId(bus, 100, device) == 0 else "")
"""


def at_least(least, kind):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"a number from {least} on, not {text}")
        return value

    return parse


class Setup:
    """Where everything is that the sides are made of."""

    def __init__(self, options, logs):
        self.build, self.logs, self.python, self.device = (
            os.path.abspath(options.build),
            logs,
            options.python,
            options.device,
        )
        nccl = getattr(options, "nccl", "")
        self.nccl = os.path.abspath(nccl) if nccl else ""
        self.ag_gemm, self.gather_cost = (
            os.path.join(self.build, "bench", name) for name in ("ag_gemm", "gather_cost")
        )
        self.library = os.path.join(self.build, "libslipring.so")
        self.launcher = os.path.join(ROOT, "LD_PRELOAD", "slipring")
        self.library_path = {
            "LD_LIBRARY_PATH": ":".join(filter(None, [os.environ.get("LD_LIBRARY_PATH")] + self.wheels()))
        }
        self.count, self.gpu, self.buses = self.find_devices()
        self.modelled = self.gpu.startswith("softgpu")
        self.ranks = options.ranks or max(2, self.count)
        gpus = [self.buses[rank % len(self.buses)] if self.buses else "" for rank in range(self.ranks)]
        self.program = options.program or ("torch" if self.has_torch() and not self.modelled else "ag_gemm")
        pin = getattr(options, "pin", False) and self.program == "torch"
        self.places = cores.places(gpus) if pin else None

    def has_torch(self):
        return self.python != sys.executable or importlib.util.find_spec("torch") is not None

    def wheels(self):
        """Folders of the CUDA libraries of PyTorch's wheel, for the programs of C."""
        done = subprocess.run([self.python, "-c", WHEELS], stdout=subprocess.PIPE, text=True, check=False, timeout=60)
        return done.stdout.split()

    def find_devices(self):
        if self.device == "cpu":
            return 0, "CPU", []
        done = subprocess.run(
            [sys.executable, "-c", DEVICES],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=60,
        )
        first, *buses = done.stdout.splitlines() or [""]
        count, _, name = first.partition(" ")
        return int(count or 0), name, buses

    def slipring(self, settings):
        words = [self.launcher, "run", "--lib", self.library]
        return words + [word for one in settings for word in ("--set", one)] + ["--"]


def pin_option(p):
    p.add_argument("--no-pin", dest="pin", action="store_false", help="leave it to the system which cores ranks run on")


def writable(p, *paths):
    for path in filter(None, paths):
        try:
            with open(path, "a", encoding="utf-8"):
                pass
        except OSError as error:
            p.error(f"{path} can not be written: {error.strerror}")


def idle(used):
    """What a rank of each side takes of a core while another side has its turn."""
    shares = [(side.name, side.idle_share()) for side in used]
    return ", ".join(f"{name} {share:.2%} of a core" for name, share in shares if share is not None)


def header(setup, used, command):
    """What has to be known beside the figures, (name, value), of a run of `used` sides by `command`."""

    def said(*words):
        try:
            return subprocess.run(
                words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30, check=False
            ).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            return ""

    facts = next((side.facts for side in used if side.facts), {})
    called = next((side.facts["nccl_called"] for side in used if side.facts.get("nccl_called")), "")
    driver = said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if not setup.modelled else ""
    settings = sorted(
        name
        for name in os.environ
        if name.startswith(("NCCL_", "TORCH_", "PYTORCH_", "SLIPRING_", "SOFTGPU_", "CUDA_VISIBLE", "CUDA_DEVICE"))
    )
    lines = [
        ("date", time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())),
        ("command", shlex.join([command] + sys.argv[1:])),
        ("device", f"{setup.ranks} ranks on {setup.count} x {facts.get('device') or setup.gpu}"),
        ("driver", driver.split("\n")[0]),
        (
            "slipring",
            " ".join(
                filter(
                    None, [said(setup.launcher, "--version"), said("git", "-C", ROOT, "rev-parse", "--short", "HEAD")]
                )
            ),
        ),
        (
            "program",
            {"torch": f"PyTorch {facts.get('torch', '')}, CUDA {facts.get('cuda', '')}", "ag_gemm": "bench/ag_gemm"}[
                setup.program
            ],
        ),
        ("cores", cores.describe(setup.places) if used else ""),
        ("between turns", idle(used)),
        ("NCCL", facts.get("nccl", "")),
        ("NCCL of zero-cta", called or ""),
        ("environment", " ".join(f"{name}={os.environ[name]}" for name in settings)),
    ]
    return [(name, value) for name, value in lines if value]


def write(path, text):
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
