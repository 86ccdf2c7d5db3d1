#!/usr/bin/python3
"""All pairs of options of gannet train, from a seed: runs of a few steps, each of a combination that covers as many pairs as it can, against the
plain run that the page training.md promises the results of; and refusals, in several orders of options and under each launcher.

    GN_SEED=N       the seed (default: random; .ci/run gives the commit's)
    GN_PAIRS=N      so many combinations and as many refusals (default 20), without the values that take long; or all: until all pairs are
                    covered, and each refused pair
    GN_COMBO=JSON   one combination alone, such as '{"ranks": "3", "shard": "optimizer"}'; with GN_MINIMISE=1 the smallest part that fails
    GN_JOBS=N       combinations at a time (default: processors)
"""
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)) + "/explore")
import cover  # noqa: E402
import factors  # noqa: E402
import launchers  # noqa: E402
import oracles  # noqa: E402
import process  # noqa: E402
import reference  # noqa: E402
import refusals  # noqa: E402
from factors import DEFAULT, full, given  # noqa: E402

TOTAL = 8  # steps of a run


def perform(c, folder, total, batch, more, rng, problems, reference=False):
    """Starts, interrupts and resumes a combination; (exit code, commands, what the last start said)."""
    os.makedirs(folder, exist_ok=True)
    trial = launchers.Trial(c, folder, total, batch, more, problems)
    interrupt = DEFAULT if reference else c["interrupt"]
    rc, text = 0, ""
    if interrupt in ("split", "ranks"):
        rc, text = trial.half(other_ranks(c) if interrupt == "ranks" else c)
    elif interrupt in ("term", "kill"):
        rc, text = trial.broken(interrupt, rng.randrange(1, 4))
    if rc == 0:
        rc, text = trial.whole(resume=interrupt != DEFAULT)
    return rc, trial.commands, text


def other_ranks(c):
    other = {**c, "ranks": {"1": "2", "2": "1", "3": "2", "4": "3"}[c["ranks"]]}
    return other if factors.fits(other) else c


def check_accepted(c, folder, problems, result, rng):
    lines = oracles.check_log(folder + "/a", c, problems, TOTAL)
    oracles.check_files(folder + "/a", c, problems, TOTAL)
    oracles.check_checkpoint(folder + "/a", c, lines, problems)
    mine = oracles.exported(folder + "/a", c, problems)
    plain = reference.reference_of(c)
    if not mine or any(not math.isfinite(x) for t in mine.values() for x in t):
        problems.append(("finite", "parameters"))
        return
    if not plain.promise:
        return
    rc, more, text = perform(plain.combo, folder + "/b", TOTAL, plain.batch, plain.more, rng, [], reference=True)
    result["commands"] += ["# the plain run:"] + more
    if rc != 0:
        problems.append(("reference", f"the plain run ended with {rc}: {text[-400:]}"))
        return
    reference.compare(perform, c, plain, folder, TOTAL, mine, problems, result)
    if c["samples"] == "on" and c["interrupt"] in (DEFAULT, "split", "ranks"):
        oracles.compare_samples(folder + "/a", folder + "/b", TOTAL, problems)


def overflows(c, folder, rng, result):
    """Whether the plain run has no finite numbers either: batch norm over the two values of a channel that small micro-batches have. Of
    asynchronous updates, which promise no plain run, that of synchronous ones."""
    plain = reference.reference_of({**c, "update": DEFAULT})
    if not plain.promise:
        return False
    rc, more, text = perform(plain.combo, folder + "/b", TOTAL, plain.batch, plain.more, rng, [], reference=True)
    result["commands"] += ["# the plain run:"] + more
    return rc == 1 and "are not finite at" in text


def explore(job):
    """One combination against its oracles."""
    combo, seed = job
    c, rng, problems = full(combo), random.Random(seed), []
    folder = process.Place.work + "/run"
    shutil.rmtree(folder, ignore_errors=True)
    if c["interrupt"] in ("split", "ranks"):
        c["lr"] = "constant"  # others depend on the number of steps
    begun = time.monotonic()
    result = {"combo": given(combo), "seed": seed, "problems": problems, "commands": [], "what": "fails"}
    try:
        rc, result["commands"], text = perform(c, folder + "/a", TOTAL, 8, [], rng, problems)
        if rc == 1 and c["pipe"] in reference.ASYNC_PIPES and "are not finite at step" in text:
            pass  # as documented: such a run ends
        elif rc == 1 and "are not finite at" in text and overflows(c, folder, rng, result):
            result["overflows"] = True
        elif rc == 2:
            problems.append(("refused", f"no row of {factors.page.PAGE} refuses it: {text[-400:]}"))
        elif rc == 0:
            check_accepted(c, folder, problems, result, rng)
        elif not problems:
            problems.append(("code", f"ended with {rc}: {text[-900:]}"))
    except Exception:  # the driver's own, with the combination that has it
        problems.append(("driver", traceback.format_exc()))
    result["seconds"] = time.monotonic() - begun
    if not problems:
        result["what"] = (f"{result['distance']:.1g} from the plain run ({result['promise']})" if "distance" in result
                          else "no finite numbers, as in the plain run" if result.get("overflows") else "no plain run is promised")
    return result


def calls_of_data():
    common, held = ["--synthetic", "96", "--classes", "4", "--size", "28x28", "--shard-bytes", "20K"], ["--synthetic", "24", "--classes", "4", "--size", "28x28", "--seed", "5"]
    yield from (["pack", "--out", "train", *common], ["pack", "--out", "secret", *common, "--encrypt", "key"],
                ["pack", "--out", "val", *held], ["pack", "--out", "secret-val", *held, "--encrypt", "key"])
    for model, more in factors.MODELS.items():
        for name, rate, seed in ((model, "0.02", "7"), ("start-" + model, "1e-30", "1"), ("formula-" + model, "1e-30", "formula")):
            yield ["train", "--data", "train", "--model", model, *more.split(), "--batch", "8", "--steps", "2", "--lr", rate,
                   *(["--init", seed] if seed == "formula" else ["--seed", seed]), "--checkpoint", "c-" + name]
            yield ["export", "--checkpoint", "c-" + name, "--out", name + ".safetensors"]


def pack(scratch):
    os.makedirs(scratch + "/data")
    with open(os.open(scratch + "/data/key", os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
        f.write(bytes(range(32)))
    with open(scratch + "/data/weights", "w") as f:
        f.write("1\n2\n0.5\n1\n")
    process.pack(scratch, list(calls_of_data()))


class Tap:
    count = failed = 0

    @staticmethod
    def point(combo, seed, result):
        Tap.count += 1
        Tap.failed += bool(result["problems"])
        print(f"{'not ok' if result['problems'] else 'ok'} {Tap.count} - GN_SEED={seed} GN_COMBO='{json.dumps(given(combo))}': {result['what']}")
        if os.environ.get("GN_VERBOSE") and "seconds" in result:
            print(f"# {result['seconds']:.1f} s")
        if result["problems"]:
            lines = [f"{kind}: {words}".strip() for kind, words in result["problems"]] + result["commands"]
            print("\n".join("# " + line for line in "\n".join(lines).splitlines()))
        sys.stdout.flush()


def asked_for(gone):
    """The combination of GN_COMBO, or None."""
    text = os.environ.get("GN_COMBO")
    try:
        combo = json.loads(text) if text else None
    except ValueError as e:
        process.leave(f"GN_COMBO is no JSON: {e}")
    if combo is None:
        return None
    if not isinstance(combo, dict):
        process.leave("GN_COMBO is no object of factors and values")
    for f, v in combo.items():
        if f"{f}={v}" in gone:
            process.leave(f"{f}={v} is not built or installed here, or not of this processor")
        if f not in factors.FACTORS or v not in factors.FACTORS[f]:
            known = ", ".join(map(repr, factors.FACTORS.get(f, factors.FACTORS)))
            process.leave(f"GN_COMBO: {json.dumps({f: v})} is none of {known}")
    return combo


def one(combo, seed):
    """A combination by itself: run where it is to be accepted, else refused."""
    try_it = explore if factors.fits(full(combo)) else refusals.refuse
    result = try_it((combo, seed))
    Tap.point(combo, seed, result)
    if os.environ.get("GN_MINIMISE") and result["problems"]:
        kind = result["problems"][0][0]
        combo = cover.minimise(given(combo), lambda part: kind in [p[0] for p in try_it((part, seed))["problems"]])
        Tap.point(combo, seed, try_it((combo, seed)))


def several(pool, seed, count):
    rng = random.Random(seed)
    combos, never = cover.combinations(rng, count)
    jobs = [(c, rng.randrange(10**6)) for c in combos]
    runs = pool.imap(explore, jobs)
    for (c, s), r in zip(jobs, runs):
        Tap.point(c, s, r)
    wanted = refusals.jobs(rng, count)
    for (c, s), r in zip(wanted, pool.imap(refusals.refuse, wanted)):
        Tap.point(c, s, r)
    pairs, covered = cover.all_pairs(), set(itertools.chain.from_iterable(map(factors.pairs_of, combos)))
    print(f"# seed {seed}: {len(combos)} runs have {len(covered)} of {len(pairs)} pairs of values; {len(wanted)} refusals")
    if count is None:
        print(f"# in no run, besides those that the page refuses: {cover.describe(refusals.without_row(never))}")


def main():
    seed, jobs = process.number("GN_SEED", random.SystemRandom().randrange(10**6), 0), process.number("GN_JOBS", os.cpu_count())
    count = None if os.environ.get("GN_PAIRS") == "all" else process.number("GN_PAIRS", 20)
    process.begin()
    asked_for([])
    scratch = tempfile.mkdtemp(prefix="gn-pairs.")
    try:
        pack(scratch)
        gone = factors.leave_out(factors.missing_here())
        combo = asked_for(gone)
        if combo is not None:
            process.enter(scratch)
            one(combo, seed)
        else:
            print(f"# GN_SEED={seed} GN_PAIRS={count or 'all'}", flush=True)
            if count:
                factors.leave_out([x for x in cover.COSTLY if "=".join(x) not in gone])
            with multiprocessing.Pool(jobs, process.enter, (scratch,)) as pool:
                several(pool, seed, count)
        for value in gone:
            Tap.count += 1
            print(f"ok {Tap.count} - {value} # SKIP not built or installed, or not of this processor")
        print(f"1..{Tap.count}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(Tap.failed > 0)


main()
