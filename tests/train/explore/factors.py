"""The factors of gannet train that meet in pairs: their values, the arguments they stand for, and which combinations can be."""
import itertools
import os
import random
import shutil

import page
from process import BUILD, GANNET, SOURCE, Place, tool

DEFAULT = "-"
EMULATED = next((p for p in (b + "/tests/gpu/gannet_emulated" for b in (BUILD, SOURCE + "/build-cuda")) if os.access(p, os.X_OK)), None)
CUTS = {"lenet": "conv2", "resnet20": "layer2", "mobilenet_v2": "features.7"}  # of two stages; else they are measured
MODELS = {"lenet": "", "resnet20": " --side 16 --channels 1", "mobilenet_v2": " --side 32 --channels 1"}
# factor: {value: arguments}; {d} is the run's folder, {D} that of the data, {N} the ranks that train. The first value is what is not given.
FACTORS = {
    "model": {m: f"--model {m}{more}" for m, more in MODELS.items()},
    "ranks": {"2": "", "1": "", "3": "", "4": ""},
    "launcher": {DEFAULT: "", "env": "", "mpirun": ""},
    "parallel": {DEFAULT: "", "data": "--parallel data={N}", "pipeline=2": "--parallel pipeline=2", "pipeline=N": "--parallel pipeline={N}",
                 "tensor=2": "--parallel tensor=2", "both": "--parallel pipeline=2,tensor=2", "auto": "--parallel auto"},
    "pipe": {DEFAULT: "", "gpipe": "--pipe-schedule gpipe", "1f1b": "--pipe-schedule 1f1b", "pipedream": "--pipe-schedule pipedream{cut}",
             "decoupled": "--pipe-schedule decoupled{cut}"},
    "micro": {DEFAULT: "", "2": "--micro-batches 2", "4": "--micro-batches 4"},
    "steps_of": {DEFAULT: "", "accumulate": "--accumulate 2", "global": "--global-batch 24"},
    "recompute": {DEFAULT: "", "on": "--recompute"},
    "precision": {DEFAULT: "", "bf16": "--precision bf16", "emulated": "--precision bf16-emulated"},
    "optimizer": {DEFAULT: "", "nesterov": "--nesterov", "lars": "--optimizer lars", "lamb": "--optimizer lamb", "adamw": "--optimizer adamw",
                  "rmsprop": "--optimizer rmsprop"},
    "ema": {DEFAULT: "", "on": "--ema 0.9"},
    "clip": {DEFAULT: "", "on": "--clip 1"},
    "mix": {DEFAULT: "", "mixup": "--mixup 0.2", "cutmix": "--cutmix 1", "both": "--mixup 0.2 --cutmix 1"},
    "augment": {DEFAULT: "", "rand": "--randaugment 2,9", "trivial": "--trivialaugment", "erase": "--random-erasing 0.5", "none": "--augment none"},
    "sync_bn": {DEFAULT: "", "all": "--sync-bn all", "node": "--sync-bn node", "2": "--sync-bn 2"},
    "compress": {DEFAULT: "", "bf16": "--compress bf16", "fp16": "--compress fp16", "int8": "--compress int8", "topk": "--compress topk:0.1",
                 "dgc": "--compress dgc:0.1", "powersgd": "--compress powersgd:2", "auto": "--compress auto"},
    "shard": {DEFAULT: "", "optimizer": "--shard optimizer", "gradients": "--shard gradients"},
    "local": {DEFAULT: "", "3": "--local-steps 3", "2from1": "--local-steps 2 --local-from 1"},
    "update": {DEFAULT: "", "sync": "--update sync --servers 1", "sync-shared": "--update sync --servers shared", "async": "--update async --servers 1",
               "ssp": "--update ssp:2 --servers shared"},
    "elastic": {DEFAULT: "", "1": "--elastic 1", "scale": "--elastic 1 --elastic-batch scale", "1:4": "--elastic 1:4"},
    "redundancy": {DEFAULT: "", "1": "--redundancy 1"},
    "spares": {DEFAULT: "", "1": "--spares 1"},
    "every": {DEFAULT: "", "2": "--checkpoint-every 2", "3": "--checkpoint-every 3 --keep 2 --keep-every 2"},
    "ckpt": {DEFAULT: "", "key": "--checkpoint-key {D}/key", "local": "--checkpoint-local {d}/local"},
    "interrupt": {DEFAULT: "", "term": "", "kill": "", "split": "", "ranks": ""},
    "sampling": {DEFAULT: "", "balanced": "--sampling balanced"},
    "weights": {DEFAULT: "", "balanced": "--class-weights balanced", "file": "--class-weights {D}/weights"},
    "smooth": {DEFAULT: "", "on": "--label-smoothing 0.1"},
    "freeze": {DEFAULT: "", "on": "--freeze {first}.*"},
    "lr_scale": {DEFAULT: "", "on": "--lr-scale {first}.*=0.1"},
    "init": {DEFAULT: "", "file": "--init {D}/{model}.safetensors", "skip": "--init {D}/{model}.safetensors --init-head skip", "formula": "--init formula"},
    "resize": {DEFAULT: "", "on": "--resize-schedule 0:12,1:16"},
    "lr": {DEFAULT: "", "constant": "--schedule constant", "step": "--schedule step --milestones 1", "warm": "--warmup-epochs 0.5"},
    "overlap": {DEFAULT: "", "on": "--overlap", "off": "--no-overlap"},
    "bucket": {DEFAULT: "", "4K": "--bucket 4K", "100K": "--bucket 100K", "any": "--any-order"},
    "algo": {DEFAULT: "", "shared": "--algo shared", "ring": "--algo ring", "rd": "--algo recursive-doubling", "hd": "--algo halving-doubling",
             "tree": "--algo double-tree", "hier": "--algo hierarchical", "hring": "--algo hierarchical-ring"},
    "transport": {DEFAULT: "", "tcp": "--transport tcp", "shm": "--transport shm"},
    "progress": {DEFAULT: "", "thread": "--progress thread"},
    "encrypt": {DEFAULT: "", "on": "--encrypt-network"},
    "threads": {DEFAULT: "--threads 1", "2": "--threads 2", "default": ""},
    "loader": {DEFAULT: "", "1": "--loader-threads 1", "4": "--loader-threads 4", "auto": "--loader-threads auto"},
    "prefetch": {DEFAULT: "", "1K": "--prefetch 1K"},
    "stage": {DEFAULT: "", "on": "--stage {d}/stage"},
    "data": {DEFAULT: "--data {D}/train", "encrypted": "--data {D}/secret --key-file {D}/key"},
    "best": {DEFAULT: "", "top1": "--keep-best top1", "loss": "--keep-best loss --patience 50", "ema": "--keep-best ema-top1 --patience 50"},
    "eval": {"val": "--val {D}/{val}", "steps": "--val {D}/{val} --eval-steps 2", "first": "--val {D}/{val} --eval-first --eval-every 2", "none": ""},
    "metrics": {DEFAULT: "", "on": "--metrics {d}/m.prom"},
    "trace": {DEFAULT: "", "3:5": "--trace {d}/t.json --trace-steps 3:5", "4": "--trace {d}/t.json --trace-steps 4"},
    "samples": {DEFAULT: "", "on": "--log-samples {d}/samples"},
    "device": {DEFAULT: "", "emulated": "--device cuda --comm ucx"},
}
FIRST = {f: next(iter(v)) for f, v in FACTORS.items()}
# values that ask for others
NEEDS = {("pipe", "*"): {"parallel": "pipeline=2"}, ("recompute", "on"): {"parallel": "pipeline=2"}, ("spares", "1"): {"elastic": "1"},
         ("redundancy", "1"): {"elastic": "1", "shard": "optimizer"}, ("best", "ema"): {"ema": "on"}, ("freeze", "on"): {}}
TABLE = page.rows(SOURCE)


def leave_out(missing):
    """Takes values out that cannot run here; returns their names."""
    for f, v in missing:
        del FACTORS[f][v]
    return [f"{f}={v}" for f, v in missing]


def computes(precision):
    """Whether this processor has, or emulates, it."""
    return not tool(Place.data, "train", "--data", "train", "--model", "lenet", "--batch", "8", "--steps", "1", *FACTORS["precision"][precision].split())[0]


def missing_here():
    """Values that need what is not built or installed, or another processor; the data must be there."""
    there = {("device", "emulated"): EMULATED, ("launcher", "mpirun"): shutil.which("mpirun"), ("precision", "bf16"): computes("bf16"),
             ("precision", "emulated"): computes("emulated")}
    return [x for x in there if not there[x]]


def full(combo):
    return {**FIRST, **combo}


def given(combo):
    """What differs from the defaults."""
    return {f: v for f, v in combo.items() if v != FIRST[f]}


def pairs_of(c):
    return {frozenset(p) for p in itertools.combinations(c.items(), 2)}


def program(c):
    return EMULATED if c["device"] == "emulated" else GANNET


def world(c):
    """(data ranks, stages, slices, servers, spares) of a combination; data ranks 0 where the mesh is impossible."""
    n, p, t = int(c["ranks"]), 1, 1
    spares, servers = int(c["spares"] == "1"), int(c["update"] in ("sync", "async"))
    n -= spares + servers
    if c["parallel"] == "pipeline=N":
        p = n
    if c["parallel"] in ("pipeline=2", "both"):
        p = 2
    if c["parallel"] in ("tensor=2", "both"):
        t = 2
    return (n // (p * t) if n > 0 and n % (p * t) == 0 else 0), p, t, servers, spares


def trainers(c):
    _, _, _, servers, spares = world(c)
    return int(c["ranks"]) - servers - spares


def has_cut(c):
    """Its pipeline is cut where the driver says; stages update at other times elsewhere."""
    return c["pipe"] in ("pipedream", "decoupled") and c["parallel"] in ("pipeline=2", "pipeline=N") and world(c)[1] == 2


def arguments(c, folder, seed=None):
    """The arguments of gannet train, in the factors' order or in a random one."""
    texts = {"d": folder, "D": Place.data, "N": trainers(c), "model": c["model"],
             "val": "secret-val" if c["data"] == "encrypted" else "val", "first": "features.0" if c["model"] == "mobilenet_v2" else "conv1",
             "cut": f" --cut {CUTS[c['model']]}" if has_cut(c) else ""}
    groups = [FACTORS[f][c[f]].format(**texts).split() for f in FACTORS]
    if seed is not None:
        random.Random(seed).shuffle(groups)
    return [a for g in groups for a in g]


def conflicts(c):
    """The page's rows that refuse a combination."""
    return page.refused(TABLE, arguments(c, "/d"), trainers(c))


def mesh_fits(c):
    """Ranks, stages and what needs them."""
    d, p, t, servers, spares = world(c)
    piped = c["parallel"] in ("pipeline=2", "both") or (c["parallel"] == "pipeline=N" and p > 1)
    if d == 0 or (c["parallel"] == "pipeline=N" and (p < 2 or p > 3 + (c["model"] != "lenet"))):
        return False
    if (c["pipe"] != DEFAULT or c["recompute"] == "on") and not piped:
        return False
    batches = {DEFAULT: d, "accumulate": 2 * d}.get(c["steps_of"], 3)
    if batches < d or c["sync_bn"] == "2" and d % 2:
        return False
    if c["elastic"] == DEFAULT:
        return c["spares"] == c["redundancy"] == DEFAULT
    if c["parallel"] == "data" or c["shard"] != DEFAULT and c["parallel"] != DEFAULT:
        return False
    if c["redundancy"] == "1" and c["shard"] == DEFAULT and not piped:
        return False
    return c["elastic"] != "1:4" or batches >= 4 * max(1, p * t > 1)


def launch_fits(c):
    """What starts and interrupts a run."""
    if c["launcher"] != DEFAULT and (c["interrupt"] in ("term", "kill") or c["ranks"] == "1"):
        return False
    if c["launcher"] == "mpirun" and c["elastic"] != DEFAULT:
        return False  # it ends all ranks
    return c["interrupt"] != "ranks" or (c["steps_of"] == "global" and c["parallel"] == DEFAULT)


def usable(c):
    """What else a combination needs. Also left out: what takes long on few processors."""
    if not mesh_fits(c) or not launch_fits(c) or c["best"] == "ema" and c["ema"] == DEFAULT or c["best"] != DEFAULT and c["eval"] == "none":
        return False
    if c["resize"] == "on" and c["model"] != "resnet20" or c["threads"] == "2" and c["ranks"] in "34":
        return False
    return c["device"] != "emulated" or (c["model"] != "mobilenet_v2" and c["precision"] == DEFAULT)


def fits(c):
    """Whether a combination is to be accepted."""
    return usable(c) and not conflicts(c)


def with_needs(pairs):
    c = dict(FIRST)
    for f, v in pairs:
        for need in (NEEDS.get((f, "*"), {}) if v != FIRST[f] else {}, NEEDS.get((f, v), {})):
            c.update({k: w for k, w in need.items() if c[k] == FIRST[k]})
    c.update(pairs)
    return c
