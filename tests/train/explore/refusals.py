"""What is refused: with code 2, once for all ranks, by the same words in any order of options and under each launcher, naming both options and
what to do, before ranks have met."""
import json
import os
import re
import shlex
import shutil
import subprocess

import cover
import factors
import launchers
from factors import DEFAULT, FACTORS, full, with_needs
from process import HANG, Place, environment, marked, send

NEVER = {"ranks", "interrupt", "launcher"}  # of these no option tells


def without_row(pairs):
    return {p for p in pairs if not factors.conflicts(with_needs(list(p)))}


def jobs(rng, count=None):
    """(combination, seed) of each refused pair of values, or of so many; ranks are what the mesh needs."""
    some = 60 if count is None else count // 3
    pairs = [p for p in sorted(map(sorted, cover.all_pairs())) if not NEVER & {p[0][0], p[1][0]} and factors.conflicts(with_needs(p))]
    if count is not None:
        pairs = rng.sample(pairs, min(count - some, len(pairs)))
    found = []
    for p in pairs:
        c = with_needs(p)
        c["ranks"] = "4" if "both" in dict(p).values() else rng.choice("234")
        for f in rng.sample([f for f in FACTORS if f not in dict(p) and f not in NEVER and c[f] == factors.FIRST[f]], 4):
            v = rng.choice(list(FACTORS[f]))  # more options beside them, which change nothing
            more = {**c, f: v}
            if factors.conflicts(more) == factors.conflicts(c) and factors.usable(more):
                c = more
        found.append((c, rng.randrange(10**6)))
    return found + [(senseless(rng), rng.randrange(10**6)) for _ in range(some)]


def senseless(rng):
    """A few values that no row refuses, and that do not fit otherwise: an option without what it is of, ranks that no mesh has. It may be accepted."""
    while True:
        c = full({f: rng.choice(list(FACTORS[f])) for f in rng.sample([f for f in FACTORS if f not in NEVER], rng.randrange(2, 9))} | {"ranks": rng.choice("234")})
        if not factors.usable(c) and not factors.conflicts(c) and c["elastic"] == DEFAULT:
            return c


def errors_of(text):
    return [re.sub(r"^\S+ ", "", x.split(" ERROR ", 1)[1]) for x in text.splitlines() if " ERROR " in x]


def started(c, command, folder, env=None, mark="GN_EXPLORED=refusal"):
    """(exit code or None when it hangs, text)."""
    argv, more = launchers.started(c, command, folder)
    name, value = mark.split("=")
    try:
        r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=HANG, cwd=folder, stdin=subprocess.DEVNULL,
                           env=environment(folder, {"OMP_NUM_THREADS": "1", name: value, **more, **(env or {})}))
    except subprocess.TimeoutExpired as e:
        for pid in marked(mark):
            send(pid, 9)
        return None, (e.stdout or b"").decode(errors="replace") if isinstance(e.stdout, bytes) else e.stdout or ""
    return r.returncode, r.stdout


def alone(command, folder):
    """Rank 0 of two, whose peer never comes: one that waited for it would end otherwise."""
    secret = folder + "/secret"
    with open(os.open(secret, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as f:
        f.write(bytes(32))
    env = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launchers.free_port()), "GANNET_SECRET_FILE": secret,
           "GANNET_JOIN_TIMEOUT": "1"}
    return started({"ranks": "1"}, command, folder, env)


def told(c, launcher, argv, folder, problems):
    """(exit code, the one error) under a launcher."""
    rc, text = started({**c, "launcher": launcher}, argv, folder)
    errors = errors_of(text)
    if rc is None:
        problems.append(("hang", f"{launcher}: {text[-400:]}"))
    elif rc == 2 and len(errors) != 1:
        problems.append(("once", f"{launcher}: {len(errors)} errors: {text[-600:]}"))
    elif rc not in (0, 2):
        problems.append(("code", f"{launcher}: {rc} instead of 2: {text[-600:]}"))
    return rc, errors[0] if errors else ""


def refuse(job):
    combo, seed = job
    c, problems, folder = full(combo), [], Place.work + "/refused"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    result, texts, is_row = {"combo": combo, "problems": problems, "commands": [], "what": "refused"}, {}, bool(factors.conflicts(c))
    for i, launcher in enumerate(FACTORS["launcher"]):
        argv = [factors.program(c), "train", *factors.arguments(c, folder, seed + i if i else None), "--batch", "8", "--steps", "2", "--checkpoint", folder + "/ckpt"]
        rc, texts[launcher] = told(c, launcher, argv, folder, problems)
        command, variables = launchers.started({**c, "launcher": launcher}, argv, folder)
        result["commands"].append(" ".join(f"{k}={v}" for k, v in variables.items()) + " " + shlex.join(command))
        if rc == 0 and not is_row:
            return {**result, "what": "accepted"}
        if rc == 0:
            problems.append(("accepted", f"{launcher}: though a row refuses it"))
    if len(set(texts.values())) > 1:
        problems.append(("words", json.dumps(texts)))
    if is_row:
        words_of(c, next(iter(texts.values())), problems)
        rc, text = alone(argv, folder)
        if rc != 2:
            problems.append(("waits", f"RANK=0 of WORLD_SIZE=2 alone: code {rc}: {text[-400:]}"))
    return result


def words_of(c, text, problems):
    """Both options of one of the rows that refuse it, and what to do."""
    rows = [(a.split()[0], b.split()[0]) for a, b, _ in factors.conflicts(c)]
    named = set(re.findall(r"--[a-z][a-z-]+", text))
    if not any(set(r) <= named for r in rows) and len(named & set(factors.arguments(c, ""))) < 3:  # some are of three options
        problems.append(("names", f"none of {rows}: {text}"))
    if not re.search(r"\b(give|leave|start) ", text):
        problems.append(("remedy", text))
