#!/usr/bin/python3
"""Random faults in every way of training: ranks and launchers are killed, stopped, asked to end and late, links are cut, disks are full, data and
checkpoints are damaged. A run ends with the documented code and names the first cause, leaves nothing behind but whole checkpoints, and when it is
resumed ends with the parameters of a run without a fault, where training.md promises them.

GN_FAULTS faults (20) from seed GN_SEED on (random); of the ways of training those whose names match GN_WAYS; GN_JOBS at a time (as many as there are
processors, at most 2). Each fault follows from its own seed, and its point says how it is repeated. Links and full disks need root.
"""
import ctypes
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.realpath(__file__ + "/../explore"))
import nodes
import process
import trial
import ways

PR_SET_PDEATHSIG = 1


def seeds(first, count, pattern, has_nodes):
    """Seeds from the first one on whose ways match, and are possible here."""
    table = ways.all_ways()
    try:
        re.compile(pattern)
    except re.error as e:
        process.leave(f"GN_WAYS='{pattern}' is no regular expression: {e}")
    possible = [bool(re.search(pattern, w.name)) and (has_nodes or not w.needs_root()) for w in table]
    if not any(possible):
        process.leave(f"GN_WAYS='{pattern}' matches no way that is possible here, of: {', '.join(dict.fromkeys(w.name for w in table))}")
    found, seed = [], first
    while len(found) < count:
        if possible[seed % len(table)]:
            found.append(seed)
        seed += 1
    return found


def enter(scratch):
    """A worker ends with its parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    process.enter(scratch)
    if process.Place.private:  # runs in memory: the disk's syncs would take most of the time
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2G", "none", process.Place.work], check=True)
        os.makedirs(process.Place.work + "/tmp")


def report(number, r):
    late = "" if r["in_time"] else ", too late"
    print(f"{'not ok' if r['problems'] else 'ok'} {number} - GN_SEED={r['seed']} GN_FAULTS=1: {r['way']}: {r['what']}{late}", flush=True)
    if r["problems"]:
        lines = [f"{kind}: {text}" for kind, text in r["problems"]] + [f"exit code {r['code']} of: {r['command']}"] + [r["text"]]
        for line in "\n".join(lines).splitlines():
            print("# " + line, flush=True)


def explore(scratch, chosen, jobs, has_nodes):
    """Runs the faults and prints a point for each. Returns how many points there were, and how many of them failed."""
    number = late = failed = 0
    with multiprocessing.Pool(jobs, enter, (scratch,)) as pool:
        for r in pool.imap(trial.perform, chosen):
            number += 1
            late += not r["in_time"]
            failed += bool(r["problems"])
            report(number, r)
    print(f"# {number - late} faults came while ranks trained, {late} when the run was over")
    if len(chosen) >= 20:
        number += 1
        failed += 4 * late > 3 * len(chosen)
        print(f"{'ok' if 4 * late <= 3 * len(chosen) else 'not ok'} {number} - at least a quarter of the faults come while ranks train")
    if not has_nodes:
        number += 1
        print(f"ok {number} - cut links and full disks # SKIP namespaces and mounts need root")
    return number, failed


def main():
    first, count = process.number("GN_SEED", random.randrange(1, 1000000), 0), process.number("GN_FAULTS", 20)
    jobs = process.number("GN_JOBS", min(2, len(os.sched_getaffinity(0))))
    process.begin()
    has_nodes = nodes.usable()
    chosen = seeds(first, count, os.environ.get("GN_WAYS") or "", has_nodes)
    print(f"# GN_SEED={first} GN_FAULTS={count}", flush=True)
    scratch = tempfile.mkdtemp(prefix="gn-faults.", dir="/tmp")
    try:
        process.pack(scratch, ways.packed())
        for name in ("key", "secret"):
            with open(os.open(f"{scratch}/data/{name}", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
                f.write(os.urandom(32))
        number, failed = explore(scratch, chosen, jobs, has_nodes)
        print(f"1..{number}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
