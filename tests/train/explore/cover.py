"""Combinations that cover all pairs of values, each of as many that are not covered yet as a greedy choice finds; and the smallest part of one
that shows a fault."""
import itertools
import json

import factors
from factors import FACTORS, fits, pairs_of, with_needs


COSTLY = {("model", "mobilenet_v2"): 12, ("device", "emulated"): 12}  # only where so many pairs are new


def all_pairs():
    values = [(f, v) for f in FACTORS for v in FACTORS[f]]
    return {frozenset(p) for p in itertools.combinations(values, 2) if p[0][0] != p[1][0]}


def settle(c, pair, rng):
    """Changes values of meshes and needs until a pair fits, a few at a time."""
    free = [f for f in ("ranks", "parallel", "elastic", "shard", "steps_of", "ema", "eval", "model", "launcher", "redundancy") if f not in dict(pair)]
    for _ in range(1500):
        t = {**c, **{f: rng.choice(list(FACTORS[f])) for f in rng.sample(free, rng.randrange(1, 5))}}
        if fits(t):
            c.update(t)
            return True
    return False


def combination(pair, uncovered, rng):
    """One that has the pair and, greedily, others; None where no values of the other factors let it be accepted."""
    c = with_needs(list(pair))
    if factors.conflicts({**factors.FIRST, **dict(pair)}):
        return None
    if not fits(c) and not settle(c, pair, rng):
        return None
    fixed = dict(pair)
    for f in sorted(rng.sample(list(FACTORS), len(FACTORS)), key=lambda f: f in {x for x, _ in COSTLY}):
        if f in fixed:
            continue
        best, most = c[f], -1  # which fits
        for v in rng.sample(list(FACTORS[f]), len(FACTORS[f])):
            gain = sum(frozenset(((f, v), x)) in uncovered for x in fixed.items())
            if gain > max(most, COSTLY.get((f, v), 0) - 1) and fits({**c, f: v}):
                best, most = v, gain
        c[f] = fixed[f] = best
    return c


def combinations(rng, count=None):
    """(combinations that cover all pairs, or the first so many; pairs that none can have). Takes a second for each hundred."""
    uncovered, found, never = all_pairs(), [], set()
    order = sorted(uncovered, key=sorted)
    rng.shuffle(order)
    for pair in order:
        if count is not None and len(found) >= count:
            break
        if pair not in uncovered:
            continue
        c = combination(pair, uncovered, rng)
        if c is None:
            never.add(pair)
            uncovered.discard(pair)
            continue
        uncovered -= pairs_of(c)
        found.append(c)
    return found, never


def minimise(combo, shows):
    """Sets factors back to their defaults while shows(combo) stays true; by halves, then one by one."""
    left = dict(combo)
    chunk = max(1, len(left) // 2)
    while chunk:
        names, shrunk = list(left), False
        for i in range(0, len(names), chunk):
            t = {f: v for f, v in left.items() if f not in names[i:i + chunk]}
            if shows(t):
                left, shrunk = t, True
                print(f"# {len(left)} factors show it: {json.dumps(left)}", flush=True)
                break
        if not shrunk:
            chunk //= 2
    return left


def describe(never):
    """What cannot be, by pairs of factors: a line for each, with the number of pairs of values."""
    by = {}
    for p in never:
        key = tuple(sorted(f for f, _ in p))
        by[key] = by.get(key, 0) + 1
    return ", ".join(f"{a} with {b} {n}" for (a, b), n in sorted(by.items()))
