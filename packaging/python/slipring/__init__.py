# SPDX-License-Identifier: Apache-2.0
"""slipring from Python: what is in this process, and the reports of runs. No program needs it.

    slipring run -- python train.py          the library is preloaded; train.py need not know of it

    import slipring

    slipring.loaded()                        whether it is in this process
    slipring.counters()                      {"calls": 12, "substituted": 12, ...}
    with slipring.watch() as step: ...       step.counters: what was counted within; str(step): in words
    with slipring.whole_gemms(): ...         GEMMs in one piece: an unsplit GEMM's results to the last bit
    with slipring.off(): ...                 and all-gathers by NCCL: on every rank alike
    slipring.report("logs")                  what `slipring run --record logs -- ...` has written, as a dict

Everything works without the library as well, and the import then warns of it (NotLoadedWarning): loaded() is False,
counters() is empty, regions change nothing. Errors of the library are OSError, those of the tools RuntimeError.
"""

import os
import sys
import warnings

from ._library import NotLoadedWarning, Watch, counters, library, loaded, off, version, watch, whole_gemms
from ._report import report
from ._table import VERSION as __version__

__all__ = ["NotLoadedWarning", "Watch", "__version__", "counters", "library", "loaded", "off", "report", "version", "watch", "whole_gemms"]

# Not where this is the command `slipring`, or `python -m slipring`.
if not loaded() and os.path.basename(next(iter(sys.argv), "")) not in ("-m", "slipring"):
    warnings.warn(
        "slipring: libslipring.so is not in this process, so nothing is substituted or counted; "
        "start the program as `slipring run -- python ...`",
        NotLoadedWarning,
        stacklevel=2,
    )
