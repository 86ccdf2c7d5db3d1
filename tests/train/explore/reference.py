"""The plain run that a combination has the results of, by training.md (What gives the same results): on one rank or without the mesh, with the
same samples and batches a step; and how far the two may be apart."""
import copy
import math
import random

import oracles
from factors import DEFAULT, FIRST, has_cut, world
from process import Place

# results are the same bits without these; but for the order of sums
SAME_BITS = ["launcher", "overlap", "transport", "progress", "encrypt", "loader", "prefetch", "stage", "metrics", "trace", "ckpt", "recompute", "redundancy", "best"]
ROUNDING = ["bucket", "algo"]
LOSSY = ("int8", "topk", "dgc", "powersgd")  # what is kept back or chosen depends on how the network is divided
EARLY, CHAOS = 2, 1e-3  # steps; what a rounding error becomes where later steps say nothing
ASYNC_PIPES, ASYNC_UPDATES = ("pipedream", "decoupled"), ("async", "ssp")


class Plain:
    """combo, batch, more arguments; promise: "bits", "rounding", or None where the pages promise nothing."""

    def __init__(self, c):
        self.combo, self.promise, self.batch, self.more = dict(c), "bits", 8, []

    def rounds(self):
        self.promise = self.promise and "rounding"

    def without(self, *factors):
        self.combo.update({f: FIRST[f] for f in factors})


def promised_nothing(c):
    if c["update"] in ASYNC_UPDATES or c["compress"] == "auto" or c["parallel"] == "auto" and c["sync_bn"] != DEFAULT:
        return True
    if c["pipe"] in ASYNC_PIPES and not has_cut(c) or c["interrupt"] != DEFAULT and (c["local"] != DEFAULT or c["pipe"] in ASYNC_PIPES):
        return True
    if c["interrupt"] == "ranks" and c["compress"] != DEFAULT:
        return True  # each rank's sums are compressed, and other ranks have other sums
    return c["compress"] in LOSSY and c["parallel"] == "auto"


def one_device(c, p):
    """Without what divides the step: sharded state, servers."""
    if any(c[f] != FIRST[f] for f in ROUNDING + ["device"]):
        p.rounds()
    p.without(*SAME_BITS, *ROUNDING, "device", "spares", "elastic", "interrupt")
    p.combo["ranks"] = str(int(c["ranks"]) - int(c["spares"] == "1"))
    if c["shard"] != DEFAULT:
        p.without("shard")
        p.rounds()
    if c["update"] in ("sync", "sync-shared"):
        p.combo["ranks"] = str(int(p.combo["ranks"]) - int(c["update"] == "sync"))
        p.without("update")
        p.rounds()


def one_mesh(c, p):
    """Without the mesh: D ranks whose batches are the micro-batches; and one rank for networks without batch norm."""
    d, stages, slices, _, _ = world(c)
    data = int(p.combo["ranks"]) if c["parallel"] in ("auto", "data", DEFAULT) else d
    micro = 1 if c["micro"] == DEFAULT else int(c["micro"])
    inexact = slices > 1 or c["parallel"] == "auto" or c["precision"] != DEFAULT or c["clip"] == "on" or c["optimizer"] in ("lars", "lamb")
    if c["parallel"] not in (DEFAULT, "data") and inexact:
        p.rounds()
    p.batch = 8 // micro
    p.without("parallel", "pipe", "micro")
    p.combo["ranks"] = str(data)
    alone = c["model"] == "lenet" and c["compress"] == DEFAULT and data > 1
    if c["steps_of"] == "global":
        if alone:
            p.combo["ranks"] = "1"
            p.rounds()
        return
    batches = (2 if c["steps_of"] == "accumulate" else 1) * micro
    if alone and c["local"] == DEFAULT:
        batches *= data
        p.combo["ranks"] = "1"
        p.without("sync_bn")
        p.rounds()
    p.without("steps_of")
    p.more = ["--accumulate", str(batches)]


def reference_of(c):
    p = Plain(c)
    _, stages, slices, _, _ = world(c)
    one_device(c, p)
    if promised_nothing(c):
        p.promise = None
        return p
    if c["compress"] in LOSSY:
        p.combo["bucket"] = c["bucket"]  # the largest are of a bucket
    if c["pipe"] not in ASYNC_PIPES:
        if c["compress"] in LOSSY and stages * slices > 1:
            p.combo["parallel"] = c["parallel"]  # the same mesh
            if slices > 1:
                p.rounds()
        else:
            one_mesh(c, p)
        if c["local"] == DEFAULT:
            p.without("every")
            p.combo["eval"] = "none" if c["eval"] == "none" else FIRST["eval"]
    if c["threads"] == "default" and p.combo["ranks"] != c["ranks"]:  # the processors are divided among the ranks
        p.rounds()
    return p


def tolerance(c):
    """How far apart of the way from the start results may be, where they are not the same bits."""
    if c["precision"] != DEFAULT:
        return 0.3
    if c["compress"] != DEFAULT:
        return 0.1
    return 0.05 if c["optimizer"] in ("adamw", "lamb", "rmsprop") or c["device"] != DEFAULT else 5e-3


STARTS = {}


def start_parameters(c):
    """What a run began with: distances are told beside the way from there."""
    key = (c["model"], c["init"])
    if key not in STARTS:
        name = {DEFAULT: "start-" + key[0], "formula": "formula-" + key[0]}.get(key[1], key[0])
        STARTS[key] = oracles.tensors(f"{Place.data}/{name}.safetensors")
        if key[1] == "skip":
            seeded = oracles.tensors(f"{Place.data}/start-{key[0]}.safetensors")
            STARTS[key].update({n: seeded[n] for n in list(seeded)[-2:]})  # the last layer
    return STARTS[key]


def noise(perform, p, folder, total, want, c):
    """How far the plain run goes when its sums within operators have another order, or its learning rate changes by a rounding error; infinity
    where such a run fails."""
    farthest = 0.0
    for i, change in enumerate(({"threads": FIRST["threads"] if c["threads"] == "2" else "2"}, {"scale": 1 + (1e-6 if c["precision"] == DEFAULT else 1e-3)})):
        where = f"{folder}{i}"
        if perform({**p.combo, **change}, where, total, p.batch, p.more, random.Random(1), [], reference=True)[0] != 0:
            return math.inf
        farthest = max(farthest, oracles.distance(oracles.exported(where, p.combo, []), want, start_parameters(c))[0])
    return farthest


def differs_early(perform, c, p, folder):
    """The same after two steps, before much is made of rounding: (distance, noise). They are fewer than those of a warm-up."""
    c, p = {**c, "lr": "constant"}, copy.copy(p)
    p.combo = {**p.combo, "lr": "constant"}
    for name, combo, batch, more in (("d", c, 8, []), ("e", p.combo, p.batch, p.more)):
        if perform(combo, folder + "/" + name, EARLY, batch, more, random.Random(1), [], reference=True)[0] != 0:
            return math.inf, 0.0
    want = oracles.exported(folder + "/e", p.combo, [])
    far = oracles.distance(oracles.exported(folder + "/d", c, []), want, start_parameters(c))[0]
    return far, noise(perform, p, folder + "/f", EARLY, want, c)


def compare(perform, c, p, folder, total, mine, problems, result):
    """Results of c in folder/a, and of the plain run in folder/b; a third run tells what rounding is amplified to, where they are far apart."""
    want = oracles.exported(folder + "/b", p.combo, problems)
    if not want:
        return
    far, finite = oracles.distance(mine, want, start_parameters(c))
    result.update(distance=far, promise=p.promise)
    bound = tolerance(c)
    if finite and p.promise == "bits":
        if far > 0:
            problems.append(("bits", f"differ by {far:.3g} of the way from the start, and the same bits are promised"))
    elif not finite or far > bound:
        result["noise"] = amplified = noise(perform, p, folder + "/c", total, want, c)
        if finite and far > 10 * amplified > CHAOS:
            far, amplified = result["early"] = differs_early(perform, c, p, folder)
        if not finite or far > max(bound, 10 * amplified):
            problems.append(("results", f"differ from the plain run by {far:.3g} of the way from the start, by {amplified:.3g} for another rounding: at most "
                             f"{bound:g}, or ten times the latter"))
        bound = math.inf  # small batches of batch norm amplify rounding: nothing can be said
    if c["ema"] == "on":
        far, finite = oracles.distance(oracles.exported(folder + "/a", c, problems, True), oracles.exported(folder + "/b", p.combo, problems, True), start_parameters(c))
        if not finite or far > bound:
            problems.append(("results", f"the moving average differs by {far:.3g}"))
