# SPDX-License-Identifier: Apache-2.0
"""The C API (include/slipring.h) of the library that is in this process: preloaded, or linked to the program."""

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Any, Optional

from ._table import COUNTERS, REGION_GATHERS, REGION_GEMMS, VERSION

_process = ctypes.CDLL(None)  # whatever is loaded; nothing is loaded by this


class NotLoadedWarning(RuntimeWarning):
    """slipring was imported where the library is not: see the package's own words."""


class _Counters(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), *((name, ctypes.c_uint64) for name in COUNTERS)]


def _function(name: str) -> Optional[Any]:
    return getattr(_process, name, None)


def loaded() -> bool:
    """Whether slipring is in this process. It is not without `slipring run`, or LD_PRELOAD, in front of the command."""
    return _function("slipring_region_begin") is not None


def version() -> str:
    """The version of the library in this process; without one, of this package."""
    words = _function("slipring_version_string")
    if words is None:
        return VERSION
    words.restype = ctypes.c_char_p
    return str(words().decode())


def library() -> Path:
    """This package's libslipring.so: for LD_PRELOAD, and for NCCL_TUNER_PLUGIN and NCCL_PROFILER_PLUGIN."""
    return Path(__file__).resolve().parent / "lib" / "libslipring.so"


def counters() -> dict[str, int]:
    """Totals of this process since it started; docs/install.md says what each means. Empty without the library."""
    read = _function("slipring_counters_read")
    if read is None:
        return {}
    totals = _Counters(ctypes.sizeof(_Counters))
    _check(read(ctypes.byref(totals)), "slipring_counters_read")
    return {name: getattr(totals, name) for name in COUNTERS}


def _check(status: int, what: str) -> None:
    if status != 0:
        raise OSError(-status, f"{what}: {os.strerror(-status)}")


class Watch:
    """What the library counts of this process from `with slipring.watch() as w` on, to the end of the block."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._after: Optional[dict[str, int]] = None

    def __enter__(self) -> "Watch":
        self._before, self._after = counters(), None
        return self

    def __exit__(self, *_: object) -> None:
        self._after = counters()

    @property
    def counters(self) -> dict[str, int]:
        """As slipring.counters(); within the block: so far. Empty without the library."""
        now = counters() if self._after is None else self._after
        return {name: n - self._before.get(name, 0) for name, n in now.items()}

    def __str__(self) -> str:
        c = self.counters
        if not c:
            return "libslipring.so is not in this process: nothing was counted"
        said = [
            f"{c[moved]} of {c[calls]} {words} over the ring"
            for words, calls, moved in (
                ("all-gathers", "calls", "substituted"),
                ("reduce-scatters", "scatters", "scatters_substituted"),
                ("all-reduces", "reduces", "reduces_substituted"),
            )
            if c[calls]
        ]
        return "; ".join([*said, f"{c['fused']} GEMMs in parts behind all-gathers"] if said else ["no collective was called"])


def watch() -> Watch:
    """For `with`: what happens within, of all threads of this process."""
    return Watch()


class Region(contextlib.ContextDecorator):
    """A region of the C API, for `with` or as a decorator; `as` gives whether slipring is there. It has no state of its own."""

    def __init__(self, flags: int) -> None:
        self._flags = flags

    def __enter__(self) -> bool:
        begin = _function("slipring_region_begin")
        if begin is not None:
            _check(begin(ctypes.c_uint(self._flags)), "slipring_region_begin")
        return begin is not None

    def __exit__(self, *_: object) -> None:
        end = _function("slipring_region_end")
        if end is not None:
            _check(end(), "slipring_region_end")


def off() -> Region:
    """A region in which this thread's all-gathers go to NCCL, and its GEMMs stay whole.

    Every rank of a communicator has to make the same all-gathers inside of such regions, else the communicator fails, with
    a message in the log. Calls of other threads are not in it: PyTorch's backward() calls from threads of its own.
    Regions nest.
    """
    return Region(REGION_GATHERS | REGION_GEMMS)


def whole_gemms() -> Region:
    """A region in which this thread's GEMMs run whole, behind the whole gather. Ranks may differ; else as off()."""
    return Region(REGION_GEMMS)
