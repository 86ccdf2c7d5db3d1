#!/bin/bash
# gannet sweep without Slurm: the plan, and what is refused. tests/slurm/sweep.t runs one.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
sweep() { "$GN_BUILD/gannet" sweep "$@"; }
expect 0 "^4 --lr=.05 --batch=32$" "a grid" sweep run -n --grid lr=.01,.05 --grid batch=16,32 -- train --model lenet --data d
six() { [[ $(sweep run -n --grid lr=.01,.05 --random 'weight-decay=log(1e-5,1e-3):3' -- train --model lenet --data d | wc -l) == 6 ]]; }
check "with draws" six
expect 2 "each trial gets a checkpoint folder" "a checkpoint of all trials" sweep run --grid lr=1 -- train --model lenet --data d --checkpoint c
expect 2 "each trial gets a checkpoint folder" "or as a parameter" sweep run -n --grid log=a,b -- train --model lenet --data d
expect 2 "would share another file" "metrics of all trials" sweep run -n --grid lr=1 -- train --model lenet --data d --metrics=m.prom
expect 0 "^1 --lr=1$" "options with a longer name are none of these" sweep run -n --grid lr=1 -- train --model lenet --data d --log-every 5 --checkpoint-epochs 1
expect 2 "what to sweep" "no command" sweep run --grid lr=1
expect 2 "needs --grid or --random" "no parameter" sweep run -- train --model lenet --data d
expect 2 "'walk' is none of run, status" "another verb" sweep walk
expect 2 "gannet sweep rerun --failed DIR" "rerun says what" sweep rerun x
expect 3 "ledger.jsonl" "a folder that is no sweep" sweep status .
expect 2 "would stop none" "a halving by one" sweep run --halving 1 --grid lr=1 -- train --model lenet --data d
expect 2 "^gannet sweep: trial 1: train: .*--lrr" "an option that train has not" sweep run -n --grid lrr=1 -- train --model lenet --data d
expect 2 "unknown option --weight_decay; did you mean --weight-decay?" "or has by another name" sweep run -n --grid weight_decay=1 -- train --model lenet --data d
expect 2 "without the leading dashes, such as weight-decay=" "a name as on the command line" sweep run -n --grid --lr=1 -- train --model lenet --data d
expect 2 "^gannet sweep: trial 2: train: --batch: " "each trial is checked" sweep run --grid batch=1,x -- train --model lenet --data d
expect 2 "^gannet sweep: trial 2: train: .*cannot be combined" "with what it combines" sweep run --grid compress=none,int8 -- train --model lenet --data d --local-steps 4
check "nothing was made" test -z "$(ls)"
# Halving, by trials that are run one after the other as the array's tasks would run: the second is worse than the first at
# half of their steps, the others are not.
gannet=$GN_BUILD/gannet
check "a dataset" "$gannet" pack --out data --synthetic 512 --classes 4 --size 28x28
mkdir sweep
trials=(0.05 0.00001 0.03 0.05)
for t in 1 2 3 4; do
	printf '{"trial": %d, "parameters": {"lr": "%s"}, "log": "%s", "checkpoint": "x"}\n' "$t" "${trials[t - 1]}" "$dir/sweep/trial-$t.jsonl"
done >sweep/ledger.jsonl
trial() { # N STEPS
	GANNET_LOG=info timeout -k 5 300 "$gannet" train --data data --model lenet --batch 16 --steps "$2" --seed "$1" --lr "${trials[$1 - 1]}" --threads 1 --loader-threads 1 \
		--log "$dir/sweep/trial-$1.jsonl" --halving 2:1
}
expect 0 "place 1 of 1 trial at 1/2 of the steps: going on" "the first trial goes on" trial 1 80
expect 0 "place 2 of 2 trials at 1/2 of the steps: stopping" "a worse one stops, and has ended well" trial 2 80
expect 0 "place [12] of 3 trials .*: going on" "of three two go on, at its own half" trial 3 60
expect 0 "place [12] of 4 trials .*: going on" "so does one that is as good as the first" trial 4 80
states() { sweep status --json sweep | python3 -c 'import json, sys; print(*["%s:%d/%d" % (t["state"], t["step"], t["total_steps"]) for t in map(json.loads, sys.stdin)])'; }
expect 0 "^end:80/80 pruned:40/80 end:60/60 end:80/80$" "status tells them apart" states
best() { sweep best --json sweep | python3 -c 'import json, sys; print(json.load(sys.stdin)["parameters"])'; }
expect 0 "^lr=0.0[35]$" "the best is one that went on" best
expect 0 "^log $dir/sweep/trial-[134].jsonl$" "by its log" sweep best sweep
expect 0 "^checkpoint x$" "and its checkpoint" sweep best sweep
expect 0 '"checkpoint": "x"' "as JSON, too" sweep best --json sweep
# The same log twice: the first of them is the best, and with a lower loss the second.
mkdir tie
for t in 1 2; do
	printf '{"trial": %d, "parameters": {"lr": "1"}, "log": "%s", "checkpoint": "c%d"}\n' "$t" "$dir/tie/$t.jsonl" "$t"
	printf '{"event": "%s", "time": "2026-01-02T03:04:05Z", "step": 9, "total_steps": 9, "loss": 0.5, "top1": 0.75, "time_ms": {"step": 1}}\n' \
		start step eval end >"tie/$t.jsonl"
done >tie/ledger.jsonl
expect 0 "^checkpoint c1$" "of equal trials the first is the best" sweep best tie
sed -i 's/"loss": 0.5/"loss": 0.4/' tie/2.jsonl
expect 0 "^checkpoint c2$" "or that with the lower loss" sweep best tie
expect 0 "^    2 end  +9/9 +0.4 +75  lr=1$" "top-1 is in per cent" sweep best tie
first() { sweep report tie && grep -o "</span>[12]</td>" tie/report/report.html | head -n 1 | grep -q 2; }
check "so it is in the report" first
expect 0 "^sweep/report/report.html$" "a report" sweep report sweep
cat >page.py <<'PY'
import re, sys, xml.etree.ElementTree as tree
page = open(sys.argv[1], encoding="utf-8").read()
rows = re.findall(r"<tr[^>]*><td class='n'><span[^>]*></span>(\d+)</td><td class='n'>([^<]*)</td>.*?<td>(\w+)</td></tr>", page)
assert sorted(int(t) for t, _, _ in rows) == [1, 2, 3, 4] and rows[-1] == ("2", "0.00001", "pruned"), rows
assert "4 trials, 3 at the end, 1 pruned" in page and "http" not in re.sub("http-equiv", "", page)
pictures = [tree.fromstring(picture) for picture in re.findall("<svg.*?</svg>", page, re.S)]
assert len(pictures) == 2 and "by lr" in "".join(pictures[1].itertext()), len(pictures)
lines = [line for line in pictures[0].iter("polyline")]
assert len(lines) == 4 and len(pictures[1].findall("circle")) == 4, (lines, page)
for picture in pictures:
    width, height = map(float, picture.get("viewBox").split()[2:])
    for shape in picture.iter():
        for x, y in re.findall(r"(\S+),(\S+)", shape.get("points") or ""):
            assert 0 <= float(x) <= width and 0 <= float(y) <= height, (x, y)
        assert 0 <= float(shape.get("cx") or 0) <= width and 0 <= float(shape.get("cy") or 0) <= height
PY
check "has the trials from best to worst, and their curves" python3 page.py sweep/report/report.html
outside() { timeout -k 5 300 "$gannet" train --data data --model lenet --batch 16 --steps 4 --log "$dir/alone.jsonl" --halving 2:1; }
expect 0 "alone.jsonl is no trial of gannet sweep: .*the run goes on" "a run outside of a sweep goes on" outside
expect 2 "not FACTOR:RUNGS" "a halving that is none" "$gannet" train --data data --model lenet --steps 4 --log x.jsonl --halving 2
finish
