# SPDX-License-Identifier: Apache-2.0
"""The Python module in a process with two (software) GPUs: what it says before, and of all-gathers in and out of regions.

  wheel_program.py preloaded|plain

NCCL and the CUDA runtime are called by ctypes, as frameworks load them: by dlopen and dlsym.
"""
import ctypes
import inspect
import os
import sys
import typing

import slipring

RANKS, COUNT = 2, 1000


def cuda_runtime():
    """That of CUDA 13 or 12: the software GPU's first, which stands for one of them only."""
    names = ["libcudart.so.13", "libcudart.so.12"]
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    there = [name for folder in folders for name in names if folder and os.path.exists(os.path.join(folder, name))]
    for name in there + names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problem = error
    raise problem


cuda, nccl = cuda_runtime(), ctypes.CDLL("libnccl.so.2")
pointer, size = ctypes.c_void_p, ctypes.c_size_t
cuda.cudaMalloc.argtypes = [ctypes.POINTER(pointer), size]
cuda.cudaMemcpy.argtypes = [pointer, pointer, size, ctypes.c_int]
cuda.cudaStreamCreate.argtypes = [ctypes.POINTER(pointer)]
cuda.cudaStreamSynchronize.argtypes = [pointer]
nccl.ncclAllGather.argtypes = [pointer, pointer, size, ctypes.c_int, pointer, pointer]
nccl.ncclCommDestroy.argtypes = [pointer]
INT8, DEFAULT = 0, 4


def done(status):
    assert status == 0, status


def on(rank):
    done(cuda.cudaSetDevice(rank))


class Rank:
    def __init__(self, rank, comm):
        self.rank, self.comm, self.stream, self.send, self.recv = rank, comm, pointer(), pointer(), pointer()
        on(rank)
        done(cuda.cudaStreamCreate(ctypes.byref(self.stream)))
        done(cuda.cudaMalloc(ctypes.byref(self.send), COUNT))
        done(cuda.cudaMalloc(ctypes.byref(self.recv), RANKS * COUNT))

    def fill(self, value):
        on(self.rank)
        done(cuda.cudaMemcpy(self.send, ctypes.create_string_buffer(bytes([value + self.rank]) * COUNT, COUNT), COUNT, DEFAULT))

    def received(self):
        on(self.rank)
        done(cuda.cudaStreamSynchronize(self.stream))
        data = ctypes.create_string_buffer(RANKS * COUNT)
        done(cuda.cudaMemcpy(data, self.recv, RANKS * COUNT, DEFAULT))
        return data.raw


def gather(ranks, value):
    for rank in ranks:
        rank.fill(value)
    done(nccl.ncclGroupStart())
    for rank in ranks:
        on(rank.rank)
        done(nccl.ncclAllGather(rank.send, rank.recv, COUNT, INT8, rank.comm, rank.stream))
    done(nccl.ncclGroupEnd())
    wanted = b"".join(bytes([value + rank.rank]) * COUNT for rank in ranks)
    assert all(rank.received() == wanted for rank in ranks), "wrong data"


@slipring.off()
def gather_by_nccl(ranks, value):
    gather(ranks, value)


def expect(calls, substituted):
    """The counters, where there are any."""
    told = slipring.counters()
    got = {name: told[name] for name in ("calls", "bytes", "substituted", "passed")}
    wanted = {"calls": calls, "bytes": calls * RANKS * COUNT, "substituted": substituted, "passed": calls - substituted}
    assert got == wanted, (got, wanted)


def regions_fail_as_the_library_says():
    with slipring.off() as outer, slipring.off() as inner:
        assert outer and inner
    end = ctypes.CDLL(None).slipring_region_end
    try:
        with slipring.whole_gemms():
            done(end())
    except OSError as error:
        assert "slipring_region_end" in str(error)
    else:
        raise AssertionError("a region that has ended ends again")


def watched(watch, within):
    """Two gathers of two ranks, of which the ring had the first."""
    if not slipring.loaded():
        assert watch.counters == within == {}
        return
    assert (within["calls"], within["substituted"]) == (2, 2), within
    got = watch.counters
    assert (got["calls"], got["substituted"], got["passed"], got["bytes"]) == (4, 2, 2, 4 * RANKS * COUNT), got
    assert str(watch) == "2 of 4 all-gathers over the ring; 0 GEMMs in parts behind all-gathers", str(watch)


def hints_are_whole():
    """Each public function says what it takes and returns."""
    public = [getattr(slipring, name) for name in slipring.__all__]
    functions = [thing for thing in public if inspect.isfunction(thing)]
    functions += [thing for kind in public if inspect.isclass(kind) for thing in vars(kind).values() if inspect.isfunction(thing)]
    assert len(functions) >= 10
    for function in functions:
        wanted = {name for name in inspect.signature(function).parameters if name != "self"} | {"return"}
        assert wanted == set(typing.get_type_hints(function)), (function, wanted)


def main():
    preloaded = sys.argv[1] == "preloaded"
    assert slipring.loaded() == preloaded
    assert slipring.version() == slipring.__version__, (slipring.version(), slipring.__version__)
    assert bool(slipring.counters()) == preloaded and slipring.library().is_file()
    hints_are_whole()
    with slipring.watch() as nothing:
        pass
    assert str(nothing) == ("no collective was called" if preloaded else "libslipring.so is not in this process: nothing was counted"), str(nothing)
    comms = (pointer * RANKS)()
    done(nccl.ncclCommInitAll(comms, RANKS, None))
    ranks = [Rank(rank, comm) for rank, comm in enumerate(comms)]
    gather(ranks, 5)  # in which NCCL connects the ranks of one process
    with slipring.watch() as watch:
        gather(ranks, 10)
        within = watch.counters
        with slipring.off() as there:
            assert there == preloaded
            gather(ranks, 20)
    watched(watch, within)
    gather_by_nccl(ranks, 30)
    with slipring.whole_gemms():
        gather(ranks, 40)
    if preloaded:
        expect(10, 4)
        regions_fail_as_the_library_says()
    for rank in ranks:
        done(nccl.ncclCommDestroy(rank.comm))
    print("fine")


main()
