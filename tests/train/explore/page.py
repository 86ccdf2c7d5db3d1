"""What the page training.md says cannot be combined, as predicates over given options: the oracle of refusals. test_combine holds the table to
the program's own; a run that is refused though no row asks for it, or accepted though one does, is a fault of either."""
import re

PAGE = "src/man/training.md"
MARK = "<!-- options that cannot be combined -->"
OFF = {"--compress": "none", "--shard": "none", "--update": "allreduce", "--algo": "auto", "--optimizer": "sgd", "--local-steps": "1", "--device": "host"}


def rows(source):
    """(one, other, reason) of each line of the page's table."""
    with open(f"{source}/{PAGE}") as f:
        text = f.read().split(MARK, 1)[1].split("\n\n", 1)[0]
    found = [tuple(cell.strip().strip("`") for cell in line.strip("|").split("|")) for line in text.strip().splitlines()[2:]]
    assert len(found) > 40 and all(len(r) == 3 for r in found), f"{PAGE}: no table behind {MARK}"
    return found


def options_of(arguments):
    """{option: value or ""} of a list of arguments."""
    given = {}
    for i, a in enumerate(arguments):
        if a.startswith("--"):
            value = arguments[i + 1] if i + 1 < len(arguments) and not arguments[i + 1].startswith("--") else ""
            given[a] = value
    return {o: v for o, v in given.items() if OFF.get(o) != v}


def values(text):
    """A pattern of "tcp, rc or ud", "topk:F", "auto and ring"."""
    words = re.split(r", | or | and ", text)
    return re.compile("|".join(re.escape(re.sub(r":[A-Z]$", ":", w)) + (".*" if re.search(r":[A-Z]$", w) else "") for w in words))


def mesh_has(given, what, ranks):
    """Whether --parallel names, or implies for so many ranks, an axis of more than one."""
    text = given.get("--parallel", "")
    axes = dict(a.split("=") for a in text.split(",") if "=" in a)
    if text == "auto":
        return what == "pipeline"
    if what not in axes and what == "pipeline" and axes.keys() == {"data"}:
        return int(axes["data"]) < ranks  # what is left are stages
    return int(axes.get(what, 1)) > 1


def is_asked(feature, given, ranks):
    """Whether options ask for what a cell of the table names."""
    option, _, rest = feature.partition(" ")
    if option not in given:
        return False
    if not rest:
        return True
    if m := re.fullmatch(r"with (pipeline|tensor)", rest):
        return mesh_has(given, m[1], ranks)
    if m := re.fullmatch(r"with --elastic-batch (keep|scale)", rest):
        return (given.get("--elastic-batch", "keep")) == m[1]
    if m := re.fullmatch(r"(?:except|other than) (.*)", rest):
        return not values(m[1]).fullmatch(given[option])
    return bool(values(rest).fullmatch(given[option]))


def refused(table, arguments, ranks):
    """The rows that hold for these arguments."""
    given = options_of(arguments)
    return [r for r in table if is_asked(r[0], given, ranks) and is_asked(r[1], given, ranks)]
