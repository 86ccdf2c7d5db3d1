"""Places and kinds of faults. A place is counted in what the run does: steps in its log, and waits (voluntary context switches) of the victim, so
that a slow machine strikes where a fast one does."""
import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import time

import ways
from process import HANG, GANNET, Place, Run, send, tool

SHORT = 0.001  # seconds between two looks at a counter
DISK, LOGS = "100M", "4M"


class Fault:
    """What one seed means. kind and the victims are drawn from those that the way has."""

    def __init__(self, seed, way, rng, root):
        self.seed, self.way, self.rng = seed, way, rng
        self.kind = rng.choice([k for k in way.kinds if root or k not in ways.NEED_ROOT])
        self.ranks = rng.choice(way.ranks)
        self.victim = rng.randrange(self.ranks)
        self.other = (self.victim + rng.randrange(1, self.ranks)) % self.ranks if self.ranks > 1 else self.victim
        self.starts = rng.random() < 1 / 3 or self.kind == "late"
        self.after = rng.randrange(1, ways.steps_of(way) * 7 // 10)
        self.waits = 0 if self.kind == "late" else rng.randrange(110) if self.starts else rng.randrange(15)
        self.pause = rng.randrange(100, 1000) / 1000
        self.again = rng.randrange(20)
        self.evaluates = rng.random() < 0.2 and way.bits == "always" and way.lost == "ends"
        self.nodes, self.strikes = 0, []
        self.detail, self.struck, self.stopped, self.lines = "", set(), {}, []

    def words(self):
        where = f"{'start' if self.starts else f'step {self.after}'} and {self.waits} waits of rank {self.victim} of {self.ranks}"
        return f"{self.kind} after {where}{', with evaluations' if self.evaluates else ''}"

    def note(self, text):
        self.lines.append(text)


class Waits:
    """Counts the waits of a process, those of threads that have ended meanwhile included."""

    def __init__(self, pid):
        self.pid, self.threads = pid, {}

    def count(self):
        for path in glob.glob(f"/proc/{self.pid}/task/*/status"):
            with contextlib.suppress(OSError, TypeError):
                with open(path) as f:
                    self.threads[path] = int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", f.read(), re.M)[1])
        return sum(self.threads.values())


def state(pid):
    """R, S, T and so on; empty where the process has ended."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0].replace("Z", "").replace("X", "")
    except OSError:
        return ""


def steps_in(log):
    try:
        with open(log, "rb") as f:
            return f.read().count(b'"event": "step"')
    except OSError:
        return 0


def has_ended(log):
    try:
        with open(log, "rb") as f:
            return b'"event": "end"' in f.read()
    except OSError:
        return False


def until(run, condition):
    """Waits for a condition, as long as the run lasts. Returns what the condition gave."""
    while not (found := condition()) and run.alive() and time.monotonic() < run.started + HANG:
        time.sleep(SHORT)
    return found


def after_waits(run, pid, more, from_start=False):
    """Until a process has waited so many times more, or has ended."""
    waits = Waits(pid)
    count = more if from_start else waits.count() + more
    until(run, lambda: waits.count() >= count or not state(pid))


def await_place(fault, run, log):
    """Until the run is at the fault's place. Returns the processes of its ranks, or none when the run was over before."""
    if not fault.starts:
        until(run, lambda: steps_in(log) >= fault.after)
        begun = run.ranks()
    else:
        until(run, lambda: fault.victim in run.ranks())
        begun = run.ranks()
    pid = begun.get(fault.victim)
    if pid:
        after_waits(run, pid, fault.waits, fault.starts)
    ranks = {**begun, **run.ranks()}
    return ranks if run.alive() and not has_ended(log) and fault.victim in ranks else {}


# --- kinds: each gets the fault, the run, the processes of its ranks, and the run's folder ---

def kill(fault, run, ranks, folder):
    send(ranks[fault.victim], signal.SIGKILL)


def stop(fault, run, ranks, folder):
    fault.stopped[fault.victim] = ranks[fault.victim]
    send(ranks[fault.victim], signal.SIGSTOP)


def pause(fault, run, ranks, folder):
    send(ranks[fault.victim], signal.SIGSTOP)
    time.sleep(fault.pause)
    send(ranks[fault.victim], signal.SIGCONT)
    fault.detail = f"for {fault.pause} s"


def late(fault, run, ranks, folder):
    """The rank's shell was held back before gannet began."""
    fault.detail = f"by {fault.pause} s"


def term(fault, run, ranks, folder):
    send(ranks[fault.victim], signal.SIGTERM)


def two(fault, run, ranks, folder):
    kill(fault, run, ranks, folder)
    second, number = fault.other, fault.rng.choice([signal.SIGKILL, signal.SIGTERM])
    if second in ranks:
        after_waits(run, ranks[second], fault.again)
        send(ranks[second], number)
    fault.detail = f"and signal {int(number)} to rank {second} {fault.again} waits later"


def term_launcher(fault, run, ranks, folder):
    run.process.send_signal(signal.SIGTERM)


def kill_launcher(fault, run, ranks, folder):
    run.process.kill()


def interrupt_twice(fault, run, ranks, folder):
    """The second signal counts half a second after the first one."""
    run.process.send_signal(signal.SIGINT)
    if fault.again < 10:
        time.sleep(0.55)
    else:
        after_waits(run, ranks[fault.victim], fault.again)
    if run.alive():
        run.process.send_signal(signal.SIGINT)


def fill(folder):
    """Takes what is free of a small disk."""
    try:
        with open(folder + "/filler", "ab", buffering=0) as f:
            for size in (1 << 20, 1 << 16, 1 << 12):
                with contextlib.suppress(OSError):
                    while f.write(bytes(size)) == size:
                        pass
    except OSError:
        pass


def full_checkpoints(fault, run, ranks, folder):
    fill(folder + "/disk")


def full_log(fault, run, ranks, folder):
    fill(folder + "/logs")


def shard_of(fault, folder):
    shard = fault.rng.choice(sorted(glob.glob(folder + "/data/shard-*.h5")))
    fault.detail = os.path.basename(shard)
    return shard


def shard_truncated(fault, run, ranks, folder):
    shard = shard_of(fault, folder)
    os.truncate(shard, fault.rng.randrange(os.path.getsize(shard)))


def shard_removed(fault, run, ranks, folder):
    os.unlink(shard_of(fault, folder))


def shard_garbled(fault, run, ranks, folder):
    shard = shard_of(fault, folder)
    with open(shard, "r+b") as f:
        f.seek(fault.rng.randrange(os.path.getsize(shard) // 2))
        f.write(fault.rng.randbytes(6000))


def checkpoints_removed(fault, run, ranks, folder):
    shutil.rmtree(folder + "/disk/run", ignore_errors=True)


def stage_killed(fault, run, ranks, folder):
    """gannet stage beside the run, killed after so many waits; then it is started again."""
    copy = Run([GANNET, "stage", "--from", Place.data + "/train", "--to", folder + "/copy"], folder, name="stage")
    after_waits(copy, copy.process.pid, fault.again, True)
    copy.process.kill()
    copy.left()
    copy.end()
    for argv in (["stage", "--from", Place.data + "/train", "--to", folder + "/copy"], ["verify", folder + "/copy"]):
        code, _, err = tool(folder, *argv)
        if code:
            fault.note(f"gannet {argv[0]} after a kill of gannet stage ended with {code}: {err}")


KINDS = {k.__name__.replace("_", "-"): k for k in (kill, stop, pause, late, term, two, term_launcher, kill_launcher, interrupt_twice, full_checkpoints,
                                                   full_log, shard_truncated, shard_removed, shard_garbled, checkpoints_removed, stage_killed)}


# --- what a kind needs before the start and after the end ---

def prepare(fault, folder):
    """Folders of a run. Returns the folder of its data, a copy of its own where the data are damaged."""
    for name, size in (("disk", DISK), ("logs", LOGS)):
        os.makedirs(f"{folder}/{name}")
        if fault.kind == {"disk": "full-checkpoints", "logs": "full-log"}[name]:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + size, "none", f"{folder}/{name}"], check=True)
    if fault.kind.startswith("shard-"):
        shutil.copytree(ways.data_of(fault.way), folder + "/data")
        return folder + "/data"
    return ways.data_of(fault.way)


def tend(fault, run, ranks, folder, log):
    """While the run goes on: a full disk stays full; a rank that is stopped is let go when nobody waits for it."""
    if fault.kind == "full-checkpoints":
        fill(folder + "/disk")
    elif fault.kind == "full-log":
        fill(folder + "/logs")
    others = [p for r, p in ranks.items() if r not in fault.stopped]
    if fault.stopped and (has_ended(log) or not any(map(state, others))):
        quiet = time.monotonic() + 8  # for the launcher, which kills it 2 s after a failure
        while run.alive() and not has_ended(log) and time.monotonic() < quiet:
            time.sleep(0.01)
        for pid in fault.stopped.values():
            send(pid, signal.SIGCONT)
        fault.stopped.clear()


def repair(fault, folder):
    """The disk is larger and the data are whole again."""
    for name in ("disk", "logs"):
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}/{name}/filler")
    if fault.kind.startswith("shard-"):
        shutil.rmtree(folder + "/data")
        shutil.copytree(ways.data_of(fault.way), folder + "/data")
    os.makedirs(folder + "/disk", exist_ok=True)


def clean(folder):
    for name in ("disk", "logs"):
        if os.path.ismount(f"{folder}/{name}"):
            subprocess.run(["umount", "-l", f"{folder}/{name}"], check=False)
    shutil.rmtree(folder, ignore_errors=True)
