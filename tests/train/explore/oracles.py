"""What an accepted run of gannet train must leave: a log, the files that were asked for, a checkpoint that gannet eval reproduces. Each function
adds (kind, words) to problems for what is wrong."""
import array
import glob
import json
import math
import os
import re

from factors import DEFAULT, FIRST, program
from process import Place, read_log, tool

METRIC = re.compile(r'^(#.*|[a-z_0-9]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? (-?[0-9.e+-]+|NaN|[+-]Inf))$')
PRECISIONS = {"bf16": "bf16", "emulated": "bf16-emulated"}


def steps_follow(lines, decoupled, problems):
    """Steps rise from each start on, with finite losses; a decoupled pipeline's loss may come with a later step."""
    last = None
    for line in lines:
        if line["event"] in ("start", "resume"):
            last = line.get("step", 0)
        if line["event"] != "step":
            continue
        if last is not None and line["step"] <= last:
            problems.append(("log", f"step {line['step']} after {last}"))
        last = line["step"]
        if line["loss"] is None and decoupled:
            continue
        if not math.isfinite(line["loss"] if line["loss"] is not None else math.nan):
            problems.append(("finite", f"loss {line['loss']} in step {last}"))


def check_log(folder, c, problems, total):
    lines, wrong = read_log(folder + "/log.jsonl")
    problems += [("log", w) for w in wrong]
    steps_follow(lines, c["pipe"] == "decoupled", problems)
    if not lines or lines[-1]["event"] != "end" or lines[-1].get("step") != total:
        problems.append(("log", f"does not end with step {total}: {json.dumps(lines[-1])[:150] if lines else 'empty'}"))
    for argv in (["summary", "--json", "log.jsonl"], ["top", "--json", "log.jsonl"], ["report", "log.jsonl", "--out", "report", "--csv", "log.csv"]):
        rc, out, err = tool(folder, *argv)
        if rc:
            problems.append(("tools", f"gannet {' '.join(argv)} ended with {rc}: {err[:200]}"))
        elif "--json" in argv:
            try:
                json.loads(out)
            except ValueError as e:
                problems.append(("tools", f"gannet {' '.join(argv)}: {e}"))
    return lines


def check_files(folder, c, problems, total):
    """Those of --metrics and --trace."""
    if c["metrics"] == "on":
        with open(folder + "/m.prom") as f:
            text = f.read()
        bad = [line for line in text.splitlines() if not METRIC.match(line)]
        step = re.search(r"^gannet_train_step\{.*\} (.*)$", text, re.M)
        running = re.search(r"^gannet_train_running\{.*\} (.*)$", text, re.M)
        if bad or not running or running[1] != "0" or not step or float(step[1]) != total:
            problems.append(("metrics", f"bad lines {bad[:2]}, step {step and step[1]}, running {running and running[1]}"))
    if c["trace"] != DEFAULT:
        try:
            with open(folder + "/t.json") as f:
                events = json.load(f)["traceEvents"]
            if c["interrupt"] == DEFAULT and not [e for e in events if e.get("ph") == "X"]:
                problems.append(("trace", "no spans"))
        except (OSError, ValueError, KeyError) as e:
            problems.append(("trace", repr(e)))


def key_of(c):
    return ["--checkpoint-key", Place.data + "/key"] if c["ckpt"] == "key" else []


def check_checkpoint(folder, c, lines, problems):
    """It can be read, nothing lies beside it, and gannet eval gives what the run logged of it."""
    rc, _, err = tool(folder, "info", "--json", "ckpt", *key_of(c))
    if rc:
        problems.append(("checkpoint", f"info ended with {rc}: {err[:200]}"))
    if bad := [n for n in os.listdir(folder + "/ckpt") if n.endswith((".tmp", ".next")) or n in ("owner", "members")]:
        problems.append(("remains", f"in the checkpoint folder: {bad}"))
    evaluations = [x for x in lines if x["event"] == "eval"]
    if not evaluations or c["device"] != FIRST["device"]:
        return  # of a GPU's network the host's evaluation differs by rounding
    precision = ["--precision", PRECISIONS[c["precision"]]] if c["precision"] != DEFAULT else []
    rc, out, err = tool(folder, "eval", "--data", Place.data + "/val", "--checkpoint", "ckpt", "--batch", "8", *precision, *key_of(c))
    if rc:
        problems.append(("eval", f"gannet eval ended with {rc}: {err[:200]}"))
        return
    got, want, bound = json.loads(out), evaluations[-1], 2e-2 if precision else 2e-4
    far = abs(got["loss"] - want["loss"]) > bound * abs(want["loss"]) or abs(got["top1"] - want["top1"]) > (0.13 if precision else 1e-9)
    if got["step"] == want["step"] and far:
        problems.append(("eval", f"eval {got['loss']:.7g} {got['top1']:.4f}, logged {want['loss']:.7g} {want['top1']:.4f}"))


def samples_of(folder, total):
    """step: sorted images of all ranks, from --log-samples; a GPU takes a batch ahead, also in the last step."""
    steps = {}
    for path in glob.glob(folder + "/samples/*.jsonl"):
        with open(path) as f:
            for text in f:
                line = json.loads(text)
                images = next((v for v in line.values() if isinstance(v, list)), [])
                if line["step"] <= total:
                    steps.setdefault(line["step"], set()).update(map(str, images))
    return {s: sorted(i) for s, i in steps.items()}


def compare_samples(a, b, total, problems):
    one, other = samples_of(a, total), samples_of(b, total)
    if one != other:
        s = next((s for s in sorted(set(one) | set(other)) if one.get(s) != other.get(s)), None)
        problems.append(("samples", f"step {s}: {one.get(s)} instead of {other.get(s)}"))


def tensors(path):
    """{name: numbers} of the fp32 tensors of a safetensors file."""
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        head, body = json.loads(f.read(size)), f.read()
    return {name: array.array("f", body[slice(*t["data_offsets"])]) for name, t in head.items() if name != "__metadata__" and t["dtype"] == "F32"}


def exported(folder, c, problems, ema=False):
    """The parameters of a run's checkpoint; None, and a problem, where gannet export fails."""
    out = folder + ("/ema.safetensors" if ema else "/x.safetensors")
    rc, _, err = tool(folder, "export", "--checkpoint", "ckpt", "--out", out, *(["--ema"] if ema else []), *key_of(c), program=program(c))
    if rc:
        problems.append(("export", f"code {rc}: {err[:300]}"))
        return None
    return tensors(out)


def distance(a, b, start):
    """(|a - b| / |b - start| over the parameters without running statistics, whether a is finite)."""
    names = [n for n in b if "running_" not in n and "num_batches" not in n]
    if all(a.get(n) == b[n] for n in names):
        return 0.0, set(a) == set(b)
    far = way = 0.0
    for name in names:
        far += sum((x - y) ** 2 for x, y in zip(a[name], b[name]))
        base = start.get(name)
        way += sum((x - y) ** 2 for x, y in zip(b[name], base)) if base and len(base) == len(b[name]) else sum(x * x for x in b[name]) * 1e-4
    return math.sqrt(far) / max(math.sqrt(way), 1e-12), set(a) == set(b) and math.isfinite(far)
