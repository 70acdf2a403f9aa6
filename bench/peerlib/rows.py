# SPDX-License-Identifier: Apache-2.0
"""The random rows of bench/never_slower: what one iteration of each does."""

import collections
import math
import random

FORMS = ("activations", "weight", "gradient", "none")
USUAL = ("activations", "weight", "activations", "weight", "none")  # in turn
GRANULES = (64, 64, 8, 1)  # what M, K and N are multiples of: half of the rows are as models are
ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
FLOPS_A_MS = {"bf16": 700e9, "fp16": 700e9, "fp32": 45e9}  # about what an H200 does; fp32 without TF32
BYTES_A_MS = 350e6

Limits = collections.namedtuple("Limits", "least most bytes ms")


class Row(
    collections.namedtuple("Row", "number ranks form m k n dtype event barrier fresh kept")
):  # as the JSON has them
    """form     activations: x, M x K, is gathered from M / ranks rows of each rank and multiplied with
             the transpose of a weight, N x K, of the rank's own. weight: the weight is gathered, from
             N / ranks rows, and x is the rank's own. gradient: x is gathered, and the product of M x N
             of the rank's own, transposed, and x is added to N x K in fp32. none: x is gathered, and
             nothing multiplied
    event    the gather is asynchronous, and an event tells the GEMM's stream of it
    barrier  the ranks meet in front of each iteration, on the host
    fresh    shard, gathered buffer and product are allocated in each iteration; `kept`: those of so
             many iterations before are still held, so that the addresses change"""

    __slots__ = ()

    def gathered_rows(self):
        return self.n if self.form == "weight" else self.m

    def shard_bytes(self):
        return self.gathered_rows() // self.ranks * self.k * ELEMENT_BYTES[self.dtype]

    def bytes(self):
        """Device memory of one rank's buffers."""
        size = ELEMENT_BYTES[self.dtype]
        full, out = self.gathered_rows() * self.k * size, self.m * self.n * size
        other = (self.m if self.form == "weight" else self.n) * self.k * size
        if self.form == "none":
            out = other = 0
        if self.form == "gradient":
            out, other = 0, self.m * self.n * size + self.n * self.k * 4
        return other + (1 + self.kept) * (self.shard_bytes() + full + out)

    def flop(self):
        return 0 if self.form == "none" else 2 * self.m * self.k * self.n

    def expected_ms(self):
        """Of gather and GEMM one after the other, on an H200."""
        return self.flop() / FLOPS_A_MS[self.dtype] + self.shard_bytes() * (self.ranks - 1) / BYTES_A_MS

    def title(self):
        shape = (self.m, self.k) if self.form == "none" else (self.m, self.k, self.n)
        words = [f"{self.number}: {self.form} {','.join(map(str, shape))} {self.dtype}"]
        words += ["event"] * self.event + ["barrier"] * self.barrier
        return " ".join(words + [f"fresh ({self.kept} kept)"] * self.fresh)


def log_uniform(source, least, most):
    return math.exp(source.uniform(math.log(least), math.log(most)))


def size(source, limits, granule):
    return max(granule, round(log_uniform(source, limits.least, limits.most) / granule) * granule)


def draw_one(source, number, ranks, limits, forms, barriers):
    form, granule = forms[number % len(forms)], source.choice(GRANULES)
    m, k, n = (size(source, limits, granule) for _ in range(3))
    step = math.lcm(ranks, granule)
    if form == "weight":
        n = max(step, n // step * step)
    else:
        m = max(step, m // step * step)
    fresh = source.random() < 0.5
    return Row(
        number,
        ranks,
        form,
        m,
        k,
        n,
        source.choice(list(ELEMENT_BYTES)),
        source.random() < 0.5,
        source.random() < 0.5 and barriers,
        fresh,
        source.randrange(3) if fresh else 0,
    )


def draw(count, seed, ranks, limits, forms=USUAL, barriers=True):
    """`count` rows of the forms in turn, within the limits; those beyond are drawn anew. The same for the
    same arguments."""
    source, rows = random.Random(seed), []
    while len(rows) < count:
        row = draw_one(source, len(rows), ranks, limits, forms, barriers)
        if row.bytes() <= limits.bytes and row.expected_ms() <= limits.ms:
            rows.append(row)
    return rows
