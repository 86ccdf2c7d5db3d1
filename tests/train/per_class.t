#!/bin/sh
# gannet eval --per-class: counts by class and calibration, against those of the logits; the same for any number of ranks.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
check 'a network' lenet 1 32 --steps 20 --checkpoint "$dir/run"
answers() { # NAME RANKS OPTION...
	name=$1 ranks=$2
	shift 2
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" eval --data "$dir/val" --checkpoint "$dir/run" --threads 1 \
		--loader-threads 1 --per-class "$dir/$name.classes" "$@" >"$dir/$name.json"
}
check 'one rank' answers one 1 --logits "$dir/one.npy"
check 'three ranks, other batches' answers three 3 --batch 7
expect 0 'macro F1 0\.[0-9]+, calibration error 0\.[0-9]+' 'two numbers are in the log' env GANNET_LOG=info "$gannet" eval \
	--data "$dir/val" --checkpoint "$dir/run" --per-class "$dir/again.classes"
table() { timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" eval --data "$dir/val" --checkpoint "$dir/run" --threads 1 --loader-threads 1 --per-class - >"$dir/table"; }
check 'as a table' table
check 'which has the same numbers in per cent' python3 - "$dir" <<'PY'
import json, re, sys
told, score = (json.load(open(f"{sys.argv[1]}/{name}")) for name in ("one.classes", "one.json"))
lines = open(sys.argv[1] + "/table").read().splitlines()
assert len(lines) == 13 and lines[0].endswith("class (most frequent wrong prediction)") and not any("{" in line for line in lines), lines
def near(text, fraction): # two ranks have other batches: rounding may turn an image of a class over
    assert text == "-" if fraction is None else abs(float(text) - 100 * fraction) < 1.5, (text, fraction)
for k, (c, line) in enumerate(zip(told["classes"], lines[1:])):
    images, predicted, accuracy, precision, f1, name, *wrong = line.split(None, 6)
    assert int(images) == c["images"] and abs(int(predicted) - c["predicted"]) <= 2 and name == c["name"], line
    near(accuracy, c["accuracy"]), near(precision, c["precision"]), near(f1, c["f1"])
    count, other = map(int, re.fullmatch(r"\((\d+) as (\d)\)", wrong[0]).groups()) if wrong else (0, -1)
    assert other != k and abs(count - max(n for i, n in enumerate(told["confusion"][k]) if i != k)) <= 2, line
macro, error = map(float, re.fullmatch(r"macro F1 ([0-9.]+) %, calibration error ([0-9.]+)", lines[11]).groups())
assert abs(macro - 100 * told["macro_f1"]) < 0.5 and abs(error - told["calibration_error"]) < 1e-2, lines[11]
top1, top5, loss = map(float, re.fullmatch(r"1000 images: top-1 ([0-9.]+) %, top-5 ([0-9.]+) %, loss ([0-9.]+)", lines[12]).groups())
assert abs(top1 - 100 * score["top1"]) < 0.5 and abs(top5 - 100 * score["top5"]) < 0.5 and abs(loss - score["loss"]) < 1e-3, lines[12]
PY
check 'the counts are those of the logits' python3 - "$dir" <<'PY'
import array, json, math, sys
def load(name): return json.load(open(f"{sys.argv[1]}/{name}"))
one, three, score = load("one.classes"), load("three.classes"), load("one.json")
data = open(f"{sys.argv[1]}/one.npy", "rb").read()
flat = array.array("f", data[10 + data[8] + 256 * data[9]:])
rows = [flat[i:i + 10] for i in range(0, len(flat), 10)]
matrix, classes = one["confusion"], one["classes"]
assert one["images"] == len(rows) == score["images"] == sum(map(sum, matrix))
assert abs(sum(matrix[k][k] for k in range(10)) / len(rows) - score["top1"]) < 1e-12
best = [max(range(10), key=lambda k: row[k]) for row in rows]
f1s = []
for k, c in enumerate(classes):
    assert c["name"] == str(k) and c["predicted"] == best.count(k) == sum(row[k] for row in matrix) and c["images"] == sum(matrix[k])
    assert abs(c["accuracy"] - matrix[k][k] / c["images"]) < 1e-12
    assert (c["precision"] is None) == (c["predicted"] == 0)
    assert c["precision"] is None or abs(c["precision"] - matrix[k][k] / c["predicted"]) < 1e-12
    f1s.append(2 * matrix[k][k] / (c["images"] + c["predicted"]))
    assert abs(c["f1"] - f1s[-1]) < 1e-12
assert abs(one["macro_f1"] - sum(f1s) / 10) < 1e-12
confidence = [1 / sum(math.exp(x - max(row)) for x in row) for row in rows]
error = 0
for n, b in enumerate(one["bins"]):
    inside = [p for p in confidence if min(int(p * 15), 14) == n]
    assert b["images"] == len(inside)
    if inside:
        assert abs(b["confidence"] - sum(inside) / len(inside)) < 1e-6
        error += abs(b["accuracy"] - b["confidence"]) * len(inside) / len(rows)
assert abs(one["calibration_error"] - error) < 1e-6 and error > 0
# rounding may turn an image over
moved = sum(abs(a - b) for one_row, other in zip(matrix, three["confusion"]) for a, b in zip(one_row, other))
assert [sum(row) for row in matrix] == [sum(row) for row in three["confusion"]] and moved <= 4, moved
assert abs(three["calibration_error"] - error) < 1e-3
PY
check 'a log of the training' lenet 1 32 --steps 2 --log-every 1 --log "$dir/run.jsonl"
check 'a report draws the matrix' "$gannet" report "$dir/run.jsonl" --per-class "$dir/one.classes" --out "$dir/report"
check 'with every count' python3 - "$dir" <<'PY'
import json, re, sys, xml.etree.ElementTree as tree
told = json.load(open(sys.argv[1] + "/one.classes"))
page = open(sys.argv[1] + "/report/report.html").read()
part = page[page.index("<h2>Confusion"):]
svg = tree.fromstring(re.search("<svg.*?</svg>", part, re.S).group())
cells = {}
for rect in svg.iter("rect"):
    a, b, count, images = re.fullmatch(r"(.*) predicted as (.*): (\d+) of (\d+) images", rect.find("title").text).groups()
    cells[int(a), int(b)] = int(count), int(images), float(rect.get("fill-opacity"))
assert len(cells) == 100
for (a, b), (count, images, shade) in cells.items():
    assert count == told["confusion"][a][b] and images == told["classes"][a]["images"] and abs(shade - (count / images) ** .5) < 6e-4
listed = [tuple(map(int, m)) for m in re.findall(r"<tr><td>(\d)</td><td>(\d)</td><td class='n'>(\d+)</td>", part)]
wrong = sorted((told["confusion"][a][b] for a in range(10) for b in range(10) if a != b and told["confusion"][a][b]), reverse=True)
assert [n for _, _, n in listed] == wrong[:20] and all(told["confusion"][a][b] == n for a, b, n in listed), listed
assert f"macro F1 {told['macro_f1']:.4f}" in part
PY
check 'many classes' python3 - "$dir" <<'PY'
import json, sys
n = 70 # the last ten are never confused
rows = [[10 if i == k else 1 if i < 60 and k == (i + 1) % 60 else 0 for k in range(n)] for i in range(n)]
names = [{"name": "<" + str(k) + ">" + "\u00e4" * 20} for k in range(n)]
json.dump({"images": 1, "macro_f1": 0.5, "calibration_error": 0.1, "classes": names, "confusion": rows}, open(sys.argv[1] + "/many.classes", "w"))
PY
check 'are drawn, too' "$gannet" report "$dir/run.jsonl" --per-class "$dir/many.classes" --out "$dir/many"
check 'the 60 with the most errors' grep -q 'The 60 classes with the most errors, of 70' "$dir/many/report.html"
check 'the last of them, with its name escaped' grep -q '&lt;59&gt;' "$dir/many/report.html"
check 'no other' eval '! grep -q "<59>\|60&gt;" "$dir/many/report.html"'
expect 3 'one.json has no "classes"' 'another file' "$gannet" report "$dir/run.jsonl" --per-class "$dir/one.json" --out "$dir/no"
expect 2 'give --out DIR' 'a matrix without a page' "$gannet" report "$dir/run.jsonl" --per-class "$dir/one.classes" --csv -
expect 2 '--per-class: cannot write .*/nodir/p.json: No such' 'a folder that is not there' "$gannet" eval --data "$dir/val" \
	--checkpoint "$dir/run" --per-class "$dir/nodir/p.json"
expect 1 'not a regular file' 'a folder in place of the file' "$gannet" eval --data "$dir/val" --checkpoint "$dir/run" --per-class "$dir"
finish
