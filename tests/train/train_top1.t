#!/bin/sh
# top1 of step lines: where nothing is learned and nothing augmented, that of an evaluation on the same images; on any number of ranks.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
check 'a network' lenet 1 32 --lr 0.05 --steps 40 --checkpoint "$dir/run"
# evaluates the validation set by training on it at a rate of 0, a step line an epoch
still() { # NAME RANKS BATCH OPTION...
	name=$1 ranks=$2 batch=$3
	shift 3
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" train --data "$dir/val" --val "$dir/val" --model lenet --batch "$batch" \
		--init "$dir/run/latest/model.safetensors" --lr 0 --lr-start 0 --epochs 1 --log-every 1000 --augment none --no-dropout --threads 1 \
		--loader-threads 1 --log "$dir/$name.jsonl" "$@"
}
same() { # NAME: top1 of its step line and of its evaluation
	python3 - "$dir/$1.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
step = [l["top1"] for l in lines if l["event"] == "step"]
eval = [l["top1"] for l in lines if l["event"] == "eval"]
assert len(step) == len(eval) == 1 and 0.3 < eval[0] < 1, (step, eval)
assert abs(step[0] - eval[0]) < 2e-6, (step, eval)
PY
}
check 'one rank' still one 1 50
check 'has the top-1 of the evaluation' same one
check 'two ranks, gradients accumulated' still two 2 25 --accumulate 2
check 'have it, too' same two
expect 0 'loss [0-9.]+ top-1 [0-9.]+ % lr' 'it is in the log for people' env GANNET_LOG=info "$gannet" train --data "$dir/val" --model lenet \
	--steps 2 --log-every 2 --threads 1 --log "$dir/two_steps.jsonl"
check 'and in reports' "$gannet" report "$dir/two_steps.jsonl" --out "$dir/report" --csv "$dir/steps.csv"
check 'as a curve' grep -q 'Training top-1' "$dir/report/report.html"
check 'and a column' eval 'head -1 "$dir/steps.csv" | grep -q "loss,top1,lr"'
# blended images: the label that weighs more is the target
check 'mixed images' still mixed 1 50 --mixup 0.2
check 'are right less often, and not by chance' python3 - "$dir/mixed.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
step, = [l["top1"] for l in lines if l["event"] == "step"]
eval, = [l["top1"] for l in lines if l["event"] == "eval"]
assert 0.15 < step < eval, (step, eval)
PY
finish
