# SPDX-License-Identifier: Apache-2.0
"""What the programs here share: options, the ranks of the environment, the loop of steps, and what it writes.

A program defines sizes and a step, and calls drive(). RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are in
the environment. PREFIX.rankN.json has of this rank: `losses` of all steps as float.hex, `blocks`: ms of a step in each
block of steps behind step `settle`, with one synchronisation a block, `ms` their median, `issued`: the wall clock when
each step had been issued, `marks`: wall and monotonic clock when step `settle` and the last one had ended on the
device, and `counters`: slipring's at the begin and at these two marks, or null where it is not loaded. With --trace N,
PREFIX.rankN.trace.json.gz has N more steps as PyTorch's profiler saw them.

Exit status: 0, 1 when the program failed, 77 when what it needs is not installed.
"""
import argparse
import faulthandler
import json
import os
import statistics
import sys
import time
import traceback

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "..", "bench", "peerlib"))

import cores
import counters

STDOUT = sys.stdout
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))


def parser(text, sizes, one_gpu, cpu):
    """Options of every program, and one for each of `sizes`; `one_gpu` and `cpu` are other sizes for these."""
    p = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--settle", type=int, default=50, help="steps before anything is judged")
    p.add_argument("--block", type=int, default=10, help="steps behind those between two synchronisations")
    p.add_argument("--cool", type=float, default=0, metavar="S", help="rest before each of these blocks: at the limit of its power a "
                   "device that waits less has a slower clock")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", metavar="PREFIX", help="the results, in PREFIX.rankN.json")
    p.add_argument("--trace", type=int, default=0, metavar="N", help="N more steps under PyTorch's profiler")
    p.add_argument("--one-gpu", action="store_true", help="all ranks on device 0, over NCCL's sockets")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: small sizes over gloo")
    p.add_argument("--non-blocking", action="store_true", help="with non-blocking communicators, made at once")
    p.add_argument("--patience", type=int, default=0, metavar="S", help="after so long say where it is, and end")
    for name in sizes:
        p.add_argument("--" + name.replace("_", "-"), type=int, help=f"{sizes[name]}, {one_gpu.get(name, sizes[name])} "
                       f"with --one-gpu, {cpu.get(name, sizes[name])} with --device cpu")
    p.set_defaults(sizes=(sizes, one_gpu, cpu))
    return p


def parse(p, arguments=None):
    """The options; the environment of a rank that shares its GPU, before any library reads it."""
    o = p.parse_args(arguments)
    sizes, one_gpu, cpu = o.sizes
    others = cpu if o.device == "cpu" else one_gpu if o.one_gpu else {}
    for name, value in (sizes | others).items():
        if getattr(o, name) is None:
            setattr(o, name, value)
    if not 0 < o.settle < o.steps:
        p.error("--settle has to be between 0 and --steps")
    if o.one_gpu:  # NCCL refuses two ranks on one GPU of one host
        os.environ.update(NCCL_HOSTID=f"rank{RANK}", NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo")
        os.environ["LOCAL_RANK"] = "0"  # which libraries take for the device
    if o.device != "cpu":
        pin()
    if o.patience:
        faulthandler.dump_traceback_later(o.patience, exit=True)
    return o


def pin():
    """A share of the cores for each rank, the same on both sides: where the system puts them differs from run to run, and
    with it a step that the host bounds, by a third on H200."""
    shares = cores.divide(os.sched_getaffinity(0), int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    if shares:
        os.sched_setaffinity(0, {core for group in shares[LOCAL_RANK] for core in group})


def torch_start(o, deterministic=False):
    """Joins PyTorch's process group; returns the device. `deterministic`: strictly, but for what cuBLAS does itself."""
    import torch
    import torch.distributed as dist

    if o.device == "cpu":
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        device = torch.device("cpu")
    else:
        device = torch.device("cuda", 0 if o.one_gpu else LOCAL_RANK)
        torch.cuda.set_device(device)
        if o.non_blocking: # PyTorch reads it when it makes a group; with a device it makes the communicator at once
            os.environ["TORCH_NCCL_USE_COMM_NONBLOCKING"] = "1"
            dist.init_process_group("nccl", device_id=device)
        else:
            dist.init_process_group("nccl")
    torch.manual_seed(o.seed)
    if deterministic:
        strictly_deterministic(device)
    return device


def strictly_deterministic(device):
    """With warnings only, the backward passes of PyTorch's flash and memory-efficient attention still add up in the order in
    which their blocks come: it differs where processes share a GPU. PyTorch looks once, at its first product, whether
    cuBLAS was asked for reproducible results, and refuses products where it was not; slipring tries no ways where it was.
    So the variable is set for the first product alone."""
    import torch

    name = "CUBLAS_WORKSPACE_CONFIG"
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    asked = os.environ.get(name)
    os.environ.setdefault(name, ":4096:8")
    one = torch.ones(8, 8, device=device)
    torch.mm(one, one)
    if asked is None:
        del os.environ[name]


class MasterSGD:
    """SGD of bf16 weights by copies in fp32, so that small steps are not lost in rounding. Stable for an MLP."""

    def __init__(self, weights, inner):
        self.weights, self.rate = list(weights), 0.1 / inner
        self.masters = [one.detach().float() for one in self.weights]

    def step(self):
        import torch

        with torch.no_grad():
            for master, weight in zip(self.masters, self.weights):
                master.add_(weight.grad.float(), alpha=-self.rate)
                weight.copy_(master)
                weight.grad = None


def torch_end():
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()


def torch_drive(o, device, step, release=lambda: None, **about):
    """drive() for step(n) -> a loss on the device, release(), and the end of the process group."""
    import torch

    def synchronize():
        if device.type == "cuda":
            torch.cuda.synchronize()

    def floats(losses):
        return torch.stack([one.reshape(()).double() for one in losses]).tolist()

    about = {"torch": torch.__version__, **about}
    if device.type == "cuda":
        about |= {"device": torch.cuda.get_device_name(), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    drive(o, lambda n: step(n).detach().clone(), synchronize, floats, **about)
    if o.trace and o.json:
        trace(o, step, synchronize)
    release()
    torch_end()


def trace(o, step, synchronize):
    """Steps behind the last one, issued as before, in a file for chrome://tracing or Perfetto."""
    import torch

    with torch.profiler.profile() as profile:
        for n in range(o.steps, o.steps + o.trace):
            step(n)
        synchronize()
    profile.export_chrome_trace(f"{o.json}.rank{RANK}.trace.json.gz")


def mark():
    return {"wall": time.time(), "monotonic_ns": time.monotonic_ns()}


def drive(o, step, synchronize, floats, **about):
    """Makes the steps, step(n) -> its loss, which is not looked at before floats([...]) at the end; writes the JSON."""
    results, issued, blocks, marks = [], [], [], {}
    counted = {"begin": counters.read()}
    since = begin = 0
    for n in range(o.steps):
        results.append(step(n))
        issued.append(time.time())
        done = n + 1
        if done == o.settle or done > o.settle and (done == o.steps or (done - o.settle) % o.block == 0):
            synchronize()
            now = time.perf_counter()
            if done > o.settle:
                blocks.append(((now - begin) / (done - since) * 1e3, done - since))
            if done in (o.settle, o.steps):
                name = "settle" if done == o.settle else "end"
                marks[name], counted[name] = mark(), counters.read()
                now = time.perf_counter()
            if o.cool:
                time.sleep(o.cool)
                now = time.perf_counter()
            begin, since = now, done
    whole = [ms for ms, steps in blocks if steps == o.block] or [ms for ms, _ in blocks]
    losses = floats(results)
    out = {
        "program": os.path.splitext(os.path.basename(sys.argv[0]))[0], "rank": RANK, "ranks": RANKS,
        "steps": o.steps, "settle": o.settle, "seed": o.seed, "losses": [float(one).hex() for one in losses],
        "blocks": whole, "ms": statistics.median(whole), "issued": issued, "marks": marks,
        "counters": counted if counted["begin"] else None,
        "sizes": {name: getattr(o, name) for name in o.sizes[0]}, "about": about,
    }
    if o.json:
        path = f"{o.json}.rank{RANK}.json"
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(out, file)
        os.replace(path + ".new", path)
    moved = ""
    if out["counters"]:
        after = {name: counted["end"][name] - value for name, value in counted["settle"].items()}
        moved = (f", behind step {o.settle}: {after['substituted']} of {after['calls']} gathers moved, "
                 f"{after['fused']} GEMMs fused; "
                 f"{after['scatters_substituted']} of {after['scatters']} reduce-scatters, "
                 f"{after['reduces_substituted']} of {after['reduces']} all-reduces moved")
    words = f"rank {RANK}: loss {losses[0]:.6g} -> {losses[-1]:.6g}, {out['ms']:.3f} ms a step{moved}"
    print(words, file=STDOUT, flush=True)


def run(main):
    """main(), with a word on failure, and without waiting for ranks that may never come."""
    try:
        main()
    except ModuleNotFoundError as e:
        traceback.print_exc()
        end(77, f"rank {RANK}: {e.name} is not installed")
    except (SystemExit, KeyboardInterrupt):
        raise
    except Exception as e:  # noqa: BLE001 whatever it is: the other ranks must not wait for this one
        traceback.print_exc()
        end(1, f"rank {RANK}: {type(e).__name__}: {' '.join(str(e).split())[:300]}")
    faulthandler.cancel_dump_traceback_later()


def end(status, words):
    print(words, file=STDOUT, flush=True)
    sys.stderr.flush()
    os._exit(status)
