# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory from an allocator that can sleep (sleeping.c), which is compiled here."""
import ctypes
import os
import subprocess
import tempfile

import common


class Sleeper:
    """with Sleeper().pool(): what is allocated there sleeps and wakes up by nap(), and `kept` tensors keep their values."""

    def __init__(self):
        import torch

        folder = tempfile.mkdtemp(prefix="sleeping-")
        library = os.path.join(folder, "sleeping.so")
        home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-w", "-o", library,
                        os.path.join(common.HERE, "sleeping.c"), f"-I{home}/include",
                        "-Wl,--allow-shlib-undefined"], check=True)
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        self.calls = ctypes.CDLL(library)
        self.torch = torch
        self.allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "sleeping_alloc", "sleeping_free")
        self.memory = torch.cuda.MemPool(self.allocator.allocator())

    def pool(self):
        return self.torch.cuda.use_mem_pool(self.memory)

    def nap(self, kept):
        """Long enough for whatever is done behind the program's back, as restoring weights is."""
        host = [one.cpu() for one in kept]
        self.torch.cuda.synchronize()
        self.calls.sleeping_sleep()
        self.calls.sleeping_wake()
        for one, values in zip(kept, host):
            one.copy_(values)
        self.torch.cuda.synchronize()
