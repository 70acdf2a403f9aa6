#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process, all GPUs: an all-gather of rows and the product with each GPU's own weight, by JAX's shard_map.

    jax_gather.py [--m 8192] [--k 4096] [--n 4096] [--calls 50] [--json FILE]

Gathered: m x k, each GPU has m / GPUs rows; each multiplies it with a k x n weight of its own. The values are -1, 0 and 1, so
that every sum is a whole number that bf16 holds; the product is compared with NumPy's, for two sets of data, and after the
timed calls once more. The time is that of one call in a row of calls, the median of five rows. Nothing here knows of slipring.
"""
import argparse
import functools
import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def small(generator, rows, columns):
    return (generator.integers(0, 2, (rows, columns)) + generator.integers(0, 2, (rows, columns)) - 1).astype(np.float32)


def program(mesh):
    """The jitted function, and one that returns what was gathered on every GPU."""

    def body(x, weight):
        return jax.lax.all_gather(x, "gpu", axis=0, tiled=True) @ weight

    def gather(x):
        return jax.lax.all_gather(x, "gpu", axis=0, tiled=True)[None]

    mapped = functools.partial(jax.shard_map, mesh=mesh)
    return (jax.jit(mapped(body, in_specs=(P("gpu", None), P(None, "gpu")), out_specs=P(None, "gpu"))),
            jax.jit(mapped(gather, in_specs=P("gpu", None), out_specs=P("gpu", None, None))))


class Data:
    def __init__(self, mesh, options, seed):
        generator = np.random.default_rng(seed)
        self.x = small(generator, options.m, options.k)
        self.weight = small(generator, options.k, options.n * mesh.size)
        self.on_gpus = (self.place(mesh, self.x, P("gpu", None)), self.place(mesh, self.weight, P(None, "gpu")))
        self.product = self.x @ self.weight

    @staticmethod
    def place(mesh, matrix, spec):
        return jax.device_put(matrix.astype(jnp.bfloat16), NamedSharding(mesh, spec))


def wrong(got, wanted):
    """Number of elements that differ. Each is a whole number below 256, if the program is right."""
    return int((np.asarray(got).astype(np.float32) != wanted).sum())


def check(multiply, gather, data):
    gathered = np.asarray(gather(data.on_gpus[0]))
    return wrong(multiply(*data.on_gpus), data.product) + sum(wrong(part, data.x) for part in gathered)


def row_of_calls(multiply, data, calls):
    jax.block_until_ready(multiply(*data.on_gpus))
    begin = time.perf_counter()
    for _ in range(calls):
        result = multiply(*data.on_gpus)
    jax.block_until_ready(result)
    return (time.perf_counter() - begin) / calls * 1e3, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--m", type=int, default=8192)
    parser.add_argument("--k", type=int, default=4096)
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    mesh = Mesh(np.array(jax.devices()), ("gpu",))
    multiply, gather = program(mesh)
    sets = [Data(mesh, options, seed) for seed in (1, 2)]
    bad = sum(check(multiply, gather, data) for data in sets)
    rows = []
    for turn in range(5):
        data = sets[turn % 2]
        ms, result = row_of_calls(multiply, data, options.calls)
        rows.append(ms)
        bad += wrong(result, data.product)
    ms = statistics.median(rows)
    print(f"{mesh.size} GPUs, {options.m} x {options.k} x {options.n}: {ms:.3f} ms a call "
          f"({', '.join(f'{row:.3f}' for row in rows)}), {bad} wrong; jax {jax.__version__}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"ms": ms, "rows": rows, "wrong": bad, "gpus": mesh.size}, file)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
