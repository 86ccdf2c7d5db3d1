"""tests/frameworks/loader: loader.py FOLDER CASE, with tensors of PyTorch; ends with 0 or an assertion."""
import os
import signal
import subprocess
import sys
import threading

import numpy
import torch

from gannet_torch.data import Eval, Loader, NumpyLoader, Shards, Train

folder = sys.argv[1]
photos = folder + "/photos"


def tensors():
    """Types and layouts, whose values are those in numpy; labels of cross_entropy."""
    mean, deviation = torch.tensor([0.485, 0.456, 0.406])[:, None, None], torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    for layout in "contiguous", "channels_last":
        loaders = [Loader(photos, 12, transform=Train(64), memory_format=layout, output=o) for o in ("float32", "bfloat16", "uint8")]
        plain = NumpyLoader(photos, 12, transform=Train(64))
        for batches in zip(plain, *loaders):
            (wanted, _), (x, labels), (y, _), (z, _) = batches
            assert x.shape == (12, 3, 64, 64) and torch.equal(x, torch.from_numpy(wanted)) and labels.dtype == torch.int64
            assert torch.equal(y, x.to(torch.bfloat16)) and y.dtype == torch.bfloat16
            assert z.dtype == torch.uint8 and ((x * deviation + mean) * 255 - z).abs().max() < 0.51
            for t in x, y, z:
                assert t.is_contiguous(memory_format=torch.channels_last if layout == "channels_last" else torch.contiguous_format)
    soft = Loader(photos, 12, transform=Train(64, mixup=0.2, cutmix=1.0))
    for images, labels in soft:
        assert labels.shape == (12, 5)
        torch.nn.functional.cross_entropy(torch.zeros(12, 5), labels, weight=soft.class_weights())


def logits():
    """The logits of gannet eval, with its weights in torchvision's network."""
    import safetensors.torch
    import torchvision

    net = torchvision.models.resnet18(num_classes=5)
    net.load_state_dict(safetensors.torch.load_file(folder + "/net.safetensors"))
    net.eval()
    wanted = numpy.load(folder + "/logits.npy")
    with torch.no_grad(), Loader(photos, 16, transform=Eval(64)) as loader:
        got = numpy.concatenate([net(images).numpy() for images, _ in loader])
    assert got.shape == wanted.shape == (90, 5) and abs(got - wanted).max() < 1e-4 * max(1, abs(wanted).max()), abs(got - wanted).max()
    print(f"logits differ by {abs(got - wanted).max():.1e} at most")


def ranks():
    """RANK and WORLD_SIZE, or torch.distributed once that is initialised; what all ranks read is each image once."""
    torch.distributed.init_process_group("gloo")
    assert int(os.environ["WORLD_SIZE"]) == torch.distributed.get_world_size()
    with Loader(photos, 6, transform=Train(64), drop_last=False) as loader:
        assert (loader.rank, loader.world_size) == (torch.distributed.get_rank(), torch.distributed.get_world_size())
        mine = [int(i) for _ in loader for i in loader.indices]
    everybody = [None] * loader.world_size
    torch.distributed.all_gather_object(everybody, mine)
    assert sorted(i for part in everybody for i in part) == list(range(90)), everybody
    torch.distributed.destroy_process_group()


def threads():
    """The loader's and PyTorch's together are the processors of the affinity mask; more when asked."""
    share = len(os.sched_getaffinity(0))
    with Loader(photos, 12, transform=Train(64)) as loader:
        assert loader.threads + torch.get_num_threads() <= max(2, share), (loader.threads, torch.get_num_threads(), share)
    torch.set_num_threads(share)
    with Loader(photos, 12, transform=Train(64), threads=share + 1) as loader:
        assert loader.threads == share + 1 and torch.get_num_threads() == share


def workers():
    """Shards under DataLoader, forked and spawned, with torchvision's transforms."""
    from torchvision import transforms

    shards = Shards(photos, transforms.Compose([transforms.Resize(64), transforms.CenterCrop(64), transforms.ToTensor()]))
    wanted = torch.stack([shards[i][0] for i in range(8)])
    for how in "fork", "spawn", "forkserver":
        loader = torch.utils.data.DataLoader(shards, 8, num_workers=2, multiprocessing_context=how)
        images, labels = next(iter(loader))
        assert torch.equal(images, wanted) and list(labels) == [shards.label(i) for i in range(8)], how
        assert sum(len(labels) for _, labels in loader) == 90
    for wrong in 8, None:
        try:
            next(iter(torch.utils.data.DataLoader(Loader(photos, 8, transform=Train(64)), wrong)))
            raise AssertionError("a loader is not for DataLoader")
        except TypeError as e:
            assert "Shards" in str(e), e
    raw = Shards(photos, decode="tensor")[3][0]
    assert raw.dtype == torch.uint8 and raw.shape == (3, 90, 70)


def interrupted():
    """SIGINT in the loop, and an exception: the process ends, with what Python says of it."""
    program = ("import sys; from gannet_torch.data import Loader, Train\n"
               "loader = Loader(sys.argv[1], 12, transform=Train(64), threads=2)\n"
               "while True:\n    for images, labels in loader:\n        print('begun', flush=True)\n        if sys.argv[2] == 'raise': raise KeyError('loop')")
    for how, code, text in ("raise", 1, "KeyError"), ("wait", -signal.SIGINT, "KeyboardInterrupt"):
        child = subprocess.Popen([sys.executable, "-c", program, photos, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        watchdog = threading.Timer(120, child.kill)
        watchdog.start()
        child.stdout.readline()
        if how == "wait":
            child.send_signal(signal.SIGINT)
        _, err = child.communicate()
        watchdog.cancel()
        assert child.returncode == code and text in err, (how, child.returncode, err)


def pinned():
    if torch.cuda.is_available():
        for images, labels in Loader(photos, 12, transform=Train(64), device="cuda"):
            assert images.is_cuda and labels.is_cuda
        return
    for wrong in {"pin_memory": True}, {"device": "cuda"}:
        try:
            Loader(photos, 12, transform=Train(64), **wrong)
            raise AssertionError(wrong)
        except ValueError as e:
            assert "need a GPU" in str(e)


if __name__ == "__main__":
    globals()[sys.argv[2]]()
    print("right", flush=True)
