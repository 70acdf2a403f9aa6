# SPDX-License-Identifier: Apache-2.0
"""The kinds of programs that torch_programs.py draws, and what each has to compute.

A kind is a function of a Case. It queues its work and yields (what, got, wanted) for each value; all
are compared later, and must be equal. So the matrices hold -1, 0 and 1, half of them zeros: all sums
are whole numbers that even bf16 holds (the standard deviation of a sum of 4096 products is 32), and
products are exact in any order of summation and in any number of parts. What a gather must return is
made on the spot from the seeds of all ranks, without communication.

TWO_STREAMS use one process group, that is one communicator, on two streams that no event joins. NCCL
runs the calls of a communicator in the order of the calls all the same.
"""
import threading

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F

POISON = 7  # what receive buffers hold before a gather
ORDINARY, TWO_STREAMS = {}, {}  # name: function


def ordinary(function):
    ORDINARY[function.__name__] = function
    return function


def two_streams(function):
    TWO_STREAMS[function.__name__] = function
    return function


class Case:
    """One program: a shard of m x k on each rank, and a weight of n x k that is the same on all."""

    def __init__(self, world, number):
        draw = world.random
        self.world, self.number, self.random = world, number, draw
        self.dtype = draw.choice([torch.bfloat16, torch.float16, torch.float32])
        # Sums of all ranks' products stay below 256, up to which bf16 has all whole numbers: more is as good as impossible.
        depths = [k for k in (512, 1024, 2048, 4096) if k * world.ranks <= 8192]
        self.m, self.k = draw.choice([64, 256, 512, 1000, 2048, 4096]), draw.choice(depths)
        self.n = draw.choice([8, 256, 1024, 2048, 4096])
        self.rows = self.m * world.ranks
        self.x, self.weight = self.shard(world.rank), self.matrix(0, self.n, self.k)
        self.full = self.gathered()

    def matrix(self, salt, rows, columns):
        generator = torch.Generator(device=self.world.device)
        generator.manual_seed(self.number * 1000 + salt)
        two = torch.randint(0, 2, (2, rows, columns), dtype=torch.int8, device=self.world.device, generator=generator)
        return (two[0] + two[1] - 1).to(self.dtype)

    def shard(self, rank, which=0):
        return self.matrix(1 + rank + which * self.world.ranks, self.m, self.k)

    def gathered(self, which=0):
        return torch.cat([self.shard(rank, which) for rank in range(self.world.ranks)])

    def product(self, full, weight):
        return (full.float() @ weight.float().t()).to(self.dtype)

    def buffer(self, rows=None):
        return torch.full((rows or self.rows, self.k), POISON, device=self.world.device, dtype=self.dtype)

    def multiplied(self, recv):
        """The GEMM that most programs do with what they have gathered."""
        return "product", F.linear(recv, self.weight), self.product(self.full, self.weight)

    def a_stream(self):
        """A stream behind all that the current one has to do."""
        stream = self.random.choice(self.world.streams)
        stream.wait_stream(torch.cuda.current_stream())
        return stream

    def two_streams(self):
        pair = self.random.sample(self.world.streams, 2)
        for stream in pair:
            stream.wait_stream(torch.cuda.current_stream())
        return pair


def join(*streams):
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)


# --- one stream, or streams that events join ------------------------------------------------------------------------


@ordinary
def plain(case):
    recv = case.buffer()
    dist.all_gather_into_tensor(recv, case.x)
    yield case.multiplied(recv)
    yield "gathered", recv, case.full


@ordinary
def asynchronous(case):
    recv = case.buffer()
    work = dist.all_gather_into_tensor(recv, case.x, async_op=True)
    meanwhile = case.x * 2
    work.wait()
    yield case.multiplied(recv)
    yield "gathered", recv, case.full
    yield "meanwhile", meanwhile, case.x + case.x


@ordinary
def beside(case):
    recv, stream = case.buffer(), case.a_stream()
    with torch.cuda.stream(stream):
        dist.all_gather_into_tensor(recv, case.x)
    join(stream)
    yield "product", torch.matmul(recv, case.weight.t()), case.product(case.full, case.weight)
    yield "gathered", recv, case.full


@ordinary
def in_place(case):
    recv = case.buffer()
    own = recv[case.world.rank * case.m :][: case.m]
    own.copy_(case.x)
    dist.all_gather_into_tensor(recv, own)
    yield case.multiplied(recv)
    yield "gathered", recv, case.full


@ordinary
def lists(case):
    parts = [torch.full_like(case.x, POISON) for _ in range(case.world.ranks)]
    dist.all_gather(parts, case.x)
    recv = torch.cat(parts)
    yield case.multiplied(recv)
    yield "gathered", recv, case.full


@ordinary
def coalesced(case):
    recv, other, x = case.buffer(), case.buffer(), case.shard(case.world.rank, 1)
    with dist._coalescing_manager(device=case.world.device, async_ops=True) as group:
        dist.all_gather_into_tensor(recv, case.x)
        dist.all_gather_into_tensor(other, x)
    group.wait()
    yield case.multiplied(recv)
    yield "first", recv, case.full
    yield "second", other, case.gathered(1)


@ordinary
def several_products(case):
    recv, few = case.buffer(), case.weight[: max(1, case.n // 2)]
    dist.all_gather_into_tensor(recv, case.x)
    yield case.multiplied(recv)
    yield "second product", F.linear(recv, few), case.product(case.full, few)
    yield "gathered", recv, case.full


@ordinary
def bias(case):
    recv, bias = case.buffer(), case.matrix(99, 1, case.n)[0]
    dist.all_gather_into_tensor(recv, case.x)
    wanted = (case.full.float() @ case.weight.float().t() + bias.float()).to(case.dtype)
    yield "product", F.linear(recv, case.weight, bias), wanted


@ordinary
def three_dimensions(case):
    """As modules see it: sequence x batch x hidden."""
    recv = case.buffer()
    dist.all_gather_into_tensor(recv, case.x)
    product = F.linear(recv.view(case.rows // 2, 2, case.k), case.weight)
    yield "product", product.view(case.rows, case.n), case.product(case.full, case.weight)


@ordinary
def send_overwritten(case):
    recv = case.buffer()
    dist.all_gather_into_tensor(recv, case.x)
    case.x.fill_(99)
    yield case.multiplied(recv)
    yield "gathered", recv, case.full


@ordinary
def receive_overwritten(case):
    recv = case.buffer()
    dist.all_gather_into_tensor(recv, case.x)
    product = case.multiplied(recv)
    copy = recv.clone()
    recv.zero_()
    yield product
    yield "gathered", copy, case.full


@ordinary
def read_in_part(case):
    recv, row = case.buffer(), case.random.randrange(case.rows // 2)
    dist.all_gather_into_tensor(recv, case.x)
    rows = recv[row : row + 17].clone()
    yield case.multiplied(recv)
    yield "rows", rows, case.full[row : row + 17]


@ordinary
def read_by_host(case):
    recv, host = case.buffer(), torch.empty((case.rows, case.k), dtype=case.dtype, pin_memory=True)
    dist.all_gather_into_tensor(recv, case.x)
    host.copy_(recv, non_blocking=True)
    yield case.multiplied(recv)
    torch.cuda.current_stream().synchronize()
    yield "host's copy", host.to(case.world.device), case.full


@ordinary
def reduce_scattered(case):
    recv = case.buffer()
    dist.all_gather_into_tensor(recv, case.x)
    product = F.linear(recv, case.weight).float()
    own = torch.empty(case.m, case.n, device=case.world.device)
    dist.reduce_scatter_tensor(own, product)
    wanted = case.product(case.full, case.weight).float()[case.world.rank * case.m :][: case.m]
    yield "sum", own, wanted * case.world.ranks


@ordinary
def broadcast(case):
    recv = case.buffer()
    dist.all_gather_into_tensor(recv, case.x)
    copy = recv.clone() if case.world.rank == 0 else torch.full_like(recv, POISON)
    dist.broadcast(copy, 0)
    yield case.multiplied(recv)
    yield "copy of rank 0", copy, case.full


@ordinary
def freed_at_once(case):
    """The block goes to the next tensor while gather and GEMM are in flight."""
    recv = case.buffer()
    dist.all_gather_into_tensor(recv, case.x)
    product = case.multiplied(recv)
    del recv
    case.buffer().fill_(-5)
    yield product


@ordinary
def kept_buffer(case):
    recv = case.world.kept.setdefault((case.rows, case.k, case.dtype), case.buffer())
    dist.all_gather_into_tensor(recv, case.x)
    yield case.multiplied(recv)
    yield "gathered", recv.clone(), case.full


@ordinary
def weight_gradient(case):
    """The gathered matrix as the operand whose rows are summed over, as in a backward pass."""
    recv, gradient = case.buffer(), case.matrix(98, case.rows, 8)
    dist.all_gather_into_tensor(recv, case.x)
    yield "gradient", (gradient.t() @ recv).float(), (gradient.float().t() @ case.full.float()).to(case.dtype).float()
    yield case.multiplied(recv)


@ordinary
def both_gradients(case):
    """A backward pass: the gradient of a weight, which sums over what is gathered, then that of the input; or what reads the
    first one."""
    recv, gradient = case.buffer(), case.matrix(97, case.rows, 8)
    work = dist.all_gather_into_tensor(recv, case.x, async_op=case.random.random() < 0.5)
    if work:
        work.wait()
    of_weight = gradient.t() @ recv
    wanted = (gradient.float().t() @ case.full.float()).to(case.dtype)
    if case.random.random() < 0.3:
        yield "by the gradient", F.linear(recv, of_weight), case.product(case.full, wanted)
    else:
        yield case.multiplied(recv)
    yield "gradient", of_weight, wanted


@ordinary
def two_groups(case):
    recv, other, x = case.buffer(), case.buffer(), case.shard(case.world.rank, 1)
    one = dist.all_gather_into_tensor(recv, case.x, async_op=True)
    two = dist.all_gather_into_tensor(other, x, group=case.world.second_group, async_op=True)
    two.wait()
    product, full = F.linear(other, case.weight), case.gathered(1)
    one.wait()
    yield case.multiplied(recv)
    yield "first", recv, case.full
    yield "second", other, full
    yield "second product", product, case.product(full, case.weight)


@ordinary
def event_between(case):
    recv, stream, event = case.buffer(), case.a_stream(), torch.cuda.Event()
    dist.all_gather_into_tensor(recv, case.x)
    event.record()
    stream.wait_event(event)
    with torch.cuda.stream(stream):
        product = F.linear(recv, case.weight)
    join(stream)
    yield "product", product, case.product(case.full, case.weight)
    yield "gathered", recv, case.full


@ordinary
def transposed(case):
    recv = case.buffer()
    dist.all_gather_into_tensor(recv, case.x)
    turned = recv.t().contiguous()
    yield case.multiplied(recv)
    yield "transposed", turned, case.full.t()


# --- reduce-scatters of what a GEMM has made -------------------------------------------------------------------------


def contribution(case, rank):
    """What `rank` sends: rows of all ranks."""
    return case.product(case.matrix(50 + rank, case.rows, case.k), case.weight)


def scattered(case):
    """What this rank gets: the sum over ranks of its rows, rounded once."""
    own = slice(case.world.rank * case.m, (case.world.rank + 1) * case.m)
    return sum(contribution(case, rank)[own].float() for rank in range(case.world.ranks)).to(case.dtype)


def send(case, use):
    """Two in a row, as the second one's GEMM is expected to be followed by the call."""
    x = case.matrix(50 + case.world.rank, case.rows, case.k)
    for turn in range(2):
        yield f"scattered {turn}", use(F.linear(x, case.weight)), scattered(case)


def reduce_scatter(case, product):
    out = torch.full((case.m, case.n), POISON, device=case.world.device, dtype=case.dtype)
    dist.reduce_scatter_tensor(out, product)
    return out


@ordinary
def scatter_behind(case):
    yield from send(case, lambda product: reduce_scatter(case, product))


@ordinary
def scatter_functional(case):
    group = dist.group.WORLD
    yield from send(case, lambda product: functional.wait_tensor(functional.reduce_scatter_tensor(product, "sum", 0, group)))


@ordinary
def scatter_changed(case):
    """Something changes what the GEMM has made before it is sent."""

    def use(product):
        product.neg_()
        return reduce_scatter(case, product).neg_()

    yield from send(case, use)


@ordinary
def scatter_read(case):
    """What was sent is read and written behind the call."""
    for turn, (what, got, wanted) in enumerate(send(case, lambda product: (reduce_scatter(case, product), product.clone(), product.zero_()))):
        yield what, got[0], wanted
        yield f"made {turn}", got[1], contribution(case, case.world.rank)


@ordinary
def gather_functional(case):
    recv = functional.wait_tensor(functional.all_gather_tensor(case.x, 0, dist.group.WORLD))
    yield case.multiplied(recv)
    yield "gathered", recv, case.full


class Column(torch.autograd.Function):
    """A layer of sequence parallelism: gathered forward, reduce-scattered backward, by the thread of autograd."""

    @staticmethod
    def forward(ctx, x, weight):
        full = torch.empty(x.shape[0] * dist.get_world_size(), x.shape[1], device=x.device, dtype=x.dtype)
        dist.all_gather_into_tensor(full, x)
        ctx.save_for_backward(full, weight)
        return F.linear(full, weight)

    @staticmethod
    def backward(ctx, gradient):
        full, weight = ctx.saved_tensors
        own = torch.full((full.shape[0] // dist.get_world_size(), full.shape[1]), POISON, device=full.device, dtype=full.dtype)
        work = dist.reduce_scatter_tensor(own, gradient @ weight, async_op=True)
        of_weight = gradient.t() @ full
        work.wait()
        return own, of_weight


@ordinary
def trained(case):
    x, ranks = case.x.clone().requires_grad_(), range(case.world.ranks)
    gradients = [case.matrix(80 + rank, case.rows, case.n) for rank in ranks]
    for gradient in gradients:  # sums that bf16 holds, as of the depths
        gradient[:, 8192 // len(ranks) :] = 0
    product = Column.apply(x, case.weight)
    product.backward(gradients[case.world.rank])
    own = slice(case.world.rank * case.m, (case.world.rank + 1) * case.m)
    parts = [(gradient.float() @ case.weight.float()).to(case.dtype)[own].float() for gradient in gradients]
    yield "product", product.detach(), case.product(case.full, case.weight)
    yield "gradient", x.grad, sum(parts).to(case.dtype)


# --- graphs and threads ----------------------------------------------------------------------------------------------


@ordinary
def graph(case):
    """A layer in a graph that is launched with other data each time."""
    x, recv = case.x.clone(), case.buffer()
    work = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(work, capture_error_mode="thread_local"):
        dist.all_gather_into_tensor(recv, x)
        product = F.linear(recv, case.weight)
    for which in range(3):
        x.copy_(case.shard(case.world.rank, which))
        recv.fill_(POISON)
        work.replay()
        full = case.gathered(which)
        yield f"replayed product {which}", product.clone(), case.product(full, case.weight)
        yield f"replayed {which}", recv.clone(), full
    case.world.graphs = [*case.world.graphs[-3:], work]  # some go while others are in flight


@ordinary
def by_another_thread(case):
    """Another thread multiplies what this one has gathered, on the same stream; nothing but the host orders the two."""
    recv, results = case.buffer(), []
    stream = torch.cuda.current_stream()

    def multiply():
        torch.cuda.set_device(case.world.device)
        with torch.cuda.stream(stream):
            results.append(case.multiplied(recv))

    dist.all_gather_into_tensor(recv, case.x)
    thread = threading.Thread(target=multiply)
    thread.start()
    thread.join()
    yield from results
    yield "gathered", recv, case.full


# --- one group on two streams that no event joins -------------------------------------------------------------------


def read_all(case, recv):
    """One of the other collectives, which reads all of `recv` on the current stream. Returns (what, got, wanted), where
    `wanted` is a function, to be called when the streams have been joined."""
    world, ranks = case.world, case.world.ranks
    own = slice(world.rank * case.m, (world.rank + 1) * case.m)
    which = case.random.choice(["broadcast", "all_reduce", "reduce_scatter", "all_to_all"])
    if which == "broadcast":
        root = case.random.randrange(ranks)
        got = recv if world.rank == root else torch.empty_like(recv)
        dist.broadcast(got, root)
        return which, got, lambda: case.full
    if which == "all_reduce":
        dist.all_reduce(recv)
        return which, recv, lambda: case.full * ranks
    got = torch.empty_like(case.x) if which == "reduce_scatter" else torch.empty_like(recv)
    if which == "reduce_scatter":
        dist.reduce_scatter_tensor(got, recv)
        return which, got, lambda: case.full[own] * ranks
    dist.all_to_all_single(got, recv)
    return which, got, lambda: case.full[own].repeat(ranks, 1)


def write_shard(case, x):
    """One of the other collectives, which writes all of `x` on the current stream. Returns what a gather of `x` then gives."""
    ranks = case.world.ranks
    if case.random.random() < 0.5:
        root = case.random.randrange(ranks)
        dist.broadcast(x, root)
        return lambda: case.shard(root).repeat(ranks, 1)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)  # keeps the values small
    return lambda: torch.stack([case.shard(rank) for rank in range(ranks)]).amax(0).repeat(ranks, 1)


@two_streams
def gather_then_other(case):
    recv, (one, two) = case.buffer(), case.two_streams()
    with torch.cuda.stream(one):
        dist.all_gather_into_tensor(recv, case.x)
    with torch.cuda.stream(two):
        what, got, wanted = read_all(case, recv)
    join(one, two)
    yield what, got, wanted()


@two_streams
def other_then_gather(case):
    recv, (one, two) = case.buffer(), case.two_streams()
    with torch.cuda.stream(one):
        wanted = write_shard(case, case.x)
    with torch.cuda.stream(two):
        dist.all_gather_into_tensor(recv, case.x)
        product = F.linear(recv, case.weight)
    join(one, two)
    yield "gathered", recv, wanted()
    yield "product", product, case.product(wanted(), case.weight)


@two_streams
def gather_then_other_of_the_group(case):
    """The other collective runs on the stream of the process group, which waits only for the current one."""
    recv, (one, _) = case.buffer(), case.two_streams()
    with torch.cuda.stream(one):
        dist.all_gather_into_tensor(recv, case.x)
    copy = recv if case.world.rank == 0 else torch.empty_like(recv)
    work = dist.broadcast(copy, 0, async_op=True)
    work.wait()
    join(one)
    yield "broadcast", copy, case.full
    yield case.multiplied(copy)


@two_streams
def gather_of_the_group_then_other(case):
    recv, (one, _) = case.buffer(), case.two_streams()
    work = dist.all_gather_into_tensor(recv, case.x, async_op=True)
    with torch.cuda.stream(one):
        what, got, wanted = read_all(case, recv)
    work.wait()
    join(one)
    yield what, got, wanted()


@two_streams
def other_then_gather_of_the_group(case):
    recv, (one, _) = case.buffer(), case.two_streams()
    with torch.cuda.stream(one):
        wanted = write_shard(case, case.x)
    work = dist.all_gather_into_tensor(recv, case.x, async_op=True)
    work.wait()
    yield "product", F.linear(recv, case.weight), case.product(wanted(), case.weight)
    join(one)
    yield "gathered", recv, wanted()


@two_streams
def alternating(case):
    """Gathers in turn on two streams and on that of the group, each with its GEMM; one receive buffer is gathered twice."""
    streams, bound = case.two_streams(), []
    again = case.buffer()
    for turn in range(3):
        recv, x = case.buffer(), case.shard(case.world.rank, turn)
        stream = streams[turn % 2]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work = dist.all_gather_into_tensor(recv, x, async_op=turn == 2)
            dist.all_gather_into_tensor(again, x)
            if work:
                work.wait()
            bound.append((turn, recv, F.linear(recv, case.weight), x))
    join(*streams)
    for turn, recv, product, _ in bound:
        full = case.gathered(turn)
        yield f"gathered {turn}", recv, full
        yield f"product {turn}", product, case.product(full, case.weight)
    yield "gathered last", again, case.gathered(2)


@two_streams
def gather_of_the_gathered(case):
    """The second gather sends what the first one receives."""
    recv, twice, (one, two) = case.buffer(), case.buffer(case.rows * case.world.ranks), case.two_streams()
    with torch.cuda.stream(one):
        dist.all_gather_into_tensor(recv, case.x)
    with torch.cuda.stream(two):
        dist.all_gather_into_tensor(twice, recv)
        product = F.linear(twice, case.weight)
    join(one, two)
    full = case.full.repeat(case.world.ranks, 1)
    yield "gathered twice", twice, full
    yield "product", product, case.product(full, case.weight)
