"""tests/lib/loader.t: loader.py FOLDER NAME runs a case, which ends with 0 or an assertion."""
import gc
import glob
import json
import multiprocessing
import os
import pickle
import shutil
import sys
import threading

import numpy

from gannet_torch import data
from gannet_torch.data import Eval, NumpyLoader, Shards, Train

folder = sys.argv[1]
photos = folder + "/photos"


def threads():
    return len(os.listdir("/proc/self/task"))


def loader(batch=12, rank=0, size=1, **options):
    options.setdefault("transform", Train(64))
    options.setdefault("threads", 2)
    return NumpyLoader(options.pop("data", photos), batch, rank=rank, world_size=size, seed=7, **options)


def logged(name, rank):
    """What gannet train --log-samples says of this rank's batches."""
    return [json.loads(line)["samples"] for line in open(f"{folder}/{name}/world-1-rank-{rank}.jsonl")]


def order():
    """The images of gannet train's steps, for any number of ranks."""
    for size in 1, 2, 3:
        for rank in range(size):
            with loader(12 // size, rank, size) as mine:
                assert len(mine) == 7, len(mine)
                got = [list(map(int, mine.indices)) for _ in range(2) for _ in mine]
            assert got == logged(f"samples-{size}", rank) and len(got) == 14, (size, rank, got[0])


def pixels():
    """One rank's batches are those of three one after the other, for any number of threads; labels are the dataset's."""
    one, parts = loader(), [loader(4, r, 3, threads=1 + r) for r in range(3)]
    for (images, labels), *pieces in zip(one, *parts):
        assert images.dtype == numpy.float32 and images.shape == (12, 3, 64, 64) and -3 < images.mean() < 3
        assert numpy.array_equal(images, numpy.concatenate([p[0] for p in pieces]))
        assert numpy.array_equal(labels, numpy.concatenate([p[1] for p in pieces]))
        assert numpy.array_equal(labels, one.labels()[one.indices.astype(int)])
    assert one.classes == [f"{k}" for k in range(5)] or len(one.classes) == 5
    assert one.class_counts().sum() == 90


def formats():
    """uint8 is what is normalised, to half a level; channels last is a view of the same; an evaluation has all images in order."""
    mean, deviation = numpy.array([0.485, 0.456, 0.406])[:, None, None], numpy.array([0.229, 0.224, 0.225])[:, None, None]
    with loader() as a, loader(output="uint8") as b, loader(memory_format="channels_last") as c, loader(output="uint8", memory_format="channels_last") as d:
        for (x, _), (y, _), (z, _), (w, _) in zip(a, b, c, d):
            assert y.dtype == numpy.uint8 and abs((x * deviation + mean) * 255 - y).max() < 0.51
            assert z.shape == (12, 64, 64, 3) and numpy.array_equal(x, z.transpose(0, 3, 1, 2)) and numpy.array_equal(y, w.transpose(0, 3, 1, 2))
    with loader(transform=Eval(64)) as e:
        assert len(e) == 8
        counts = [len(labels) for _, labels in e]
        assert counts == [12] * 7 + [6], counts
        e.set_epoch(3)
        assert [i for _ in e for i in e.indices] == list(range(90))
    with loader(shuffle=False, drop_last=False) as f:
        assert [i for _ in f for i in f.indices] == list(range(90))


def states():
    """Exact in the middle of an epoch, also with another number of ranks, and at its end."""
    whole = loader()
    whole.set_epoch(4)
    wanted = [(images, list(whole.indices)) for images, _ in whole]
    begun = loader(6, 0, 2)
    begun.set_epoch(4)
    for _, batch in zip(range(3), begun):
        state = begun.state_dict()
    assert state["epoch"] == 4 and state["samples"] == 36, state
    state = json.loads(json.dumps(state))
    for size in 1, 3, 4:
        parts = [loader(12 // size, r, size) for r in range(size)]
        for part in parts:
            part.load_state_dict(state)
            part.set_epoch(4)
            assert part.state_dict() == state
        for k, pieces in enumerate(zip(*parts)):
            images, indices = wanted[3 + k]
            assert numpy.array_equal(numpy.concatenate([p[0] for p in pieces]), images)
        assert k == 3 and parts[0].state_dict()["epoch"] == 5 and parts[0].state_dict()["samples"] == 0
        assert len(list(parts[0])) == 7
    try:
        loader(transform=Train(64)).load_state_dict({**state, "seed": 8})
        assert 0
    except ValueError as e:
        assert "another seed (8; here 7)" in str(e)


def epochs():
    """An iteration after a break is the next epoch; set_epoch() is of the next one, and says nothing of that which goes on."""
    def first(l):
        next(iter(l))
        return list(l.indices)

    with loader() as l, loader() as named:
        begun = [first(l) for _ in range(3)]
        assert begun[0] != begun[1] and begun[1] != begun[2]
        for epoch in 0, 1, 2, 1, 1:
            named.set_epoch(numpy.int64(epoch))
            assert first(named) == begun[epoch], epoch
    with loader() as l:
        iterator = iter(l)
        next(iterator)
        l.set_epoch(5)
        next(iterator)
        state = l.state_dict()
        assert (state["epoch"], state["samples"]) == (0, 24), state
        for _ in iterator:
            pass
        state = l.state_dict()
        assert (state["epoch"], state["samples"]) == (5, 0), state
        json.dumps(state)


def soft():
    """Mixup's labels, whose images are those of two."""
    plain, mixed = loader(), loader(transform=Train(64, mixup=0.4))
    for (x, labels), (y, weights) in zip(plain, mixed):
        assert weights.shape == (12, 5) and weights.dtype == numpy.float32 and abs(weights.sum(1) - 1).max() < 1e-6
        for i in range(0, 12, 2):
            for a, b in (i, i + 1), (i + 1, i):
                if labels[a] != labels[b]:
                    share = weights[a][labels[a]]
                    assert abs(share * x[a] + (1 - share) * x[b] - y[a]).max() < 1e-5


def balanced():
    with loader(transform=["--side=64", "--sampling=balanced"]) as l:
        assert [list(map(int, l.indices)) for _ in range(2) for _ in l] == logged("samples-balanced", 0)
        shards = Shards(photos, decode="bytes")
        assert list(l.labels()) == [shards.label(i) for i in range(len(shards))]
        assert abs((l.class_weights() * l.class_counts()).sum() - 90) < 1e-3


def memory():
    """Batches are the user's: they stay as they are, and their memory is free when they are dropped."""
    with loader(prefetch=1) as l:
        kept = [images for images, _ in l]
        copies = [images.copy() for images in kept]
        for _ in range(3):
            assert all(numpy.array_equal(a, b) for a, (b, _) in zip(copies, iter_epoch(l, 0)))
        assert all(numpy.array_equal(a, b) for a, b in zip(kept, copies))
        assert all(images.ctypes.data % 64 == 0 for images in kept)

        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")

        del kept, copies
        gc.collect()
        before = resident()
        for _ in range(30):
            for _ in l:
                pass
        assert resident() - before < 8 << 20, resident() - before


def reuse():
    """A batch that is dropped lends its memory to a later one; of what somebody still has, be it a view of some images, nothing changes."""
    with loader(batch=4, output="uint8") as l:
        addresses, kept, copies = set(), [], []
        for epoch in range(6):
            for number, (images, _) in enumerate(l):
                addresses.add(images.__array_interface__["data"][0])
                if number % 7 == 3:
                    kept.append(images[1:3, :, 5:9].view())
                    copies.append(kept[-1].copy())
                images = None
        assert len(addresses) < 40 and len(kept) == 18, (len(addresses), len(kept))
        assert all(numpy.array_equal(a, b) for a, b in zip(kept, copies))


def iter_epoch(l, epoch):
    l.set_epoch(epoch)
    return iter(l)


def ends():
    """Threads end with close(), with the last reference, and in an iterator that was dropped; an iterator that is over says so."""
    before = threads()
    l = loader(threads=4)
    assert threads() >= before + 4
    iterator = iter(l)
    next(iterator)
    second = iter(l)
    try:
        next(iterator)
        assert 0
    except RuntimeError as e:
        assert "another one of its loader" in str(e)
    next(second)
    l.close()
    try:
        next(second)
        assert 0
    except RuntimeError:
        pass
    assert threads() == before, threads()
    for _ in range(5):
        l = loader(threads=3)
        for _ in l:
            break
        del l
        gc.collect()
    assert threads() == before, threads()
    try:
        for _ in loader():
            raise KeyError("in the loop")
    except KeyError:
        pass
    gc.collect()
    assert threads() == before, threads()
    open_files = [os.path.realpath(f"/proc/self/fd/{p}") for p in os.listdir("/proc/self/fd")]
    assert not [p for p in open_files if p.endswith(".h5")], open_files


def shared():
    """Threads that iterate over one loader: the last one to begin goes on, the others say why they end."""
    with loader(3) as l:
        ended, together = [], threading.Barrier(4)

        def iterate():
            together.wait()
            try:
                for _ in range(20):
                    for _ in l:
                        pass
                ended.append(None)
            except Exception as e:
                ended.append(e)

        users = [threading.Thread(target=iterate) for _ in range(4)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert len(ended) == 4 and all(e is None or type(e) is RuntimeError and "this iterator has ended" in str(e) for e in ended), ended
        assert None in ended and len(list(l)) == 30


def in_child(shards, index, queue):
    queue.put((os.getpid(), shards[index][0].tobytes() if hasattr(shards[index][0], "tobytes") else bytes(shards[index][0])))


def forks():
    """A loader is not for a fork, a Shards is; both ways of starting processes."""
    shards = Shards(photos, decode="bytes")
    wanted = bytes(shards[7][0])
    again = pickle.loads(pickle.dumps(shards))
    assert bytes(again[7][0]) == wanted and again.classes == shards.classes
    for how in "fork", "spawn":
        context = multiprocessing.get_context(how)
        queue = context.Queue()
        children = [context.Process(target=in_child, args=(shards, 7, queue)) for _ in range(2)]
        for child in children:
            child.start()
        assert all(queue.get(timeout=200)[1] == wanted for _ in children), how
        for child in children:
            child.join()
    with loader() as l:
        begun = iter(l)
        next(begun)
        for use in iter, lambda _: next(begun):
            child = os.fork()
            if not child:
                code = 1
                try:
                    use(l)
                except RuntimeError as e:
                    code = 0 if "before a fork" in str(e) else 2
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
        assert len(list(l)) == 7


def shards():
    s = Shards(photos, transform=len, decode="bytes")
    assert len(s) == 90 and len(s.classes) == 5 and s[89][0] > 100 and 0 <= s[89][1] < 5
    assert s[-1] == s[89] and s.targets == [s.label(i) for i in range(90)] and s.class_to_idx[s.classes[4]] == 4
    for wrong in 90, -91:
        try:
            s[wrong]
            assert 0
        except IndexError:
            pass
    raw = Shards(photos, decode="bytes")
    assert all(raw[i][0][:2] == b"\xff\xd8" and raw[i][0][-2:] == b"\xff\xd9" for i in range(90))


def refused(kind, text, make):
    try:
        make()
    except kind as e:
        assert text in str(e), e
        return
    raise AssertionError(text)


def refusals():
    refused(data.Error, "there is no such folder", lambda: loader(data=folder + "/none"))
    refused(ValueError, "did you mean mixup=", lambda: loader(transform=Train(64, mix_up=1)))
    refused(ValueError, "mixup", lambda: loader(transform=Train(64, mixup=-1)))
    refused(ValueError, "ask for these, not for bytes", lambda: loader(transform=Train(64, mixup=0.2), output="uint8"))
    refused(ValueError, "rank 3 of 3", lambda: loader(4, 3, 3))
    for wrong in 0, -1, 1 << 31, 1 << 40, 10**30:
        refused(ValueError, f"batch_size={wrong} is not from 1 to", lambda: loader(wrong))
    for wrong in "64", 1.5, True, None:
        refused(TypeError, f"batch_size={wrong!r} is not a whole number", lambda: loader(wrong))
    refused(ValueError, "world_size=0", lambda: loader(4, 0, 0))
    refused(ValueError, "threads=0", lambda: loader(threads=0))
    refused(ValueError, "prefetch=-1", lambda: loader(prefetch=-1))
    refused(ValueError, "side=0", lambda: Train(0))
    refused(TypeError, "Eval has no mixup", lambda: Eval(64, mixup=0.2))
    refused(ValueError, "unknown option foo=; see gannet train --help", lambda: loader(transform=Train(64, foo=1)))
    refused(ValueError, "mixup= needs a value", lambda: loader(transform=Train(64, mixup=True)))
    refused(ValueError, "unknown option mixup=False", lambda: loader(transform=Train(64, mixup=False)))
    refused(ValueError, "--help", lambda: loader(transform=["--help"]))
    for wrong in Train(64, seed=3), ["--side=64", "--seed=3"]:
        refused(TypeError, "the loader's", lambda: loader(transform=wrong))
    for wrong in "--side=64", len, 3:
        refused(TypeError, "a list of words", lambda: loader(transform=wrong))
    refused(ValueError, "is not a path", lambda: loader(data=photos + "\0b"))
    refused(ValueError, "else pack it with --encrypt", lambda: loader(key_file=folder + "/key"))
    with loader() as l, loader(shuffle=False) as ordered:
        refused(TypeError, "Shards", lambda: l[0])
        refused(TypeError, "Shards", lambda: pickle.dumps(l))
        good = l.state_dict()
        refused(ValueError, "another order", lambda: ordered.load_state_dict(good))
        refused(ValueError, "a state of a loader has", lambda: l.load_state_dict({}))
        for samples, kind in ("x", TypeError), (None, TypeError), (-1, ValueError), (91, ValueError), (10**30, ValueError):
            refused(kind, "samples=", lambda: l.load_state_dict({**good, "samples": samples}))
        for epoch, kind in ("3", TypeError), (-1, ValueError):
            refused(kind, "epoch=", lambda: l.set_epoch(epoch))
    refused(data.Error, "fewer than a step takes", lambda: loader(91))
    refused(ValueError, "give both", lambda: NumpyLoader(photos, 4, rank=1))
    refused(ValueError, "neither shuffle", lambda: loader(transform=Eval(64), shuffle=True))
    refused(ValueError, "2 images for 4 ranks", lambda: loader(11, 0, 4, drop_last=False))
    refused(ValueError, "is none of", lambda: loader(output="int4"))
    os.environ.update(RANK="x", WORLD_SIZE="2")
    refused(ValueError, "RANK=x", lambda: NumpyLoader(photos, 6))
    os.environ.update(RANK="1", WORLD_SIZE="2")
    with NumpyLoader(photos, 6, seed=7, transform=Train(64), threads=1) as l:
        assert (l.rank, l.world_size) == (1, 2)
    shutil.copytree(photos, folder + "/damaged")
    shard = sorted(glob.glob(folder + "/damaged/*.h5"))[0]
    with open(shard, "r+b") as f:
        f.seek(os.path.getsize(shard) * 3 // 4)
        f.write(b"gannet" * 40)
    failed = 0
    with loader(1, data=folder + "/damaged") as l:
        iterator = iter(l)
        try:
            for _ in iterator:
                pass
        except data.Error as e:
            failed += "shard" in str(e) and "sample" in str(e)
    assert failed == 1, "a damaged image is named"


def encrypted():
    with loader() as a, loader(data=folder + "/secret", key_file=folder + "/key") as b:
        for (x, _), (y, _) in zip(a, b):
            assert x.shape == y.shape
        assert len(b.classes) == 5
    refused(ValueError, "give key_file=", lambda: [0 for _ in loader(data=folder + "/secret")])


def disks():
    """A dataset whose shards are on two disks."""
    with loader() as l, loader(data=f"{folder}/disk1/photos:{folder}/disk2/photos") as divided:
        for (a, _), (b, _) in zip(l, divided):
            assert numpy.array_equal(a, b)


def staged():
    os.mkdir(folder + "/disk", 0o700)
    with loader() as a, loader(stage=folder + "/disk") as b:
        for epoch in range(40):
            for (x, _), (y, _) in zip(iter_epoch(a, epoch), iter_epoch(b, epoch)):
                assert numpy.array_equal(x, y)
            if os.path.exists(folder + "/disk/photos/gannet-dataset.json"):
                break
        assert os.path.exists(folder + "/disk/photos/gannet-dataset.json")


if __name__ == "__main__":
    globals()[sys.argv[2]]()
