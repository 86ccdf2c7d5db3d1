"""Oracles of runs with --elastic that lost ranks. On one machine the steps of each world have the bits of a planned run: one of as many ranks that is
stopped at the same step and started again. On several nodes sums have another order, so that there the ledger of samples and the loss judge."""
import re

import ways
from judge import reference
from process import GANNET, HANG, Run, read_log, tool

LAST = 20  # steps whose mean loss is compared


def ledger(lines, back):
    """Checks that worlds follow each other, one at a time, that the steps of each follow each other, that the samples of finished steps follow
    each other without a gap or an overlap over all epochs, and that there is one end, the last line. back: a world may begin at any earlier
    step, that of a checkpoint. Returns (problems, [(ranks, step) of each world that finished steps, until which step])."""
    wrong, worlds, world, step, ended = [], [], 0, 0, 0
    for x in lines:
        where = f"{x['event']} of step {x.get('step')}"
        if ended:
            wrong.append(f"{where}: after the end")
        if x["event"] in ("start", "resume"):
            if x.get("world", 1) <= world:
                wrong.append(f"{where}: world {x.get('world', 1)} after {world}")
            world = x.get("world", 1)
            wrong += begins(worlds, x, step, back, where)
            step = x["step"]
            worlds.append(x)
        elif x["event"] == "step":
            step += 1
            if x["step"] != step:
                wrong.append(f"{where}: not {step}")
        elif x["event"] in ("end", "stop"):
            ended = x["step"]
            if ended != step:
                wrong.append(f"{where}: not {step}")
    if not ended:
        wrong.append("no end")
    spans = zip(worlds, [x["step"] for x in worlds[1:]] + [ended])
    return wrong, [(a["ranks"], until) for a, until in spans if until > a["step"]]


def begins(worlds, x, step, back, where):
    """Where a later world goes on. Worlds whose steps are done again are dropped."""
    wrong = []
    if worlds:
        # rank 0 may have been lost before it had written the last finished step, or when it alone had finished it
        if not (0 if back else step - 1) <= x["step"] <= step + 1:
            wrong.append(f"{where}: {step} steps were finished")
        while len(worlds) > 1 and worlds[-1]["step"] > x["step"]:
            worlds.pop()
        expected = advance(worlds[-1], x["step"])
        if (x["epoch"], x["sample"]) != expected:
            wrong.append(f"{where}: at {x['epoch'], x['sample']}, not {expected}")
    return wrong


def advance(begun, step):
    """Epoch and sample after the step, of a world that began there: an epoch ends when no whole global batch is left."""
    epoch, sample, batch = begun["epoch"], begun["sample"], begun["global_batch"]
    for _ in range(step - begun["step"]):
        if sample + batch > begun["images"]:
            epoch, sample = epoch + 1, 0
        sample += batch
    return (epoch, sample) if sample + batch <= begun["images"] else (epoch + 1, 0)


def mean_loss(lines):
    losses = [x["loss"] for x in lines if x["event"] == "step"][-LAST:]
    return sum(losses) / len(losses)


def planned(fault, folder, spans, batch):
    """The parameters of a run of as many ranks at each step that is stopped and started again."""
    way, digest = fault.way, ""
    options = way.options.replace("--accumulate 2", "").split()  # which --global-batch has
    for ranks, until in spans:
        argv = [*ways.base(way, ways.data_of(way)), *options, *(way.pipes.split() if ranks > 1 else [])]
        argv += ["--global-batch", str(batch), "--steps", str(until), "--checkpoint", folder + "/planned", "--resume", "auto"]
        argv += ["--log", folder + "/planned.jsonl"]
        run = Run([GANNET, "launch", "-n", str(ranks), "--", GANNET, *argv], folder, ways.limits(), "planned")
        code, text = run.wait(HANG), run.text()
        run.end()
        if code:
            return f"a planned run of {ranks} ranks until step {until} ended with {code}: {text[-500:]}"
        ends = [x for x in read_log(folder + "/planned.jsonl")[0] if x["event"] == "end"]
        digest = ends[-1]["params_sha256"]
    return digest


def codes_of(text, ranks):
    """Exit codes of the ranks, 137 of one that was killed, by the last line of gannet launch --keep-going."""
    codes = dict.fromkeys(range(ranks), 0)
    for line in re.findall(r"^gannet launch: (rank .*; \d+ of \d+ ranks succeeded)$", text, re.M)[-1:]:
        for rank, how, number in re.findall(r"rank (\d+) (was killed by signal|ended with code) (\d+)", line):
            codes[int(rank)] = int(number) + 128 * how.startswith("was")
    return codes


def came_to_its_end(fault, folder, text):
    """Problems of a run that lost ranks and went on."""
    way, problems = fault.way, []
    lines, bad = read_log(folder + "/logs/log.jsonl")
    problems += [("log", b) for b in bad]
    wrong, spans = ledger(lines, way.back)
    problems += [("ledger", w) for w in wrong]
    ends = [x for x in lines if x["event"] == "end"]
    if not ends or ends[-1]["step"] != ways.ELASTIC_STEPS:
        return problems + [("log", f"no end at step {ways.ELASTIC_STEPS}")]
    digest = ends[-1]["params_sha256"]
    said = set(re.findall(rf"parameters after step {ways.ELASTIC_STEPS}: ([0-9a-f]*)", text))
    if said != {digest}:
        problems.append(("bits", f"ranks hold different parameters: {said}, and the log has {digest}"))
    starts = [x for x in lines if x["event"] in ("start", "resume")]  # a rank may be lost before the first line
    if way.pipes and starts[0].get("mesh", {}).get("pipeline") != 2:
        problems.append(("mesh", "there were no pipelines"))
    if not problems and way.place == "one" and not way.scales:
        expected = planned(fault, folder, spans, starts[0]["global_batch"])
        if expected != digest:
            problems.append(("bits", f"parameters are not those of a stop and a start at {spans}: {digest}, not {expected}"))
    resumes = [x for x in lines if x["event"] == "resume"]
    cut = any(kind in ("cut", "blink") for _, kind, _, _ in fault.strikes)  # each side calls the other one lost
    if resumes and not cut and not set(map(int, re.findall(r"\brank (\d+)", str(resumes[0].get("after"))))) & fault.struck:
        problems.append(("cause", f"no rank that was struck is named by the line resume: {resumes[0].get('after')}"))
    if code := tool(folder, "info", folder + "/disk/run")[0]:
        problems.append(("checkpoint", f"gannet info ended with {code}"))
    return problems + loss_problems(fault, lines)


def loss_problems(fault, lines):
    """The loss is about that of a run without faults: the order of sums differs, and nothing else."""
    if fault.way.scales:
        return []
    mine, other = mean_loss(lines), reference(fault.way, fault.ranks)["loss"]
    return [] if abs(mine - other) < 0.05 + 0.1 * other else [("loss", f"{mine:.4f}, without faults {other:.4f}")]


def losses(fault, folder, run, code, text):
    """Problems of a run into which fault.strikes came. Returns them and whether it came to its end."""
    problems, ranks, way = [], fault.ranks, fault.way
    codes = run.codes() if way.place == "nodes" else codes_of(text, ranks)
    good = [r for r in codes if codes[r] == 0]
    for rank, c in codes.items():
        if c not in (0, 4, 137):
            problems.append(("code", f"rank {rank} ended with {c}, which is none of 0, 4 and 137"))
    if way.place == "one" and (code == 0) != bool(good):
        problems.append(("code", f"gannet launch ended with {code}, and ranks with {codes}"))
    if good:
        problems += came_to_its_end(fault, folder, text)
    elif not fault.starts and 2 * len(fault.struck) < ranks - way.spares:
        problems.append(("loss", f"enough ranks were left to go on: {sorted(fault.struck)} of {ranks} were struck"))
    return problems, bool(good)
