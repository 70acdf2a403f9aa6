#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training of an MLP by JAX's jit, a process for each rank: only the shardings of arrays are given.

Weights lie in parts of the inner dimension, tokens in parts between the layers, so XLA has to gather in front of the
first product and to sum and scatter behind the second.
"""
import os

import common

SIZES = {"hidden": 8192, "inner": 7168, "tokens": 8192, "layers": 3}
ONE_GPU = {"hidden": 2048, "inner": 8192, "tokens": 2048}
CPU = {"hidden": 32, "inner": 64, "tokens": 16}


def start(o):
    import jax

    if o.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    local = [0 if o.one_gpu or o.device == "cpu" else common.LOCAL_RANK]
    jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", common.RANKS, common.RANK,
                               local_device_ids=local)


def make(o):
    """The jitted step, and the arrays it begins with."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()), ("ranks",))

    def lies(*names):
        return NamedSharding(mesh, P(*names))

    def placed(value, sharding, dtype=jnp.bfloat16):
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index].astype(dtype))

    def loss_of(weights, x, target):
        for up, down in weights:
            inner = jax.nn.gelu(jnp.dot(x, up.astype(x.dtype), preferred_element_type=x.dtype))
            inner = jax.lax.with_sharding_constraint(inner, lies(None, "ranks"))
            outer = jnp.dot(inner, down.astype(x.dtype), preferred_element_type=x.dtype)
            x = x + jax.lax.with_sharding_constraint(outer, lies("ranks", None))
        return jnp.square(x.astype(jnp.float32) - target.astype(jnp.float32)).sum(-1).mean()

    generator = np.random.default_rng(o.seed)

    def normal(rows, columns, scale=1.0):
        return generator.standard_normal((rows, columns), dtype=np.float32) * np.float32(scale)

    shardings = [(lies(None, "ranks"), lies("ranks", None))] * o.layers
    weights = [(placed(normal(o.hidden, o.inner, o.hidden**-0.5), up, jnp.float32),
                placed(normal(o.inner, o.hidden, o.inner**-0.5), down, jnp.float32)) for up, down in shardings]
    x, target = (placed(normal(o.tokens, o.hidden), lies("ranks", None)) for _ in range(2))

    def step(weights, x, target):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, target)
        return loss, jax.tree.map(lambda w, g: w - 0.1 / o.inner * g, weights, gradients)

    return jax.jit(step, donate_argnums=0, out_shardings=(lies(), shardings)), weights, x, target


def main():
    o = common.parse(common.parser(__doc__, SIZES, ONE_GPU, CPU))
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import numpy as np

    start(o)
    jitted, weights, *data = make(o)
    state = {"weights": weights}

    def step(_):
        loss, state["weights"] = jitted(state["weights"], *data)
        return loss

    def floats(losses):
        return [float(np.asarray(one.addressable_data(0))) for one in losses]

    common.drive(o, step, lambda: jax.block_until_ready(state["weights"]), floats, jax=jax.__version__)
    jax.distributed.shutdown()


if __name__ == "__main__":
    common.run(main)
