"""What torch.distributed does over the backend "gannet", each result checked; on any number of ranks from two. tests/frameworks/backend
starts it. With --killed the last rank kills itself, and the others have to learn which it was; with --stopped OPERATION RANKS those ranks,
separated by commas, stop by SIGSTOP, and all others have to raise within 10 s, naming one of them and its host; with --unwaited all end in
the midst of operations; with --exhausted no thread can be made. --cuda: with tensors on GPUs; --device LIBRARY: on the device that is made up by
device.cpp."""
import datetime
import math
import os
import resource
import signal
import sys
import threading
import time
import types

import torch
import torch.distributed as dist

import gannet_torch

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.int8, torch.int16)


def reductions(rank, size):
    for dtype in TYPES:
        for op, wanted in (
            (dist.ReduceOp.SUM, size * (size + 1) // 2),
            (dist.ReduceOp.MAX, size),
            (dist.ReduceOp.MIN, 1),
            (dist.ReduceOp.PRODUCT, math.factorial(size)),
        ):
            t = torch.full((1001,), rank + 1, dtype=dtype)
            dist.all_reduce(t, op=op)
            assert (t == wanted).all(), (dtype, op, t[0])
    t = torch.full((3,), float(rank))
    dist.all_reduce(t, op=dist.ReduceOp.AVG)
    assert (t == (size - 1) / 2).all()
    t = torch.tensor([1 << rank])
    dist.all_reduce(t, op=dist.ReduceOp.BOR)
    assert t.item() == (1 << size) - 1
    t = torch.full((3,), complex(rank, 1))
    dist.all_reduce(t)
    assert (t == complex(size * (size - 1) / 2, size)).all()
    t = torch.full((4,), float(rank))
    dist.reduce(t, size - 1)
    assert rank < size - 1 or (t == size * (size - 1) / 2).all()
    t = torch.full((4, 5), float(rank)).t()  # not contiguous
    dist.all_reduce(t)
    assert (t == size * (size - 1) / 2).all()
    t = torch.full((20_000_000,), 1.0)  # longer than the staging memory
    dist.all_reduce(t)
    assert (t == size).all()


def moves(rank, size):
    t = torch.tensor([rank])
    out = [torch.zeros_like(t) for _ in range(size)]
    dist.all_gather(out, t)
    assert [int(o) for o in out] == list(range(size))
    out = torch.empty(3 * size)
    dist.all_gather_into_tensor(out, torch.full((3,), float(rank)))
    assert out.tolist() == [float(r) for r in range(size) for _ in range(3)]
    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * size))
    assert out.tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)]
    dist.reduce_scatter(out, [torch.full((2,), float(r)) for r in range(size)])
    assert (out == size * rank).all()
    t = torch.tensor([float(rank)])
    dist.broadcast(t, size - 1)
    assert t.item() == size - 1
    out = torch.empty(size)
    dist.all_to_all_single(out, torch.arange(float(size)) + 10 * rank)
    assert out.tolist() == [10.0 * r + rank for r in range(size)]
    out = torch.empty(sum(range(1, size + 1)))
    dist.all_to_all_single(out, torch.full((size * (rank + 1),), float(rank)), [r + 1 for r in range(size)], [rank + 1] * size)
    assert out.tolist() == [float(r) for r in range(size) for _ in range(r + 1)]
    out = [torch.empty(2) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((2,), float(rank)), out, 0)
    assert rank or [o[0].item() for o in out] == list(range(size))
    t = torch.empty(2)
    dist.scatter(t, [torch.full((2,), float(r)) for r in range(size)] if rank == 0 else None, 0)
    assert (t == rank).all()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]


def blocks(rank, size):
    """What FSDP calls, of short and long tensors, which go another way: into and from one tensor, also where the input is a part of the output."""
    for each in (5, 20_001, 1_000_003):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8):
            mine = (torch.arange(each) % 50 + rank).to(dtype)
            wanted = torch.cat([(torch.arange(each) % 50 + r).to(dtype) for r in range(size)])
            out = torch.zeros(size * each, dtype=dtype)
            dist.all_gather_into_tensor(out, mine)
            assert torch.equal(out, wanted), (each, dtype)
            out.zero_()
            out.narrow(0, rank * each, each).copy_(mine)
            dist.all_gather_into_tensor(out, out.narrow(0, rank * each, each))
            assert torch.equal(out, wanted), (each, dtype, "in place")
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
                out = torch.zeros(each, dtype=dtype)
                dist.reduce_scatter_tensor(out, wanted + rank, op=op)
                part = wanted.view(size, each)[rank]
                right = part * size + sum(range(size)) if op == dist.ReduceOp.SUM else part + size - 1
                assert torch.equal(out, right.to(dtype)), (each, dtype, op)
        out = torch.zeros(each)
        dist.reduce_scatter_tensor(out, torch.full((size * each,), float(rank)), op=dist.ReduceOp.AVG)
        assert (out == (size - 1) / 2).all()
        source = torch.full((size * each,), float(rank))
        dist.reduce_scatter_tensor(source.narrow(0, rank * each, each), source)  # into a part of the input
        assert (source.narrow(0, rank * each, each) == size * (size - 1) / 2).all()
        # on one rank the input shares memory with the output, on the others it does not
        memory = torch.full((size * each + each,), float(rank))
        out, mine = memory.narrow(0, 0, size * each), memory.narrow(0, size * each - (each // 2 if rank == 0 else 0), each)
        dist.all_gather_into_tensor(out, mine)
        assert torch.equal(out, torch.arange(float(size)).repeat_interleave(each)), each
        source = torch.full((size * each,), float(rank))
        out = source.narrow(0, 1, each) if rank == 0 else torch.empty(each)
        dist.reduce_scatter_tensor(out, source)
        assert (out == size * (size - 1) / 2).all()


def shared(rank, size):
    """Tensors in memory that ranks reach directly, of several lengths and types, parts of them, in the world and in a group."""
    for group in (dist.group.WORLD, dist.new_group(list(range(size)))):
        pending = dist.all_reduce(torch.ones(1 << 20), group=group, async_op=True)
        for shape, dtype in (((7,), torch.float32), ((300, 500), torch.float64), ((3_000_000,), torch.int32), ((0,), torch.float32)):
            t = gannet_torch.empty(shape, dtype=dtype, group=group)
            assert t.shape == shape and t.dtype == dtype and (t == 0).all()
            for i in range(3):
                t.fill_(rank + i)
                dist.all_reduce(t, group=group)
                assert (t == size * (size - 1) // 2 + size * i).all(), (shape, i)
        t = gannet_torch.empty(200_000, group=group)
        t.fill_(rank)
        half = t.narrow(0, 100_000, 100_000)
        dist.all_reduce(half, group=group)
        assert (half == size * (size - 1) / 2).all() and (t[:100_000] == rank).all()
        dist.broadcast(t, size - 1, group=group)
        assert (t[:100_000] == size - 1).all()
        pending.wait()
    for count in (1 << 61, -1):
        try:
            gannet_torch.empty(count, dtype=torch.float64)
            raise AssertionError(f"a tensor of {count} elements")
        except (RuntimeError, ValueError):
            pass
    # on one rank alone
    memory = gannet_torch.empty(size * 100_000)
    out = memory if rank == 0 else torch.empty(size * 100_000)
    dist.all_gather_into_tensor(out, torch.full((100_000,), float(rank)))
    assert torch.equal(out, torch.arange(float(size)).repeat_interleave(100_000))
    dist.all_gather_into_tensor(out, out.narrow(0, rank * 100_000, 100_000))
    assert torch.equal(out, torch.arange(float(size)).repeat_interleave(100_000))
    out = memory[:100_000] if rank == 0 else torch.empty(100_000)
    dist.reduce_scatter_tensor(out, torch.full((size * 100_000,), float(rank)))
    assert (out == size * (size - 1) / 2).all()


def threads(rank, size):
    """Threads that each wait for operations of a group of their own, while others are in flight: whoever waits does the work of all."""
    alike = [dist.new_group(list(range(size))) for _ in range(3)]
    failed = []

    def work(which):
        try:
            for i in range(60):
                later = dist.all_reduce(torch.ones(1 << 14), group=alike[which], async_op=True) if i % 3 == which else None
                t = torch.full((1 << (i + which) % 16,), float(which + i))
                dist.all_reduce(t, group=alike[which])
                assert (t == size * (which + i)).all()
                if later and i % 2:
                    later.wait()
        except Exception as e:
            failed.append(e)

    running = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in running:
        t.start()
    for t in running:
        t.join()
    assert not failed, failed
    # by turns: what is waited for at once, and what is not
    for i in range(100):
        t = torch.ones(64)
        w = dist.all_reduce(t, async_op=True)
        if i % 2:
            time.sleep(0.0002 * (i % 5))
        s = torch.ones(64)
        dist.all_reduce(s)
        assert (s == size).all() and (t == size).all()  # in their order
        w.wait()


def messages(rank, size):
    following, before = (rank + 1) % size, (rank - 1) % size
    for tag in (0, 7):
        t = torch.empty(5)
        work = dist.isend(torch.full((5,), float(rank + tag)), following, tag=tag)
        dist.recv(t, before, tag=tag)
        work.wait()
        assert (t == before + tag).all()
    ops = [dist.P2POp(dist.isend, torch.full((9,), float(rank)), following), dist.P2POp(dist.irecv, torch.empty(9), before)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert (ops[1].tensor == before).all()


def any_source(rank, size):
    """Each rank but the first sends to it; the first learns from whom it received. In the world, and in a group with other numbers."""
    backwards = dist.new_group(list(range(size))[:0:-1]) if size > 2 else None
    t, seen = torch.empty(1000), []
    for _ in range(10):
        if rank:
            dist.send(torch.full((1000,), float(rank)), 0)
    # a rank may be some messages ahead of another
    for _ in range(10 * (size - 1) if rank == 0 else 0):
        seen.append(dist.recv(t))
        assert (t == seen[-1]).all()
    assert rank or sorted(seen) == sorted(10 * list(range(1, size)))
    if backwards and rank:
        if rank == size - 1:
            t = torch.empty(3)
            assert dist.recv(t, group=backwards, tag=3) in range(1, size - 1)
            for _ in range(size - 3):
                dist.irecv(t, group=backwards, tag=3).wait()
        else:
            dist.send(torch.ones(3), size - 1, group=backwards, tag=3)


def handles(rank, size):
    """Work handles and futures, as DDP's hooks and FSDP use them."""
    t = torch.full((1 << 18,), float(rank))
    work = dist.all_reduce(t, async_op=True)
    doubled = work.get_future().then(lambda f: f.value()[0] * 2)
    assert work.wait() and work.is_completed() and work.is_success() and work.get_future().done()
    assert (doubled.wait() == size * (size - 1)).all()
    assert work.result()[0].data_ptr() == t.data_ptr()
    # a call that is wrong raises where it is made, and harms no later one
    for wrong in (
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), op=dist.ReduceOp.MAX),
        lambda: dist.isend(torch.ones(2), (rank + 1) % size, tag=1 << 20),
        lambda: dist.all_gather([torch.ones(2), torch.ones(3)], torch.ones(2)),
        lambda: dist.all_to_all([torch.ones(1)] * size, [torch.ones(1, dtype=torch.float64)] * size),
    ):
        try:
            wrong()
        except (RuntimeError, ValueError):
            continue
        raise AssertionError("a wrong call was taken")
    if rank == 0:
        late = dist.irecv(t, 1)
        try:
            late.wait(datetime.timedelta(milliseconds=20))
            raise AssertionError("a wait without a message has ended")
        except RuntimeError as e:
            assert "timed out" in str(e).lower(), e
    dist.barrier()
    if rank == 1:
        dist.send(torch.full((1 << 18,), 5.0), 0)
    if rank == 0:
        late.wait()
        assert (t == 5).all()
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300), bucket_cap_mb=0.01)
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    ddp(torch.full((1, 300), float(rank))).sum().backward()
    assert torch.allclose(ddp.module.weight.grad, torch.tensor((size - 1) / 2), atol=1e-2)


def callbacks(rank, size):
    """Functions that a future calls may wait for operations in turn, each within another, as PyTorch's PowerSGD hook does. Those of a group
    have an order."""

    def deeper(group, depth):
        def then(future):
            total = future.value()[0]
            again = dist.all_reduce(total / size, group=group, async_op=True).get_future()
            return again.then(deeper(group, depth - 1)).wait() if depth else again.wait()[0]

        return then

    chains = []
    for i, group in enumerate([dist.group.WORLD, dist.new_group(list(range(size))), dist.new_group(list(range(size)))]):
        first = dist.all_reduce(torch.full((100,), float(rank + i)), group=group, async_op=True).get_future()
        chains.append(first.then(deeper(group, 4)))
    for i, chain in enumerate(chains):
        assert (chain.wait() == size * (size - 1) / 2 + size * i).all()
    work = dist.all_reduce(torch.ones(5), async_op=True)
    work.wait()
    assert work.get_future().then(lambda f: f.value()[0].sum()).wait() == 5 * size  # taken after the end
    failing = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(lambda f: 1 // 0)
    try:
        failing.wait()
        raise AssertionError("an error in a function of a future is lost")
    except RuntimeError as e:
        assert "ZeroDivisionError" in str(e), e

    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    torch.manual_seed(1)
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(200, 200))  # one bucket
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(5):
        ddp.zero_grad()
        ddp(torch.full((1, 200), float(rank))).sum().backward()
    # these gradients are of rank 1, so that the hook loses nothing
    assert torch.allclose(ddp.module.weight.grad, torch.tensor((size - 1) / 2), atol=1e-3)

    # Several buckets, whose functions run at different times on each rank: what they start is in one order on all.
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(60, 60) for _ in range(8)]), bucket_cap_mb=0.005)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)

    def late(state, bucket):
        time.sleep(0.001 * ((bucket.index() * 7 + rank * 5) % 4))
        return powerSGD_hook.powerSGD_hook(state, bucket)

    ddp.register_comm_hook(state, late)
    for i in range(20):
        ddp.zero_grad()
        ddp(torch.full((1, 60), float(rank + i))).sum().backward()
        grads = torch.cat([p.grad.flatten() for p in ddp.parameters()])
        everyone = [torch.empty_like(grads) for _ in range(size)]
        dist.all_gather(everyone, grads)
        assert all(torch.equal(grads, other) for other in everyone), i
    # a function that waits for what was submitted later
    first, second = in_flight(rank, size, dist.group.WORLD, lambda f, later: later.wait() and f.value()[0].sum() + later.result()[0].sum())
    assert first.wait() == 17 * size
    # by a future, which nobody can see: it ends with the group's timeout, on all ranks
    group = dist.new_group(list(range(size)), timeout=datetime.timedelta(seconds=3))
    first, second = in_flight(rank, size, group, lambda f, later: later.get_future().wait())
    for wait in (first.wait, second.wait, lambda: dist.all_reduce(torch.ones(1), group=group)):
        try:
            wait()
        except RuntimeError as e:
            assert "held back" in str(e), e
            continue
        raise AssertionError("what is held back for ever does not raise")

    def slow(future, later):
        time.sleep(5.5 * (rank == 1))
        again = torch.ones(7)
        dist.all_reduce(again)
        return again.sum()

    if size == 2:  # on one rank it takes longer than on the others: in the same order for all that
        first, second = in_flight(rank, size, dist.group.WORLD, slow)
        second.wait()
        assert first.wait() == 7 * size and (second.result()[0] == size).all()


def in_flight(rank, size, group, function):
    """An operation whose future calls function(future, later), and a later one, in flight on all ranks until that has been said."""
    said = threading.Event()
    if rank == 0:
        hold = dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future().then(lambda f: said.wait(60))
    for other in range(1, size) if rank == 0 else [rank]:  # none takes part before the first has told it to
        dist.send(torch.ones(1), other) if rank == 0 else dist.recv(torch.ones(1), 0)
    if rank:
        dist.all_reduce(torch.ones(1), group=group, async_op=True)
    first, later = (dist.all_reduce(torch.ones(n), group=group, async_op=True) for n in (10, 7))
    result = first.get_future().then(lambda f: function(f, later))
    for other in range(1, size) if rank == 0 else [rank]:
        dist.recv(torch.ones(1), other) if rank == 0 else dist.send(torch.ones(1), 0)
    if rank == 0:
        said.set()
        hold.wait()
    return result, later


def forked(rank, size):
    """A process that a rank has forked, as a loader of data does, is refused and ends; the rank goes on."""
    child = os.fork()
    if not child:
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as e:
            sys.exit(0 if "forked" in str(e) else 1)  # by way of atexit
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    t = torch.ones(5)
    dist.all_reduce(t)
    assert (t == size).all()


def groups(rank, size):
    ends = dist.new_group([0, size - 1])
    evens = dist.new_group(list(range(0, size, 2)))
    for _ in range(3):
        if rank in (0, size - 1):
            t = torch.ones(4)
            dist.all_reduce(t, group=ends)
            assert (t == 2).all()
        if rank % 2 == 0:
            t = torch.ones(1000)
            dist.all_reduce(t, group=evens)
            assert (t == (size + 1) // 2).all()
    # groups of the same ranks, in another order on each
    alike = [dist.group.WORLD, dist.new_group(list(range(size))), dist.new_group(list(range(size)))]
    for i in range(30):
        sums = {}
        for k in range(3):
            which = (k + rank + i * rank) % 3
            sums[which] = torch.full((1 << 6 * which,), float(which + 1))
            sums[which, "work"] = dist.all_reduce(sums[which], group=alike[which], async_op=True)
        for which in range(3):
            sums[which, "work"].wait()
            assert (sums[which] == size * (which + 1)).all()
    work = [dist.all_reduce(torch.ones(1 << 18), async_op=True) for _ in range(10)]
    for w in work:
        assert (w.get_future().wait()[0] == size).all()


def training(rank, size):
    """DistributedDataParallel, and FSDP: the same losses as one process with all samples."""
    torch.manual_seed(1)
    samples, labels = torch.randn(size * 4, 32), torch.randint(10, (size * 4,))

    def net():
        torch.manual_seed(2)
        return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

    def run(model, x, y):
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
        for _ in range(5):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    alone = run(net(), samples, labels)
    mine = slice(rank * 4, rank * 4 + 4)
    from torch.distributed.fsdp import fully_shard

    def sharded():
        model = net()
        for part in (*model, model):
            if any(True for _ in part.parameters()):
                fully_shard(part, mesh=dist.init_device_mesh("cpu", (size,)))
        return model

    for model in (torch.nn.parallel.DistributedDataParallel(net()), sharded()):
        losses = run(model, samples[mine], labels[mine])
        dist.all_reduce(losses, op=dist.ReduceOp.AVG)
        assert torch.allclose(losses, alone, atol=1e-5), (losses, alone)


def exhausted(rank, size):
    """No thread can be made for a future's functions, while another operation is waited for: that one goes on, the future's raises."""
    with open("/proc/self/statm") as f:
        used = int(f.read().split()[0]) * resource.getpagesize()
    late, t = torch.ones(1000), torch.ones(1000)
    if rank == 0:
        work = dist.all_reduce(late, async_op=True)
        told = work.get_future()
        resource.setrlimit(resource.RLIMIT_AS, (used + (6 << 20), -1))
        dist.all_reduce(t)
        try:
            told.wait()
            print("a thread was made", flush=True)
        except RuntimeError as e:
            print(f"told: {e}", flush=True)
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    else:
        time.sleep(0.5)
        dist.all_reduce(late)
        dist.all_reduce(t)
    for _ in range(3):
        dist.all_reduce(t)
    print(f"goes on {rank}", flush=True)


def ordered(rank, size):
    """Of tensors on a device, with what the program's stream has to do before and after, which nobody waits for on the processor."""
    device = torch.get_default_device()
    total = size * (size - 1) / 2
    host = [torch.full((5000,), float(rank + i), device="cpu") for i in range(20)]
    if device.type == "cuda":
        host = [h.pin_memory() for h in host]
    for i in range(20):
        t, back = torch.zeros(5000), torch.zeros(5000, device="cpu")
        t.copy_(host[i], non_blocking=True)
        works = [dist.all_reduce(t, async_op=True), dist.all_reduce(t, async_op=True)]  # the second of the first's result
        halves = works[1].get_future().then(lambda f: f.value()[0] / 2)
        works[1].wait()
        back.copy_(t)
        assert (back == size * (total + size * i)).all(), (i, back[0])
        assert (halves.wait() == size * (total + size * i) / 2).all()
        t.copy_(host[i], non_blocking=True)
        dist.broadcast(t, i % size)
        assert (t == i % size + i).all()
        out = torch.empty(5000 * size)
        dist.all_gather_into_tensor(out, t)
        t.copy_(host[i], non_blocking=True)  # after that has read it
        assert (out == i % size + i).all()
        part = t.view(100, 50).t()[7:9]  # not contiguous
        dist.all_reduce(part)
        assert (part == total + size * i).all() and t[0] == rank + i
    with torch.inference_mode():
        t = torch.ones(3)
        dist.all_reduce(t)
        assert (t == size).all()


def killed(rank, size):
    try:
        for i in range(1000):
            if i == 20 and rank == size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(torch.ones(1 << 18))
    except RuntimeError as e:
        print(f"rank {rank}: {e}", flush=True)
        # without the barrier that a destructor would wait in
        os._exit(0 if f"rank {size - 1} on " in str(e) else 1)
    os._exit(1)


def stopped(rank, size):
    operation = sys.argv[sys.argv.index("--stopped") + 1]
    lost = [int(r) for r in sys.argv[sys.argv.index("--stopped") + 2].split(",")]

    def message():
        if rank == lost[0]:
            for r in range(size):
                if r not in lost:
                    dist.send(torch.ones(1 << 18), r)
        elif rank not in lost:
            dist.recv(torch.ones(1 << 18), lost[0])

    step = {"allreduce": lambda: dist.all_reduce(torch.ones(1 << 18)), "barrier": dist.barrier, "recv": message}[operation]
    try:
        for i in range(1000):
            if i == 20 and rank in lost:
                os.kill(os.getpid(), signal.SIGSTOP)
            begin = time.monotonic()
            step()
    except RuntimeError as e:
        took = time.monotonic() - begin
        named = any(f"rank {r} on " in str(e) for r in lost)
        print(f"{'named' if named and took < 10 else 'wrong'} {rank} after {took:.1f} s: {e}", flush=True)
    os._exit(1)


def unwaited(rank, size):
    """The process ends while operations are in flight that nobody waits for."""
    for _ in range(3):
        dist.all_reduce(torch.ones(1 << 20), async_op=True)
    if rank == 0:
        dist.irecv(torch.ones(1), 1)
    print(f"ending {rank}", flush=True)
    sys.exit(0)


def made_up(library):
    module = types.ModuleType("torch.made_up")
    module._lazy_init = lambda: None
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    torch.ops.load_library(library)
    torch.utils.rename_privateuse1_backend("made_up")
    torch._register_device_module("made_up", module)
    torch.set_default_device("made_up")


def main():
    torch.set_num_threads(1)
    parts = (reductions, moves, blocks, shared, threads, messages, any_source, handles, callbacks, groups, forked, training)
    backend = "gannet"
    if "--cuda" in sys.argv:
        torch.set_default_device(f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % torch.cuda.device_count()}")
        parts = (ordered, *(p for p in parts if p != forked))
    elif "--device" in sys.argv:
        made_up(sys.argv[sys.argv.index("--device") + 1])
        backend = "cpu:gannet,made_up:gannet"
        parts = (ordered, reductions, moves, blocks, messages, any_source, groups)
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    if "--unwaited" in sys.argv:
        unwaited(rank, size)
    if "--exhausted" in sys.argv:
        return exhausted(rank, size)
    if "--stopped" in sys.argv:
        stopped(rank, size)
    if "--killed" in sys.argv:
        parts = (killed,)
    for part in parts:
        part(rank, size)
        dist.barrier()
        if rank == 0:
            print(f"ok {part.__name__} {size}", flush=True)
    dist.destroy_process_group()


main()
