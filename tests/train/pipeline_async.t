#!/bin/bash
# Pipelines that do not pause between batches: pipedream's bits are those of its definition, run serially; decoupled learns; a stop, a checkpoint
# and an evaluation find all stages empty.
set -u
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"
net() { # NAME RANKS MODEL OPTION...: in $scratch/NAME
	launch "$2" "$gannet" train --data "$scratch/train" --model "$3" --lr 0.02 --threads 1 --loader-threads 1 --schedule constant --augment none \
		--log "$scratch/$1.jsonl" --checkpoint "$scratch/$1" "${@:4}"
}
values() { # FILE: the digest of all values of a safetensors file
	python3 -c 'import hashlib, sys
data = open(sys.argv[1], "rb").read()
print(hashlib.sha256(data[8 + int.from_bytes(data[:8], "little"):]).hexdigest())' "$1"
}
small='--side 16 --channels 1'

# MODEL SIDE CHANNELS CUTS MICRO_BATCH PER_STEP STEPS PAUSE
check 'the definition of two stages' oracle lenet 28 1 conv2 4 4 6 6
check 'pipedream' net lenet2 2 lenet --batch 16 --micro-batches 4 --steps 6 --ema 0.9 --parallel pipeline=2 --cut conv2 --pipe-schedule pipedream
check 'the same bits' is_oracle lenet2
check 'of the average, too' test "$(values "$scratch/lenet2/latest/ema.safetensors")" = "$(sed -n 2p "$scratch/oracle")"
check 'the definition of three, a batch each step' oracle lenet 28 1 conv2,fc1 4 1 9 9
check 'pipedream' net lenet3 3 lenet --batch 4 --steps 9 --ema 0.9 --parallel pipeline=3 --cut conv2,fc1 --pipe-schedule pipedream
check 'the same bits' is_oracle lenet3
check 'the definition with batch norm, and a pause' oracle resnet20 16 1 layer2 4 3 4 2
# shellcheck disable=SC2086
check 'pipedream with checkpoints' net res 2 resnet20 --batch 12 --micro-batches 3 --steps 4 $small --ema 0.9 --checkpoint-every 2 \
	--parallel pipeline=2 --cut layer2 --pipe-schedule pipedream
check 'the same bits' is_oracle res
check 'a part, in a checkpoint' net part 3 lenet --batch 4 --steps 4 --ema 0.9 --parallel pipeline=3 --cut conv2,fc1 --pipe-schedule pipedream
check 'the definition with a pause there' oracle lenet 28 1 conv2,fc1 4 1 8 4
check 'the rest' net part 3 lenet --batch 4 --steps 8 --ema 0.9 --parallel pipeline=3 --cut conv2,fc1 --pipe-schedule pipedream --resume auto
check 'the same bits' is_oracle part
# Without --cut they come from measured times: whoever goes on has those of the checkpoint.
uncut() { GANNET_LOG=info net uncut 3 lenet --batch 4 --parallel pipeline=3 --pipe-schedule pipedream "$@" >"$scratch/uncut.out" 2>&1; }
cut_of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["cut"])' "$scratch/uncut/$1/manifest.json"; }
moved() { # the checkpoint's other than those that are measured
	python3 - "$scratch/uncut/latest/manifest.json" <<'PY'
import json, os, sys
m = json.load(open(sys.argv[1])); m["cut"] = "conv2,fc2"; json.dump(m, open(sys.argv[1], "w"))
PY
}
check 'without --cut' uncut --steps 2
check 'the checkpoint and the log name the cuts' test "$(cut_of latest)" = "$("$jsonl" "$scratch/uncut.jsonl" start mesh.cut)"
check 'of a checkpoint with other ones' moved
check 'another run goes on' uncut --steps 3 --resume auto
expect 0 'stages begin where those of .* do: --cut conv2,fc2' 'with these' cat "$scratch/uncut.out"
check 'and hands them on' test "$(cut_of step-00000003)" = conv2,fc2

# With a pause after each update nothing is stale: the bits of 1f1b, of two pipelines and mixed images, too.
mix='--batch 8 --steps 3 --checkpoint-every 1 --mixup 0.2 --ema 0.9 --parallel data=2,pipeline=2 --cut fc1'
# shellcheck disable=SC2086
{
	check '1f1b' net sync 4 lenet $mix --pipe-schedule 1f1b
	check 'pipedream with a pause after each step' net paused 4 lenet $mix --pipe-schedule pipedream
}
check 'the same bits' same sync paused

# A stop, which rank 1 alone is asked for, and a checkpoint by time.
stops() {
	# shellcheck disable=SC2016
	timeout -k 5 300 "$gannet" launch -n 4 --keep-going -- sh -c 'run=$1; shift; "$@" 2>"$run.$PMIX_RANK.err" &
		echo $! >"$run.$PMIX_RANK.pid"; wait $!; code=$?; echo $code >"$run.$PMIX_RANK.code"; exit $code' sh "$scratch/$1" \
		"$gannet" train --data "$scratch/train" --model lenet --lr 0.02 --threads 1 --loader-threads 1 --batch 4 --micro-batches 1 --epochs 1000 \
		--checkpoint-epochs 1000 --checkpoint "$scratch/$1" --parallel data=2,pipeline=2 --cut conv2 --log-every 5 --log "$scratch/$1.jsonl" \
		--pipe-schedule "$2" >"$scratch/$1.out" 2>&1 &
	local launcher=$!
	await_line 3 '"event": "step"' "$scratch/$1.jsonl" || return 1
	kill -TERM "$(cat "$scratch/$1.1.pid")"
	wait "$launcher"
	test "$(cat "$scratch/$1".?.code | tr '\n' ' ')" = '5 5 5 5 '
}
for schedule in pipedream ${GN_LONG:+decoupled}; do
	check "$schedule is stopped" stops "stop-$schedule" "$schedule"
	check 'with a checkpoint' "$gannet" eval --data "$scratch/val" --checkpoint "$scratch/stop-$schedule" --threads 1
done

# Predicted gradients.
check 'decoupled' net far 3 lenet --batch 16 --micro-batches 2 --steps 40 --log-every 20 --lr 0.005 --parallel pipeline=3 --cut conv2,fc1 \
	--pipe-schedule decoupled --val "$scratch/val"
falls() { "$jsonl" "$scratch/far.jsonl" step loss synthetic_error | awk 'NR == 1 { a = $1 } { b = $1; e = $2 } END { exit !(b < a && e < 1) }'; }
check 'it learns, and predictions are better than none' falls

# What is told.
check 'the log has the bubble of each stage' test "$(grep '"event": "pipeline"' "$scratch/lenet3.jsonl" | grep -o '"bubble":' | wc -l)" = 3
told() { "$gannet" summary "$scratch/lenet2.jsonl" | grep -q 'stage 1 of 2: waited [0-9]* % of its steps, by formula 4 %; sent'; }
check 'summary, too' told
check 'and report' "$gannet" report "$scratch/lenet2.jsonl" --out "$scratch/report"
check 'with a table' grep -q 'By formula a stage waits 4.0 %' "$scratch/report/report.html"
versions() {
	GANNET_LOG=info net v 2 lenet --batch 4 --steps 2 --parallel pipeline=2 --cut fc1 --pipe-schedule pipedream 2>"$scratch/v.err" &&
		grep -q 'stage 0 of 2 keeps 2 versions of its parameters' "$scratch/v.err" && ! grep -q 'stage 1 of 2 keeps' "$scratch/v.err"
}
check 'memory of versions is told before the first step' versions
# The stage that finds it ends with 1 and the others, which lose it, with 4.
overflows() {
	! net over 2 lenet --batch 8 --steps 30 --lr 1e6 --parallel pipeline=2 --cut fc1 --pipe-schedule pipedream 2>"$scratch/over.err" &&
		grep -q 'not finite at step .*; with --pipe-schedule pipedream other stages go on' "$scratch/over.err" && ! test -e "$scratch/over/latest"
}
check 'gradients that overflow' overflows

# Batch norm over the ranks of a stage.
# shellcheck disable=SC2086
{
	check 'synchronised batch norm on two ranks' net bn2 2 resnet20 --batch 4 --accumulate 2 --steps 2 $small --sync-bn all
	check 'in two pipelines' net bn4 4 resnet20 --batch 8 --micro-batches 2 --steps 2 $small --sync-bn all --parallel data=2,pipeline=2 --cut layer2
}
check 'the same bits' same bn2 bn4

refuse() { expect 2 "$1" "$2" "$gannet" train --data "$scratch/train" --model lenet "${@:3}"; }
refuse '.--pipe-schedule pipedream and --clip cannot be combined: the norm is of all stages' 'a bound of norms' --parallel pipeline=2 \
	--pipe-schedule pipedream --clip 1
refuse '.--pipe-schedule decoupled and --class-weights cannot be combined' 'weights of classes' --parallel pipeline=2 --pipe-schedule decoupled \
	--class-weights balanced
expect 2 'pipedream is of pipelines, and --parallel data=2 has none on 2 ranks' 'ranks of data' net none 2 lenet --steps 2 --parallel data=2 \
	--pipe-schedule pipedream
finish
