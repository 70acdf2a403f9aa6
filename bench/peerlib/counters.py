# SPDX-License-Identifier: Apache-2.0
"""slipring's counters of this process (plugin/slipring.h), where it is loaded."""

import ctypes

NAMES = (
    "calls bytes substituted substituted_bytes passed fused gemm_chunks joined staged zero_copy pushed mapped"
    " exports imports import_hits import_closes verified verify_bad sites sites_symmetric sites_broken scatters"
    " scatters_substituted scatters_fused scatters_produced reduces reduces_substituted"
).split()


class Counters(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in NAMES]


def read():
    """{name: total since the process began}; empty without slipring."""
    try:
        function = ctypes.CDLL(None).slipring_counters_read
    except AttributeError:
        return {}
    counters = Counters(ctypes.sizeof(Counters))
    status = function(ctypes.byref(counters))
    return {name: getattr(counters, name) for name in NAMES} if status == 0 else {}


def since(before):
    """What was counted after read() had given `before`."""
    return {name: value - before.get(name, 0) for name, value in read().items()}
