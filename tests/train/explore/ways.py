"""Ways of training into which faults.t strikes: options, numbers of ranks, and what each way promises.

bits      the parameters of an interrupted run are those of a run without a fault: "always"; "paced", but for a stop on request, whose checkpoint
          is one more pause of the stages or one more average of the ranks; "never"
lost      what the loss of a rank does: "ends" the run; "worker": a worker is gone on without; "elastic": the others go on; None: of other tests
place     "one": ranks under gannet launch; "alone": one rank without it; "nodes": ranks in network namespaces, as root
"""
from process import GANNET, SOURCE, Place

STEPS = 60
ELASTIC_STEPS = 80
KILLS = ("kill", "kill", "kill")
OF_RANKS = KILLS + ("stop", "pause", "pause", "late", "term", "two")
OF_JOBS = ("term-launcher", "kill-launcher", "interrupt-twice")
OF_FILES = ("full-checkpoints", "full-log", "shard-truncated", "shard-removed", "shard-garbled", "checkpoints-removed")
OF_WORLDS = ("losses",) * 8
NEED_ROOT = ("full-checkpoints", "full-log")


class Way:
    def __init__(self, name, options="", ranks=(2, 3, 4), bits="always", lost="ends", place="one", kinds=OF_RANKS + OF_JOBS + OF_FILES, **more):
        self.name, self.options, self.ranks, self.bits, self.lost, self.place, self.kinds = name, options, ranks, bits, lost, place, kinds
        # ranks that wait; whether worlds may go back to a checkpoint; whether the global batch changes with the ranks
        self.spares, self.back, self.scales = more.get("spares", 0), more.get("back", False), more.get("scales", False)
        # network; options of several ranks alone; options of a run that is struck, which planned runs and references are without
        self.model, self.pipes, self.own = more.get("model", "lenet"), more.get("pipes", ""), more.get("own", "")

    def is_async(self):
        return "--update async" in self.options or "--update ssp" in self.options

    def needs_root(self):
        return self.place in ("nodes", "rails")


def shared_ways():
    """Ways to share a step."""
    yield Way("allreduce")
    for method in ("bf16", "fp16", "int8", "topk:0.01", "dgc:0.01", "powersgd:2"):
        yield Way("compress " + method, "--compress " + method)
    yield Way("shard optimizer", "--shard optimizer")
    yield Way("shard gradients", "--shard gradients --accumulate 2")
    yield Way("local steps", "--local-steps 4", bits="paced")
    yield Way("ring over tcp", "--transport tcp --algo ring")
    yield Way("no overlap", "--no-overlap")
    yield Way("encrypted network", "--transport tcp --encrypt-network")
    yield Way("encrypted checkpoints", "--checkpoint-key {data}/key")
    yield Way("local checkpoints", "--checkpoint-local {folder}/local")
    yield Way("batch norm", "--sync-bn all", model="resnet20 --side 16 --channels 1")
    yield Way("staged", "--stage {folder}/stage", kinds=OF_RANKS + OF_JOBS + OF_FILES + ("stage-killed",))
    yield Way("alone", ranks=(1,), place="alone", kinds=KILLS + ("pause", "term", "interrupt-twice") + OF_FILES)


def mesh_ways():
    yield Way("mesh data", "--parallel data=1 --micro-batches 2")
    yield Way("mesh gpipe", "--parallel pipeline=2 --micro-batches 2 --pipe-schedule gpipe", (2, 4))
    yield Way("mesh 1f1b", "--parallel pipeline=2 --micro-batches 4 --pipe-schedule 1f1b", (2, 4))
    yield Way("mesh pipedream", "--parallel pipeline=2 --cut fc1 --micro-batches 2 --pipe-schedule pipedream", (2, 4), "paced")
    yield Way("mesh decoupled", "--parallel pipeline=2 --cut conv2 --pipe-schedule decoupled", (2, 4), "never")
    yield Way("mesh tensor", "--parallel tensor=2", (2, 4))
    yield Way("mesh pipeline and tensor", "--parallel pipeline=2,tensor=2 --cut conv2 --micro-batches 2", (4,))


def server_ways():
    for update in ("sync", "async", "ssp:3"):
        bits = "always" if update == "sync" else "never"
        yield Way(f"servers {update}", f"--update {update} --servers 1", (3, 4), bits, "ends" if update == "sync" else "worker")
        yield Way(f"shared servers {update}", f"--update {update} --servers shared", (2, 3, 4), bits)


def elastic_ways():
    kinds = OF_WORLDS + ("pause", "late", "term") + OF_JOBS + OF_FILES
    pipes, adamw = "--parallel pipeline=2 --cut conv2", "--shard optimizer --optimizer adamw --lr 0.002"
    table = (("", "", "", (2, 3, 4, 5), {}), (" shard", adamw, "", (2, 3, 4, 5), {"back": True}),
             (" shard with copies", adamw, "--redundancy 1", (2, 3, 4, 5), {"back": True}),
             (" pipeline", "--micro-batches 2", "", (2, 4), {"back": True, "pipes": pipes}),
             (" pipeline with copies", "--micro-batches 2", "--redundancy 1", (2, 4), {"back": True, "pipes": pipes}))
    for name, options, own, ranks, more in table:
        yield Way("elastic" + name, options, ranks, lost="elastic", kinds=kinds, own="--elastic 1 " + own, **more)
        yield Way(f"elastic{name} on nodes", options, ranks, lost="elastic", kinds=OF_WORLDS, place="nodes", own="--elastic 1 " + own, **more)
    yield Way("elastic accumulate", "--accumulate 2", lost="elastic", kinds=kinds, own="--elastic 1")
    yield Way("elastic scale", "", lost="elastic", kinds=kinds, own="--elastic 1 --elastic-batch scale", scales=True)
    yield Way("elastic spare", "", (3, 4, 5), lost="elastic", kinds=kinds, own="--elastic 1 --spares 1", spares=1)


def all_ways():
    """In an order that mixes slow ways with fast ones: any window of as many seeds has each once, meshes four times, and groups eleven times, where
    more can come between two ranks than in other ways."""
    groups = [Way("groups over auto", ranks=(8,), lost=None, kinds=("random",), place="groups"),
              Way("groups over tcp", ranks=(8,), lost=None, kinds=("random",), place="groups"),
              Way("groups over two rails", ranks=(8,), lost=None, kinds=("random",), place="rails")]
    ways = [*shared_ways(), *list(mesh_ways()) * 4, *server_ways(), *elastic_ways(), *groups[:2] * 11, *groups[2:] * 2]
    stride = 19
    while not is_coprime(stride, len(ways)):
        stride += 2
    return [ways[i * stride % len(ways)] for i in range(len(ways))]


def is_coprime(a, b):
    while b:
        a, b = b, a % b
    return a == 1


def base(way, data):
    """Options that all starts of a way have: runs, references, and planned runs of elastic ones."""
    words = ["train", "--data", data, *f"--model {way.model} --threads 1 --loader-threads 1 --schedule constant".split()]
    if way.lost == "elastic":
        words += ["--batch", "8", *([] if "--lr " in way.options else ["--lr", "0.01"])]
    else:
        # servers refuse to clip; sums of squares in the order of stages depend on cuts, which are measured in each run
        clip = [] if "--update" in way.options or "--parallel" in way.options else ["--clip", "1"]
        words += ["--batch", "8", "--lr", "0.005", "--bucket", "200K", *clip]
    return words


def steps_of(way):
    return ELASTIC_STEPS if way.lost == "elastic" else STEPS


def data_of(way):
    return Place.data + ("/digits" if way.lost == "elastic" else "/train")


def limits(seconds=30):
    """Variables of a start. What passes is far from these limits; what must be noticed by silence has shorter ones."""
    return {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "GANNET_HEARTBEAT_TIMEOUT": str(seconds), "GANNET_STALL_TIMEOUT": "30",
            "GANNET_SECRET_FILE": Place.data + "/secret"}


def arguments(way, folder, data, plain=False):
    """Of gannet, for one run of a way in a folder of its own. plain: one of as many ranks that nothing strikes."""
    elastic = way.lost == "elastic"
    words = base(way, data) + ["--steps", str(steps_of(way)), "--log-every", "1", "--log", folder + "/logs/log.jsonl"]
    words += ["--checkpoint", folder + "/disk/run", "--checkpoint-every", "30" if elastic else "9"]
    given = f"{way.options} {way.pipes} {'' if plain else way.own}".format(data=Place.data, folder=folder)
    return words + given.split()


def command(way, ranks, folder, data, before=(), plain=False):
    """A start under gannet launch, or without it. before: words between the launcher and gannet."""
    argv = [*before, GANNET, *arguments(way, folder, data, plain)]
    if way.place == "alone" or way.place == "nodes" and not plain:
        return argv
    keep_going = way.lost in ("worker", "elastic")
    return [GANNET, "launch", "-n", str(ranks), "--grace", "6", *["--keep-going"] * keep_going, "--", *argv]


def packed():
    """What faults.t packs, once."""
    return [["pack", "--synthetic", "240", "--classes", "4", "--size", "28x28", "--shard-bytes", "20K", "--out", "train"],
            ["pack", "--out", "digits", "--shard-bytes", "200K", SOURCE + "/data/digits/digits-val.tar.xz"]]
