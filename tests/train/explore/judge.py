"""Oracles of one fault: what its run and the resume of it must say, leave behind and compute. A problem is a pair: its kind, and words."""
import glob
import json
import os
import re
import shutil
import signal

import ways
from process import HANG, Place, Run, garbage_in, read_log, tool

KILLED = r"rank {0} was killed by signal 9|rank {0}(?: on \S+|, [^:]*,)? is lost"


def ends_of(folder):
    return [x for x in read_log(folder + "/logs/log.jsonl")[0] if x["event"] == "end"]


class NoReference(Exception):
    pass


def reference(way, ranks):
    """Digest and mean loss of a run without faults, computed once for all workers."""
    ranks -= way.spares
    path = f"{Place.data}/reference/{re.sub('[^a-z0-9]', '-', way.name.replace(' on nodes', ''))}-{ranks}.json"
    if not os.path.exists(path):
        folder = f"{Place.work}/reference"
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder + "/logs")
        run = Run(ways.command(way, ranks, folder, ways.data_of(way), plain=True), folder, ways.limits(), "reference")
        code, text = run.wait(HANG), run.text()
        run.end()
        ends = ends_of(folder)
        if code or not ends:
            raise NoReference(f"the run without a fault ended with {code}: {' '.join(run.argv)}\n{text[-1500:]}")
        steps = [x["loss"] for x in read_log(folder + "/logs/log.jsonl")[0] if x["event"] == "step"][-20:]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.{os.getpid()}", "w") as f:
            # decoupled stages log some losses late
            json.dump({"digest": ends[-1]["params_sha256"], "loss": sum(x or 0 for x in steps) / len(steps)}, f)
        os.rename(f"{path}.{os.getpid()}", path)
        shutil.rmtree(folder)
    with open(path) as f:
        return json.load(f)


# --- exit codes ---

def allowed_codes(fault):
    """Of a run whose fault came in time. At start a signal may find a process without its handlers, which ends it."""
    kind, early, alone = fault.kind, fault.starts, fault.way.place == "alone"
    worker = fault.way.lost == "worker"
    killed, terminated, interrupted = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT) if alone else (4, 4, 4)
    table = {"kill": {killed, *([0] if worker else [])},
             "stop": {4, *([0] if worker else [])}, "pause": {0}, "late": {0}, "stage-killed": {0}, "full-log": {0},
             "term": {5, *([terminated, 143] if early else [])},
             "term-launcher": {5, *([143, 4] if early else [])},
             "interrupt-twice": {5, 130, interrupted}, "kill-launcher": {-signal.SIGKILL},
             "two": {4, 5, *([143] if early else []), *([0] if worker else [])},
             "full-checkpoints": {0, 1}, "checkpoints-removed": {0, 1},
             "shard-truncated": {0, 3}, "shard-removed": {0, 3}, "shard-garbled": {0, 3}}
    return table[kind]


# --- what the text says ---

def stage_of(fault):
    """The victim's place in the mesh. All ranks are on one node, so that tensor groups and then pipelines are ranks in a row."""
    r, options = fault.victim, fault.way.options
    if "pipeline=2,tensor=2" in options:
        return f"stage {r // 2} of 2, slice {r % 2} of 2 of pipeline 0"
    if "tensor=2" in options:
        return f"slice {r % 2} of 2 of tensor group {r // 2}"
    stages = 2 if "pipeline=2" in options else fault.ranks
    return f"stage {r % stages} of {stages} of pipeline {r // stages}"


def first_error(text, pattern):
    """What the first error of a run says that the first cause is."""
    # a process that waits hears of the end before rank 0 has told why
    errors = [line for line in text.splitlines() if " ERROR " in line and "ended before this process was taken in" not in line]
    return [] if not errors or re.search(pattern, errors[0]) else [("cause", f"the first error is another: {errors[0][:300]}")]


def loss_named(fault, text):
    """The lost rank, in a pipeline with its stage, and no failure of another one but that it ended with code 4."""
    problems, r, two = [], fault.victim, fault.kind == "two"
    if fault.way.place == "alone":
        return []
    if not re.search(KILLED.format(r), text):
        problems.append(("cause", f"rank {r} is not named"))
    if not two and "--parallel" in fault.way.options and not fault.starts and f"rank {r}, {stage_of(fault)}, is lost" not in text:
        problems.append(("cause", f"rank {r}, {stage_of(fault)}, is not named"))
    # under --keep-going ranks wait for one that was killed before it could meet them, as long as they are told to
    unmet = ["a rank has ended before all had met", *[f"has waited for rank {r} for .* which has not come"] * (fault.way.lost == "worker")] if fault.starts else []
    problems += first_error(text, "|".join(unmet + [KILLED.format(x) for x in ([r, fault.other] if two else [r])]))
    return problems if two else problems + others_problems(text, {r})


def others_problems(text, struck):
    """Ranks but those that were struck may have ended with code 4 alone."""
    problems = []
    for line in re.findall(r"^gannet launch: (.*rank.*)$", text, re.M):
        for rank, how in re.findall(r"rank (\d+) ((?:was killed|ended with code) [^,;]*)", line):
            if int(rank) not in struck and how.strip() != "ended with code 4":
                problems.append(("others", f"rank {rank} {how}"))
    return problems


def worker_named(fault, lines, text):
    """A worker is lost, and the others come to the last step."""
    problems, r, workers = [], fault.victim, fault.ranks - 1
    if [x.get("rank") for x in lines if x["event"] == "worker_lost"] != [r]:
        problems.append(("log", f"no line names the lost worker, rank {r}"))
    if not re.search(rf"a worker is lost: rank {r} on .* is lost: .*; the run goes on with {workers - 1} of {workers}", text):
        problems.append(("cause", f"rank {r} is not named"))
    if not re.search(rf"rank {r} (was killed by signal|ended with code 4).*; {workers} of {workers + 1} ranks succeeded", text):
        problems.append(("others", "the others did not all succeed"))
    return problems


def cause_problems(fault, code, text, lines):
    """The first cause has to be in the text."""
    kind, early = fault.kind, fault.starts
    ended = any(x["event"] == "end" for x in lines)
    if kind in ("kill", "stop", "two") and code in (0, 4):
        if code == 0 and fault.way.lost == "worker" and kind != "two":
            return worker_named(fault, lines, text)
        return [] if ended else loss_named(fault, text)
    if kind == "full-checkpoints" and code == 1:
        said = re.search(r"disk/run\S*.*(No space left|room)|(No space left|room).*disk/run", text)
        return first_error(text, "No space left|room") if said else [("cause", "no space, and where, is not said")]
    if kind == "checkpoints-removed" and code == 1:
        return [] if re.search(r"ERROR.*disk/run", text) else [("cause", "the folder is not named")]
    if kind.startswith("shard-") and code == 3:
        return first_error(text, re.escape(fault.detail)) or ([] if fault.detail in text else [("cause", f"{fault.detail} is not named")])
    if kind in ("term", "term-launcher", "interrupt-twice") and code == 4 and not early:
        return [("cause", "a rank that was asked to stop is called lost")] if kind == "term" else []
    if kind == "full-log" and not ended and "cannot write the log" not in text:
        return [("cause", "nothing says that lines of the log were lost")]
    if code == 5 and kind == "term" and ended and "stopped on request while it waited to be taken in" in text:
        return []  # the spare alone, which no other rank waits for
    if code == 5:
        return stopped_whole(fault, lines)
    return []


def stopped_whole(fault, lines):
    """A run that stopped on request says at which step, unless it had not begun."""
    if fault.starts and not lines:
        return []
    stops = [x for x in lines if x["event"] == "stop"]
    return [] if len(stops) == 1 and lines[-1] is stops[0] else [("log", f"a run that stopped has no line stop at its end: {lines[-1:]}")]


# --- what is left ---

def newest(folder):
    """Step of the newest checkpoint; -1 without one."""
    return max([int(p[-8:]) for p in glob.glob(folder + "/disk/run/step-????????")], default=-1)


def resume_problems(fault, folder, step, text):
    """A resume goes on from the newest checkpoint that there was; with those on the nodes' disks perhaps from a newer one."""
    found = re.search(r"resumed from \S+: step (\d+)", text)
    if step < 0 or found and (int(found[1]) == step or "--checkpoint-local" in fault.way.options and int(found[1]) > step):
        return []
    return [("resume", f"the newest checkpoint is of step {step}, and it resumed {found[0] if found else 'from none'}")]


def whole(folder, fault):
    """Whatever has a checkpoint's name can be read."""
    problems = []
    for path in sorted(glob.glob(folder + "/disk/run/step-*")):
        if os.path.isdir(path) and not path.endswith(".tmp"):
            code, _, err = tool(folder, "info", path)
            if code:
                problems.append(("checkpoint", f"{os.path.basename(path)} cannot be read: {code}: {err[:300]}"))
    return problems


def parameters(fault, folder):
    """Whether a finished run has those of a run without a fault, where the way promises it."""
    way, ends = fault.way, ends_of(folder)
    paced = way.bits == "paced" and fault.kind in ("term", "term-launcher", "interrupt-twice", "two")
    if not ends or ends[-1].get("step") != ways.steps_of(way):
        return [("log", f"no end at step {ways.steps_of(way)}: {ends[-1:]}")]
    if way.bits == "never" or paced:
        return []
    expected = reference(way, fault.ranks)["digest"]
    return [] if ends[-1]["params_sha256"] == expected else [("bits", f"parameters {ends[-1]['params_sha256'][:16]}, without a fault {expected[:16]}")]


def finished(fault, folder, bits=True):
    """A run that came to its end: its log, its checkpoints, its parameters."""
    lines, wrong = read_log(folder + "/logs/log.jsonl")
    # the line that was written when the disk was full, or by a process that was killed: a write ends early at the end of a page
    torn = fault.kind in ("full-log", "kill", "kill-launcher", "two") and len(wrong) == 1 and "is no JSON" in wrong[0]
    problems = [] if torn else [("log", w) for w in wrong]
    if not lines or lines[-1]["event"] != "end" or lines[-1].get("step") != ways.steps_of(fault.way):
        problems.append(("log", f"does not end with step {ways.steps_of(fault.way)}: {json.dumps(lines[-1:])[:200]}"))
    names = os.listdir(folder + "/disk/run") if os.path.isdir(folder + "/disk/run") else []
    bad = [n for n in names if n.endswith((".tmp", ".next")) or n in ("owner", "members")]
    if bad:
        problems.append(("remains", f"in the checkpoint folder: {' '.join(bad)}"))
    code, _, err = tool(folder, "info", folder + "/disk/run")
    if code:
        problems.append(("checkpoint", f"gannet info ended with {code}: {err[:300]}"))
    return problems + (parameters(fault, folder) if bits else [])


def text_problems(fault, text):
    found = garbage_in(text, fault.kind == "losses" or fault.starts and fault.kind in ("kill", "two"))
    return [("garbage", found)] if found else []
