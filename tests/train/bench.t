#!/bin/sh
# gannet bench train: its steps are training's, by one rank and by two; what it tells adds up; wrong use is told.
set -u
. "$GN_SOURCE/tests/train/common.sh"

bench() { # NAME RANKS OPTION...
	name=$1 ranks=$2
	shift 2
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" bench train --model resnet20 --side 32 --classes 10 --batch 4 --threads 1 \
		--warmup 1 --json "$@" >"$dir/$name.json"
}
check 'one rank' bench one 1 --iters 3
check 'two ranks with the same images' bench two 2 --iters 3
check 'inference' bench inference 1 --iters 2 --inference
check 'from a formula' bench formula 1 --iters 1 --init formula
check 'losses agree and fall, times add up' python3 - "$dir" <<'PY'
import json, sys
one, two, inference, formula = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("one", "two", "inference", "formula"))
assert len(one["losses"]) == 4 and one["losses"][3] < one["losses"][0], one
assert all(abs(a - b) <= 1e-4 * a for a, b in zip(one["losses"], two["losses"])), (one, two)
assert abs(formula["losses"][0] / one["losses"][0] - 1) > 1e-3, formula
assert (one["ranks"], two["ranks"]) == (1, 2) and one["op"] == "train" and inference["op"] == "inference"
for row in one, two, inference:
    parts = [row[k]["median_ms"] for k in ("forward", "backward", "communication_exposed", "optimizer")]
    assert all(p >= 0 for p in parts) and max(parts) <= row["step"]["p90_ms"], row
    assert abs(row["images_per_s"] * row["step"]["median_ms"] / (4e3 * row["ranks"]) - 1) < 1e-3, row
    assert sorted(row["steps_ms"])[len(row["steps_ms"]) * 9 // 10] == row["step"]["p90_ms"], row
    assert row["peak_bytes"] > row["arena_bytes"] > 0 and 0 <= row["first_step_begins_s"] <= row["first_step_ends_s"], row
assert inference["backward"]["median_ms"] == inference["optimizer"]["median_ms"] == 0, inference
PY
check 'operators one by one, in training' bench profiled 1 --iters 2 --profile
check 'and in inference' bench profiled-inference 1 --iters 1 --inference --profile
check 'every operator is there, once, and together they are not more than the step' python3 - "$dir" <<'PY'
import json, sys
training, inference = (json.load(open(f"{sys.argv[1]}/{name}.json")) for name in ("profiled", "profiled-inference"))
for row in training, inference:
    p = row["profile"]
    both = [(o["forward"], o["backward"]) for o in p["operators"]]
    assert sum(f["ms"] + b["ms"] for f, b in both) <= p["step_ms"] * 1.0001 + 1e-3, p
    assert abs(sum(f["ms"] + b["ms"] for f, b in both) - p["operators_ms"]) < .1, p
    assert sum(k["operators"] for k in p["kinds"]) == len(both) and len({k["kind"] for k in p["kinds"]}) == len(p["kinds"]), p
    assert abs(sum(f["bytes"] + b["bytes"] for f, b in both) - row["step_bytes"]) < 1, row
    assert sorted(o["op"] for o in p["operators"]) == list(range(len(both))) and all(o["out"][0] == 4 for o in p["operators"] if o["kind"] != "loss"), p
    assert {"convolution", "linear"} <= {k["kind"].split("+")[0] for k in p["kinds"]}, p
    assert row["op"] == "inference" or len([o for o in p["operators"] if o["kind"] == "convolution"]) == 21, p
assert all(b["ms"] > 0 for b in (o["backward"] for o in training["profile"]["operators"] if o["kind"] == "convolution")), training
assert all(o["backward"]["ms"] == 0 for o in inference["profile"]["operators"]), inference
PY
shown() {
	timeout -k 5 300 "$gannet" bench train --model resnet20 --side 32 --classes 10 --batch 2 --iters 1 --warmup 0 --profile >"$dir/table" &&
		grep -Eq '^21 x convolution +[0-9.]+ ' "$dir/table" && grep -Eq '^the rest +' "$dir/table"
}
check 'as a table, too' shown
inferred() {
	timeout -k 5 300 "$gannet" bench train --model resnet20 --side 32 --classes 10 --batch 2 --iters 1 --warmup 0 --inference --profile >"$dir/table" &&
		grep -Eq '^step +[0-9.]+ ' "$dir/table" && grep -Eq '^the rest +' "$dir/table"
}
check 'and of inference' inferred
# as tests/gpu/run reads it
one_file() {
	timeout -k 5 300 "$gannet" bench train --model resnet20 --side 32 --classes 10 --batch 2 --iters 1 --warmup 0 --profile --json >"$dir/both" 2>&1 &&
		grep '^{' "$dir/both" | python3 -c 'import json, sys; assert json.load(sys.stdin)["profile"]["operators"]'
}
check 'where JSON and tables go to one file, the line of JSON is whole' one_file
expect 3 'cannot open .*none.safetensors' 'weights that are not there' bench none 1 --init "$dir/none.safetensors"
expect 2 'use larger images' 'an image too small' timeout -k 5 300 "$gannet" bench train --model vgg16 --side 8
expect 2 'one of' 'a network that is none' timeout -k 5 300 "$gannet" bench train --model vgg

# The comparison with PyTorch: what can be said without it.
step=$GN_SOURCE/bench/peers/step
expect 0 'ranks-bf16' 'bench/peers/step names its cases' "$step" --help
expect 2 'no case is called resnet5; there is: .*resnet50-b8-training-fp32' 'and says when there is none' "$step" --only resnet5 \
	--gannet "$gannet"
expect 2 'at least 1' 'no rounds' "$step" --rounds 0 --gannet "$gannet"
expect 1 "no .*/nothing" 'no Gannet to compare' "$step" --gannet "$dir/nothing"
finish
