#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random JAX programs around all-gathers, products and reduce-scatters, with a process for each rank; every value is compared.

    RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT=... jax_programs.py [--seconds 60] [--seed 1] [--one-gpu] [--json FILE]

All ranks draw the same programs from the seed: a kind, a shape and a type each; a few are compiled,
and run again and again with new data, several at a time before the first is looked at. The values
are -1, 0 and 1, so that all sums are whole numbers, exact in any order and in any number of parts.
What must come out is computed by NumPy. `--one-gpu`: all ranks on the first GPU, over NCCL's
sockets. XLA's options are XLA_FLAGS', which has to be equal on all ranks.

Nothing here knows of slipring. Exit status: 0 when all values were right, 1 otherwise.
"""
import argparse
import collections
import json
import os
import random
import time

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--compiled", type=int, default=24, help="programs that are compiled")
    p.add_argument("--one-gpu", action="store_true")
    p.add_argument("--json", metavar="FILE", help="counts of this rank, in FILE.rankN.json")
    return p.parse_args()


OPTIONS = options()
if OPTIONS.one_gpu:  # NCCL refuses two ranks on one GPU of one host
    os.environ.update(NCCL_HOSTID=f"rank{RANK}", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

KINDS = {}  # name: (what a rank computes of its shard, the weight and a number; what NumPy makes of all of it)


def kind(expected):
    def add(function):
        KINDS[function.__name__] = (function, expected)
        return function

    return add


def gathered(x):
    return jax.lax.all_gather(x, "ranks", axis=0, tiled=True)


def own(full, x):
    """The rows of it that x has."""
    return jax.lax.dynamic_slice_in_dim(full, jax.lax.axis_index("ranks") * x.shape[0], x.shape[0])


def scattered(y):
    return jax.lax.psum_scatter(y, "ranks", scatter_dimension=0, tiled=True)


def dot(x, w):
    return jnp.matmul(x, w, preferred_element_type=x.dtype)


def sign(y):
    """Back to -1, 0 and 1, for the next product."""
    return jnp.sign(y)


# Each is (x, w, n) -> a result whose rows are those of x on this rank. x: rows x k of this rank, w: k x k, n: a number that
# the compiler does not know, which is equal on all ranks. In NumPy x has the rows of all ranks.


@kind(lambda x, w, n: x)
def gather(x, w, n):
    return own(gathered(x), x)


@kind(lambda x, w, n: x @ w)
def gather_dot(x, w, n):
    return own(dot(gathered(x), w), x)


@kind(lambda x, w, n: RANKS * np.sign(x @ w))
def gather_dot_scatter(x, w, n):
    return scattered(sign(dot(gathered(x), w)))


@kind(lambda x, w, n: RANKS * (np.sign(x @ w) @ w.T))
def layer(x, w, n):
    return scattered(dot(sign(dot(gathered(x), w)), w.T))


@kind(lambda x, w, n: RANKS * layers_of(x, w, 3))
def scan(x, w, n):
    def step(x, _):
        return sign(scattered(sign(dot(gathered(x), w)))), None

    return RANKS * jax.lax.scan(step, x, None, length=3)[0]


@kind(lambda x, w, n: layers_of(x, w, n))
def loop(x, w, n):
    return jax.lax.fori_loop(0, n, lambda _, x: sign(scattered(sign(dot(gathered(x), w)))), x)


@kind(lambda x, w, n: np.sign(x @ w) if n > 2 else x @ w)
def either(x, w, n):
    def one(x):
        return sign(scattered(dot(gathered(x), w)))

    def other(x):
        return own(dot(gathered(x), w), x)

    return jax.lax.cond(n > 2, one, other, x)


@kind(lambda x, w, n: x @ w + RANKS * np.sign(x @ w.T))
def two(x, w, n):
    full = gathered(x)
    first, second = dot(full, w), sign(dot(full, w.T))
    return own(first, x) + scattered(second)


@kind(lambda x, w, n: np.sign(x @ w) + np.tile(sum(np.split(x, RANKS)), (RANKS, 1)))
def reduce_beside(x, w, n):
    return sign(dot(x, w)) + jax.lax.psum(x, "ranks")


def layers_of(x, w, n):
    for _ in range(n):
        x = np.sign(x @ w)
    return x


class Program:
    def __init__(self, draw, mesh):
        self.name = draw.choice(sorted(KINDS))
        self.dtype = draw.choice([jnp.bfloat16, jnp.float16, jnp.float32])
        self.rows, self.k = draw.choice([64, 256, 1000, 1024]), draw.choice([256, 512, 1024])
        function, self.expected = KINDS[self.name]
        self.mesh = mesh
        self.call = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(P("ranks", None), P(None, None), P()),
                                          out_specs=P("ranks", None), check_vma=False))

    def start(self, draw):
        """With new data: the result, not waited for, and what this rank has to find in it."""
        generator = np.random.default_rng(draw.randrange(1 << 30))
        n = draw.randrange(6)
        x, w = (small(generator, rows, self.k) for rows in (self.rows * RANKS, self.k))
        got = self.call(self.placed(x, P("ranks", None)), self.placed(w, P(None, None)), self.placed(np.int32(n), P()))
        return got, self.expected(x, w, n)[RANK * self.rows :][: self.rows]

    def placed(self, value, spec):
        value = value if value.ndim == 0 else value.astype(self.dtype)
        return jax.make_array_from_callback(value.shape, NamedSharding(self.mesh, spec), lambda index: value[index])

    def __str__(self):
        return f"{self.name} {np.dtype(self.dtype).name} rows={self.rows} k={self.k}"


def small(generator, rows, columns):
    return (generator.integers(0, 2, (rows, columns)) + generator.integers(0, 2, (rows, columns)) - 1).astype(np.float32)


def look(program, got, wanted):
    """Number of elements that differ, told if any do."""
    have = np.asarray(got.addressable_data(0)).astype(np.float32)
    wrong = int((have != wanted).sum())
    if wrong:
        print(f"WRONG rank {RANK} {program}: {wrong} of {wanted.size}", flush=True)
    return wrong


def main():
    jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", RANKS, RANK,
                               local_device_ids=[0 if OPTIONS.one_gpu else int(os.environ["LOCAL_RANK"])])
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    going = jax.jit(jax.shard_map(lambda x: jax.lax.pmin(x, "ranks"), mesh=mesh, in_specs=P("ranks"), out_specs=P("ranks")))
    draw, begin, runs, wrong = random.Random(OPTIONS.seed), time.monotonic(), 0, 0
    kinds, programs = collections.Counter(), []
    while True:
        left = np.full(1, time.monotonic() - begin < OPTIONS.seconds, dtype=np.int32)
        more = going(jax.make_array_from_callback((RANKS,), NamedSharding(mesh, P("ranks")), lambda index: left))
        if not np.asarray(more.addressable_data(0))[0]:
            break
        for _ in range(4):
            if len(programs) < OPTIONS.compiled and draw.random() < 0.3 or not programs:
                programs.append(Program(draw, mesh))
            chosen = [draw.choice(programs) for _ in range(draw.randint(1, 4))]
            queued = [(program, *program.start(draw)) for program in chosen]
            for program, got, wanted in queued:
                kinds[program.name] += 1
                runs += 1
                wrong += look(program, got, wanted) != 0
    print(f"rank {RANK}: {runs} programs, {wrong} wrong, {dict(kinds)}, jax {jax.__version__}", flush=True)
    if OPTIONS.json:
        with open(f"{OPTIONS.json}.rank{RANK}.json", "w", encoding="utf-8") as file:
            json.dump({"programs": runs, "wrong": wrong, "kinds": kinds}, file)
    raise SystemExit(wrong != 0)


if __name__ == "__main__":
    main()
