"""One fault from its draw to the verdict: a run, the fault at its place, what came of it, and the resume of a run that did not end well."""
import os
import random
import shlex
import shutil
import signal
import threading
import traceback

import groups
import judge
import nodes
import strike
import ways
import worlds
from process import HANG, Place, Run, excerpt, read_log, remains, send

# a rank that starts late is held back before gannet begins
LATE = '[ "$PMIX_RANK" != "$0" ] || sleep "$1"; shift; exec "$@"'


def way_of(seed):
    table = ways.all_ways()
    return table[seed % len(table)]


def draw(seed):
    """The fault of a seed."""
    rng = random.Random(f"fault {seed}")
    fault = strike.Fault(seed, way_of(seed), rng, Place.private)
    if fault.kind == "losses":
        draw_losses(fault, rng)
    return fault


def draw_losses(fault, rng):
    """One to three victims, one behind the other."""
    kinds = ("kill", "kill", "kill", "stop", "pause", "pause")
    if fault.way.place == "nodes":
        kinds = ("kill", "kill", "stop", "pause", "cut", "cut", "blink", "blink")
        fault.nodes = min(rng.randrange(2, nodes.COUNT + 1), fault.ranks)
    fault.starts = rng.random() < 0.15
    fault.after = rng.randrange(1, ways.ELASTIC_STEPS * 6 // 10)
    for i in range(min(rng.randrange(1, 4), fault.ranks - 1)):
        gap = rng.randrange(200) if rng.randrange(3) else rng.randrange(3000)
        fault.strikes.append(((fault.victim + i) % fault.ranks, rng.choice(kinds), gap, rng.randrange(100, 5100) / 1000))


def words(fault):
    if not fault.strikes:
        return fault.words() if fault.kind != "random" else "random faults"
    where = "at start" if fault.starts else f"after step {fault.after}"
    on = f" on {fault.nodes} nodes" if fault.nodes else ""
    return f"{fault.ranks} ranks{on}, {where}: " + ", ".join(f"{k} of rank {r} after {w} waits" for r, k, w, _ in fault.strikes)


def start(fault, folder, data, more=()):
    """The run of a fault, or with more options its resume, which nothing strikes."""
    way, before = fault.way, ()
    seconds = {"stop": 8, "losses": 5}.get(fault.kind, 30) if not more else 30
    env = ways.limits(seconds)
    if way.lost == "elastic":
        env["GANNET_LOG"] = "debug"
    if seconds < 30:
        env["GANNET_JOIN_TIMEOUT"] = "20"
    if fault.kind == "losses" and not more:
        del env["GANNET_STALL_TIMEOUT"]
    if fault.kind == "late" and not more:
        before = ("sh", "-c", LATE, str(fault.victim), str(fault.pause))
    argv = [*ways.command(way, fault.ranks, folder, data, before), *more]
    if fault.evaluates:
        argv += ["--val", ways.data_of(way), "--eval-steps", "7"]
    if way.place == "nodes":
        return nodes.NodesRun(argv, folder, fault.ranks, fault.nodes, env)
    return Run(argv, folder, env)


# --- several losses ---

def strike_all(fault, run, ranks):
    """Strikes each victim after so many of its waits; pauses and cuts end by timers."""
    timers = []
    for rank, kind, gap, pause in fault.strikes:
        pid = ranks.get(rank)
        if not pid:
            continue
        strike.after_waits(run, pid, gap)
        fault.struck.add(rank)
        node = nodes.node_of(rank, fault.ranks, fault.nodes) if fault.nodes else 0
        if kind in ("cut", "blink"):
            fault.struck |= {r for r in ranks if nodes.node_of(r, fault.ranks, fault.nodes) == node}
            nodes.Lab.cut(node)
        if kind == "stop":
            fault.stopped[rank] = pid
        if kind in ("kill", "stop", "pause"):
            send(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        if kind in ("pause", "blink"):
            timers.append(threading.Timer(pause, send, (pid, signal.SIGCONT)) if kind == "pause" else threading.Timer(pause, nodes.Lab.heal, (node,)))
            timers[-1].start()
    return timers


def go(fault, run, folder):
    """The fault at its place, and the end of the run: (in time, exit code)."""
    log = folder + "/logs/log.jsonl"
    ranks = strike.await_place(fault, run, log)
    timers = []
    if fault.kind == "losses":
        timers = strike_all(fault, run, ranks)
    elif ranks or fault.kind.startswith(("full-", "stage-")):
        strike.KINDS[fault.kind](fault, run, ranks, folder)
    strike.until(run, lambda: strike.tend(fault, run, ranks, folder, log))
    code = run.wait(HANG) if not run.alive() else None
    for t in timers:
        t.join()
    return bool(ranks), code


# --- the verdict ---

def left_behind(fault, run):
    """A killed launcher's folder of temporary files is for the next launcher to remove."""
    killed = {"kill": 1, "stop": 1, "two": 2, "losses": fault.ranks, "kill-launcher": fault.ranks}.get(fault.kind, 0)
    return remains(run, killed, keeps_tmp=fault.kind == "kill-launcher")


def verdict(fault, folder, run, code, in_time):
    """Problems of the run that was struck, and whether it came to its end well."""
    text = run.text()
    lines = read_log(folder + "/logs/log.jsonl")[0]
    problems = [("fault", n) for n in fault.lines] + judge.text_problems(fault, text) + [("remains", w) for w in left_behind(fault, run)]
    if fault.kind == "losses" and in_time:
        more, well = worlds.losses(fault, folder, run, code, text)
        return problems + more, well
    ended = any(x["event"] == "end" for x in lines)
    allowed = judge.allowed_codes(fault) if in_time else {0}
    if ended and in_time:
        allowed = allowed | {0}  # it came when the run was about to end
    if code not in allowed:
        problems.append(("code", f"exit code {code}, not in {sorted(allowed)}"))
    elif in_time:
        problems += judge.cause_problems(fault, code, text, lines)
    problems += judge.whole(folder, fault)
    return problems, code == 0 and ended


def resume(fault, folder, data):
    strike.repair(fault, folder)
    if fault.nodes:
        nodes.Lab.begin()
    step = judge.newest(folder)
    run = start(fault, folder, data, ("--resume", "auto"))
    code = run.wait(HANG)
    if fault.nodes and code == 0:
        code = max(run.codes().values())
    text, problems = run.text(), []
    if code is None:
        run.end()
        problems.append(("hang", f"the resume, after {HANG} s"))
    elif code:
        problems.append(("resume", f"exit code {code}"))
    else:
        problems += judge.resume_problems(fault, folder, step, text)
    problems += judge.text_problems(fault, text) + [("remains", "after the resume: " + w) for w in remains(run)]
    run.end()
    return problems, text


def hung(run):
    text = run.text()
    run.end()
    remains(run)
    return [("hang", f"after {HANG} s")], text


def judged(fault, folder, result):
    """The whole of it, for all but groups."""
    data = strike.prepare(fault, folder)
    run = start(fault, folder, data)
    result["command"] = shlex.join(run.argv)
    in_time, code = go(fault, run, folder)
    result.update(in_time=in_time, code=code)
    if code is None:
        return hung(run)
    problems, well = verdict(fault, folder, run, code, in_time)
    text = excerpt(run.text())
    run.end()
    went_on = fault.kind == "losses" and in_time
    if not well or fault.kind == "full-log":
        more, again = resume(fault, folder, data)
        problems += more
        text += "--- resumed:\n" + excerpt(again)
    lost = went_on or fault.way.lost == "elastic" and fault.kind == "two"
    if not problems:
        problems += judge.finished(fault, folder, bits=not lost)
    return problems, text


def perform(seed):
    """Result of one fault: a dictionary of words."""
    fault = draw(seed)
    folder = Place.work + "/fault"
    strike.clean(folder)
    os.makedirs(folder)
    result = {"seed": seed, "way": fault.way.name, "kind": fault.kind, "problems": [], "text": "", "command": "", "in_time": True, "code": None}
    try:
        if fault.way.place == "nodes":
            nodes.Lab.begin()
        if fault.kind == "random":
            problems, text, run = groups.perform(fault, folder)
            result["command"] = shlex.join(run.argv)
        else:
            problems, text = judged(fault, folder, result)
        result.update(problems=problems, text=text)
    except judge.NoReference as e:
        result["problems"] = [("reference", str(e))]
    except Exception:  # of this test, which a point reports
        result["problems"] = [("driver", traceback.format_exc())]
    result["what"] = words(fault) + (f" ({fault.detail})" if fault.detail else "")
    strike.clean(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return result
