# SPDX-License-Identifier: Apache-2.0
"""The models of bench/models: PyTorch programs as they are written without slipring.

Each is made with Sizes on a mesh of all ranks, from fixed seeds, and has step(), which returns the
loss of this rank's part, and `parameters`, how many this rank holds.
"""

import collections
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(os.path.dirname(os.path.dirname(HERE)), "tests", "gpu"))

import torch_tp
from torch_rank import accumulate

Sizes = collections.namedtuple("Sizes", "layers hidden inner head tokens batch")


def of_rank(whole, dimension):
    """This rank's part of what is the same on all of them."""
    return whole.chunk(dist.get_world_size(), dimension)[dist.get_rank()].contiguous()


class TensorParallel:
    """Blocks of torch.distributed.tensor.parallel (tests/gpu/torch_tp.py): the activations lie in parts
    of the sequence between the blocks, and are gathered in front of attention and MLP."""

    def __init__(self, sizes, mesh, device):
        torch.manual_seed(7)
        with torch.device(device):
            blocks = [torch_tp.Block(sizes.hidden, sizes.head).bfloat16() for _ in range(sizes.layers)]
            shape = (sizes.batch, sizes.tokens, sizes.hidden)
            self.x, self.target = of_rank(torch.randn(shape).bfloat16(), 1), of_rank(torch.randn(shape), 1)
        self.model = torch.nn.Sequential(*(torch_tp.parallel(block, mesh) for block in blocks))
        self.parameters = sum(one.to_local().numel() for one in self.model.parameters())

    def loss(self):
        return F.mse_loss(self.model(self.x).float(), self.target)


class TensorParallelForward(TensorParallel):
    def step(self):
        with torch.no_grad():
            return self.loss()


class TensorParallelTraining(TensorParallel):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self):
        loss = self.loss()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class FullyShard:
    """FSDP2: each block's parameters are gathered in front of it, and again for the backward pass."""

    def __init__(self, sizes, mesh, device):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        torch.manual_seed(7)
        with torch.device(device):
            blocks = [torch_tp.Block(sizes.hidden, sizes.head) for _ in range(sizes.layers)]
            shape = (dist.get_world_size(), sizes.batch, sizes.tokens, sizes.hidden)
            self.x, self.target = (of_rank(torch.randn(shape).bfloat16(), 0)[0] for _ in range(2))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        self.model = fully_shard(torch.nn.Sequential(*blocks), mesh=mesh, mp_policy=policy)
        self.parameters = sum(one.to_local().numel() for one in self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self):
        loss = F.mse_loss(self.model(self.x).float(), self.target.float())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


# Tensor parallelism with asynchronous weight gradients, by hand, as Megatron does it.


def gather(part, group, async_op=False):
    whole = torch.empty((part.shape[0] * dist.get_world_size(), part.shape[1]), dtype=part.dtype, device=part.device)
    return whole, dist.all_gather_into_tensor(whole, part, group=group, async_op=async_op)


def scatter_sum(whole, group, async_op=False):
    part = torch.empty(
        (whole.shape[0] // dist.get_world_size(), whole.shape[1]), dtype=whole.dtype, device=whole.device
    )
    return part, dist.reduce_scatter_tensor(part, whole, group=group, async_op=async_op)


class ColumnLinear(torch.autograd.Function):
    """F.linear of the gathered sequence with this rank's rows of the weight. The backward pass gathers
    the sequence again, beside the product that gives the gradient of the activations, and sums that
    gradient over the ranks beside the one that gives the weight's."""

    @staticmethod
    def forward(ctx, part, weight, main_grad, group):
        ctx.save_for_backward(part, weight)
        ctx.main_grad, ctx.group = main_grad, group
        return F.linear(gather(part, group)[0], weight)

    @staticmethod
    def backward(ctx, grad):
        part, weight = ctx.saved_tensors
        whole, gathered = gather(part, ctx.group, async_op=True)
        grad_whole = grad @ weight
        gathered.wait()
        grad_part, summed = scatter_sum(grad_whole, ctx.group, async_op=True)
        accumulate(ctx.main_grad, grad, whole)
        summed.wait()
        return grad_part, None, None, None


class RowLinear(torch.autograd.Function):
    """F.linear with this rank's columns of the weight, summed over the ranks; each keeps its part."""

    @staticmethod
    def forward(ctx, x, weight, main_grad, group):
        ctx.save_for_backward(x, weight)
        ctx.main_grad, ctx.group = main_grad, group
        return scatter_sum(F.linear(x, weight), group)[0]

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        whole, _ = gather(grad.contiguous(), ctx.group)
        grad_x = whole @ weight
        accumulate(ctx.main_grad, whole, x)
        return grad_x, None, None, None


class AsyncBlock:
    """A transformer block with one product for q, k and v and one for gate and up, on a sequence of one
    batch. Its weights do not belong to autograd: their gradients are in fp32, beside them."""

    def __init__(self, sizes, group, device):
        self.sizes, self.group = sizes, group
        ranks, hidden, inner = dist.get_world_size(), sizes.hidden, sizes.inner
        shapes = {
            "qkv": (3 * hidden // ranks, hidden),
            "out": (hidden, hidden // ranks),
            "up": (2 * inner // ranks, hidden),
            "down": (hidden, inner // ranks),
        }
        self.weights = {
            name: (torch.randn(shape, device=device) * shape[1] ** -0.5).bfloat16() for name, shape in shapes.items()
        }
        self.main_grads = {name: torch.zeros(shape, device=device) for name, shape in shapes.items()}

    def linear(self, function, name, x):
        return function.apply(x, self.weights[name], self.main_grads[name], self.group)

    def attention(self, x):
        qkv = self.linear(ColumnLinear, "qkv", x)
        q, k, v = (part.view(1, qkv.shape[0], -1, self.sizes.head).transpose(1, 2) for part in qkv.chunk(3, 1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linear(RowLinear, "out", y.transpose(1, 2).reshape(qkv.shape[0], -1))

    def mlp(self, x):
        gate, up = self.linear(ColumnLinear, "up", x).chunk(2, 1)
        return self.linear(RowLinear, "down", F.silu(gate) * up)

    def __call__(self, x):
        shape = (self.sizes.hidden,)
        x = x + self.attention(F.layer_norm(x, shape))
        return x + self.mlp(F.layer_norm(x, shape))


class AsyncWeightGradients:
    def __init__(self, sizes, mesh, device):
        torch.manual_seed(7 + dist.get_rank())
        self.blocks = [AsyncBlock(sizes, mesh.get_group(), device) for _ in range(sizes.layers)]
        shape = (sizes.tokens // dist.get_world_size(), sizes.hidden)
        self.x, self.target = torch.randn(shape, device=device).bfloat16(), torch.randn(shape, device=device)
        self.x.requires_grad_()  # so that the first block has a backward pass
        self.parameters = sum(one.numel() for block in self.blocks for one in block.weights.values())

    def step(self):
        y = self.x
        for block in self.blocks:
            y = block(y)
        loss = F.mse_loss(y.float(), self.target)
        loss.backward()
        self.x.grad = None
        for block in self.blocks:
            for name, weight in block.weights.items():
                weight.add_(block.main_grads[name], alpha=-1e-2)
                block.main_grads[name].zero_()
        return loss.detach()


MODELS = {
    "tp-forward": TensorParallelForward,
    "tp-train": TensorParallelTraining,
    "tp-async-wgrad": AsyncWeightGradients,
    "fsdp2": FullyShard,
}
