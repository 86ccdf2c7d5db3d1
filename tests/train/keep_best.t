#!/bin/sh
# The best checkpoint and every K-th stay beside the newest; a run ends when it no longer improves; more evaluations change no step.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'images are packed' "$gannet" pack --out "$dir/train" --synthetic 64 --classes 4 --size 28x28
check 'and others' "$gannet" pack --out "$dir/val" --synthetic 32 --classes 4 --size 28x28 --seed 7
train() { # RANKS NAME OPTION...
	ranks=$1 name=$2
	shift 2
	lenet "$ranks" 8 --val "$dir/val" --checkpoint "$dir/$name" --log "$dir/$name.jsonl" --schedule constant "$@"
}
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256; }
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$dir/$1/best.json" "$2"; }
# NAME METRIC: the link, best.json and the log's evaluations name the same step; the first of equals is the best
agrees() {
	python3 - "$dir/$1.jsonl" "$dir/$1" "$2" <<'PY'
import json, os, sys
log, folder, metric = sys.argv[1:]
lines = [json.loads(line) for line in open(log)]
scores = {line["step"]: line[metric] for line in lines if line["event"] == "eval" and line["step"]}
best = (min if metric == "loss" else max)(scores.values())
step = min(s for s in scores if scores[s] == best)
kept = json.load(open(folder + "/best.json"))
assert kept["step"] == step and kept["value"] == best and kept["metric"] == metric, (kept, scores)
assert kept["worse"] == sorted(s for s in scores if s > step), (kept, scores)
assert os.readlink(folder + "/best") == f"step-{step:08d}" and os.path.exists(folder + "/best/manifest.json")
PY
}

check 'a run of 40 steps' train 2 plain --steps 40
check 'the same, evaluated before and between' train 2 often --steps 40 --eval-steps 3 --eval-first --keep-best top1 --keep 1
check 'evaluations change no parameter' test "$(final often)" = "$(final plain)"
check 'the first is of step 0' test "$("$jsonl" "$dir/often.jsonl" eval step | head -1)" = 0
check 'every third step and every epoch has one' test "$("$jsonl" "$dir/often.jsonl" eval step | tr '\n' ' ')" = \
	'0 3 4 6 8 9 12 15 16 18 20 21 24 27 28 30 32 33 36 39 40 '
check 'the best is the best of the log' agrees often top1
check 'it and the newest are all that is there' test "$(ls -d "$dir"/often/step-* | wc -l)" -le 2
check 'the newest is there' test -d "$dir/often/step-00000040"
expect 0 '"top1":' 'the link is a checkpoint to evaluate' "$gannet" eval --data "$dir/val" --checkpoint "$dir/often/best"
check 'with the top-1 that it was kept for' sh -c '"$1" eval --data "$2" --checkpoint "$3" | grep -q "\"top1\": $4"' sh \
	"$gannet" "$dir/val" "$dir/often/best" "$(field often value)"

check 'by loss, in one start' train 2 whole --epochs 8 --keep-best loss --keep 1
check 'by loss, in two' train 2 halves --epochs 3 --keep-best loss --keep 1
check 'of which the second goes on' train 2 halves --epochs 8 --keep-best loss --keep 1 --resume auto
check 'the best of both is the same' cmp "$dir/whole/best.json" "$dir/halves/best.json"
check 'that of the log' agrees whole loss

# what steps, evaluations and checkpoints take is within the life of the process: no second counts twice
apart() {
	python3 - "$dir/$1.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
total = sum({"step": lambda l: l["time_ms"]["step"] / 1e3, "eval": lambda l: l["seconds"],
             "checkpoint": lambda l: l["blocked_seconds"]}.get(l["event"], lambda l: 0)(l) for l in lines)
print(total, lines[-1]["usage"]["age_s"], sum(l["event"] == "checkpoint" for l in lines))
sys.exit(total > lines[-1]["usage"]["age_s"])
PY
}
check 'a run that is evaluated and saved at nearly each step' "$gannet" train --data "$dir/train" --model lenet --lr 0.001 --batch 8 \
	--threads 1 --loader-threads 1 --val "$dir/val" --checkpoint "$dir/each" --checkpoint-epochs 1000 --keep 1 --keep-best loss --log-every 1 \
	--eval-steps 1 --schedule constant --steps 12 --log "$dir/each.jsonl"
check 'counts the time of checkpoints once' apart each

# the last line of a start that goes on, best.json and the log name one value, also where the best was before that start
GANNET_LOG=info
cp "$dir/often.jsonl" "$dir/again.jsonl" && cp -a "$dir/often" "$dir/again"
shown() { grep -o 'best [0-9.]* %' "$dir/again.err" | tail -1; }
best() { "$jsonl" "$dir/again.jsonl" eval step top1 | awk '$1 && $2 > best { best = $2 } END { printf "best %.2f %%\n", 100 * best }'; }
check 'a run goes on by four steps that learn nothing' sh -c '"$@" 2>"$0"' "$dir/again.err" "$gannet" train --data "$dir/train" --model lenet \
	--batch 16 --lr 3 --val "$dir/val" --checkpoint "$dir/again" --log "$dir/again.jsonl" --schedule constant --steps 44 --resume auto
check 'its last line has the best of the whole run' test "$(shown)" = "$(best)"
check 'which is not that of its own evaluations' test "$(shown)" != "$("$jsonl" "$dir/again.jsonl" eval top1 | tail -1 |
	awk '{ printf "best %.2f %%", 100 * $1 }')"
GANNET_LOG=warn

expect 0 'WARN .*best.json has the best loss, this start asks for top1: the next evaluation counts as the best' \
	'another metric after a resume is a warning' train 2 halves --epochs 9 --keep-best top1 --keep 1 --resume auto
check 'and the best by that one is kept' test "$(field halves metric)" = top1

check 'a run that cannot improve' train 2 stuck --epochs 9 --lr 0 --patience 2 --keep-best loss
check 'ends after two evaluations in vain' test "$("$jsonl" "$dir/stuck.jsonl" end step)" = 12
check 'the log says why' grep -q '"patience": "2 evaluations without a better loss' "$dir/stuck.jsonl"
check 'and has a line of its last step' test "$("$jsonl" "$dir/stuck.jsonl" step step | tail -1)" = 12
for command in summary top; do
	expect 0 '^ended by --patience:$' "$command says so" "$gannet" "$command" "$dir/stuck.jsonl"
done
check 'and so does its JSON' sh -c '"$1" summary --json "$2" | grep -q "\"patience\": \"2 evaluations"' sh "$gannet" "$dir/stuck.jsonl"
check 'between lines and evaluations, too' train 2 between --steps 40 --log-every 5 --eval-steps 3 --lr 0 --patience 1 --keep-best loss
check 'the last line is of the last step' test "$("$jsonl" "$dir/between.jsonl" step step | tail -1)" = "$("$jsonl" "$dir/between.jsonl" end step)"
check 'resumed it stays ended' train 2 stuck --epochs 9 --lr 0 --patience 2 --keep-best loss --resume auto
check 'at the same step' test "$("$jsonl" "$dir/stuck.jsonl" end step | tail -1)" = 12
check 'with more patience it goes on' train 2 stuck --epochs 9 --lr 0 --patience 4 --keep-best loss --resume auto
check 'until that is over' test "$("$jsonl" "$dir/stuck.jsonl" end step | tail -1)" = 20

check 'every third checkpoint is to stay, in two starts' train 1 third --steps 8 --checkpoint-every 2 --keep 1 --keep-every 3
check 'of which the second counts on' train 1 third --steps 20 --checkpoint-every 2 --keep 1 --keep-every 3 --resume auto
check 'the third, the sixth, the ninth and the newest are there' test \
	"$(cd "$dir/third" && echo step-*)" = 'step-00000006 step-00000012 step-00000018 step-00000020'

expect 2 'give --val' 'the best of no evaluation is refused' "$gannet" train --data "$dir/train" --model lenet --keep-best top1 \
	--checkpoint "$dir/none"
expect 2 'give --checkpoint' 'and the best without a folder' "$gannet" train --data "$dir/train" --val "$dir/val" --model lenet \
	--keep-best top1
expect 2 'give --ema' 'and that of no average' "$gannet" train --data "$dir/train" --val "$dir/val" --model lenet \
	--keep-best ema-top1 --checkpoint "$dir/none"
finish
