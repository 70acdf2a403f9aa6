#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX, one process with all GPUs: an all-gather and the product behind it, in shard_map; nothing here knows of slipring.

    slipring run --set log=info -- python examples/jax_gather.py

Expect `right` and the time of a call; in the log, for each GPU, `substitute`. XLA may put collectives into CUDA graphs, as
it does with other work: then the log says `graph`, see docs/reasons.md.
Without GPUs:    XLA_FLAGS=--xla_force_host_platform_device_count=2 python examples/jax_gather.py
"""
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

GPU = jax.default_backend() == "gpu"
M, K, N, CALLS = (8192, 4096, 4096, 50) if GPU else (64, 32, 32, 5)


def small(generator, rows, columns):
    """-1, 0 and 1, of which all sums are exact."""
    return (generator.integers(0, 3, (rows, columns)) - 1).astype(np.float32)


def main():
    mesh = Mesh(np.array(jax.devices()), ("gpu",))

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("gpu", None), P(None, "gpu")), out_specs=P(None, "gpu"))
    def multiply(x, weight):
        whole = jax.lax.all_gather(x, "gpu", axis=0, tiled=True)
        return jnp.dot(whole, weight, preferred_element_type=jnp.float32)

    def place(matrix, spec):
        return jax.device_put(matrix.astype(jnp.bfloat16), NamedSharding(mesh, spec))

    generator = np.random.default_rng(1)
    x, weight = small(generator, M, K), small(generator, K, N * mesh.size)
    arguments = place(x, P("gpu", None)), place(weight, P(None, "gpu"))
    product = np.asarray(multiply(*arguments))
    right = np.array_equal(product, x @ weight)
    print(f"{'right' if right else 'WRONG'}, on {mesh.size} devices ({jax.default_backend()})", flush=True)
    begin = time.perf_counter()
    for _ in range(CALLS):
        result = multiply(*arguments)
    jax.block_until_ready(result)
    print(f"{(time.perf_counter() - begin) / CALLS * 1e3:.3f} ms a call")


if __name__ == "__main__":
    main()
