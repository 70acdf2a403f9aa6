# SPDX-License-Identifier: Apache-2.0
"""NCCL by ctypes: a communicator, ncclAllGather, and buffers of ncclMemAlloc that are registered as
symmetric windows."""

import ctypes

INT8, SYMMETRIC = 0, 1  # ncclInt8, NCCL_WIN_COLL_SYMMETRIC


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


class Memory:
    """Device memory as PyTorch takes it over: 16-bit elements. Whoever made it also frees it."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "shape": (count,),
            "typestr": "<i2",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


class Windows:
    def __init__(self, path, rank, ranks, store):
        self.library = ctypes.CDLL(path)
        self.library.ncclGetErrorString.restype = ctypes.c_char_p
        for name in ("ncclMemAlloc", "ncclCommWindowRegister", "ncclCommWindowDeregister"):
            if not hasattr(self.library, name):
                raise RuntimeError(f"{path} has no {name}: windows came with NCCL 2.27")
        self.comm, self.held = ctypes.c_void_p(), []
        number = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(number))
        self.version = f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"
        self.call(
            "ncclCommInitRank",
            ctypes.byref(self.comm),
            ctypes.c_int(ranks),
            self.shared_id(rank, store),
            ctypes.c_int(rank),
        )

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {self.library.ncclGetErrorString(status).decode()}")

    def shared_id(self, rank, store):
        unique = UniqueId()
        if rank == 0:
            self.call("ncclGetUniqueId", ctypes.byref(unique))
            store.set("peers nccl id", bytes(unique).hex())
        return UniqueId.from_buffer_copy(bytes.fromhex(store.get("peers nccl id").decode()))

    def tensor(self, torch, device, rows, columns):
        """rows x columns, bf16. All ranks call in the same order: registration is collective."""
        address, window, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(2 * rows * columns)
        self.call("ncclMemAlloc", ctypes.byref(address), size)
        self.held.append((address, window))
        self.call("ncclCommWindowRegister", self.comm, address, size, ctypes.byref(window), ctypes.c_int(SYMMETRIC))
        flat = torch.as_tensor(Memory(address.value, rows * columns), device=device)
        if flat.data_ptr() != address.value:
            raise RuntimeError("PyTorch has copied the window's memory instead of taking it over")
        return flat.view(torch.bfloat16).view(rows, columns)

    def free(self):
        held, self.held = self.held, []
        for address, window in held:
            if window:
                self.call("ncclCommWindowDeregister", self.comm, window)
            self.call("ncclMemFree", address)

    def all_gather(self, send, recv, size, stream):
        """`size`: bytes that one rank sends. `stream`: a cudaStream_t as a number."""
        self.call(
            "ncclAllGather",
            ctypes.c_void_p(send),
            ctypes.c_void_p(recv),
            ctypes.c_size_t(size),
            ctypes.c_int(INT8),
            self.comm,
            ctypes.c_void_p(stream),
        )
