#!/bin/sh
# Optimizers, accumulation, clipping, averages, mixup, growing images and presets, each through the command, by one rank.
set -u
. "$GN_SOURCE/tests/train/common.sh"

# one NAME BATCH OPTION...: a run of one rank with a log and a checkpoint folder of that name
one() {
	name=$1 batch=$2
	shift 2
	timeout -k 5 300 "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --batch "$batch" --threads 1 \
		--loader-threads 1 --log-every 1 --log "$dir/$name.jsonl" --checkpoint "$dir/$name" "$@"
}
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256 | tail -1; }
same() { test -n "$(final "$1")" && test "$(final "$1")" = "$(final "$2")"; }
# top1 DIR OPTION...: of a checkpoint, in tenths of a percent
top1() {
	folder=$1
	shift
	timeout -k 5 300 "$gannet" eval --data "$dir/val" --checkpoint "$folder" --threads 1 "$@" |
		sed -n 's/.*"top1": \([0-9.e-]*\).*/\1/p' | awk '{ print int(1000 * $1) }'
}

check 'digits are packed' pack_digits

# Every optimizer learns, and goes on bit-identically where it was stopped.
for rule in 'sgd --nesterov' 'lars --lr 8 --warmup-epochs 0.1' 'lamb --lr 0.005'; do
	name=${rule%% *}
	# shellcheck disable=SC2086 # options are words
	set -- --optimizer $rule --ema 0.98
	check "$name: 120 steps" one "$name" 64 --steps 120 "$@"
	check "$name: 120 steps in three parts" sh -c '
		"$@" --steps 40 --schedule constant && "$@" --steps 80 --schedule constant --resume auto &&
		"$@" --steps 120 --schedule constant --resume auto' sh \
		timeout -k 5 300 "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --batch 64 --threads 1 \
		--log "$dir/$name-parts.jsonl" --checkpoint "$dir/$name-parts" "$@"
	check "$name: the same in one" one "$name-whole" 64 --steps 120 --schedule constant "$@"
	check "$name: bit-identical" same "$name-parts" "$name-whole"
	for part in model ema; do
		check "$name: also in $part.safetensors" cmp "$dir/$name-parts/latest/$part.safetensors" \
			"$dir/$name-whole/latest/$part.safetensors"
	done
	got=$(top1 "$dir/$name")
	check "$name: it learned (top-1 $got of 1000)" test "${got:-0}" -ge 850
	got=$(top1 "$dir/$name" --ema)
	check "$name: so did the average (top-1 $got of 1000)" test "${got:-0}" -ge 850
done
expect 2 'made with --optimizer lamb, not sgd' 'a checkpoint of another optimizer' one lamb 64 --steps 200 --resume auto
expect 3 'without --ema' 'an average that was never kept' sh -c '
	timeout -k 5 300 "$1" train --data "$2/train" --model lenet --steps 1 --checkpoint "$2/plain" &&
	timeout -k 5 300 "$1" eval --data "$2/val" --checkpoint "$2/plain" --ema' sh "$gannet" "$dir"
expect 0 'no moving average: it begins' 'an average that begins in the middle' one plain 64 --steps 2 --ema 0.9 --resume auto
check 'the average is exported' "$gannet" export --checkpoint "$dir/lamb" --ema --out "$dir/ema.safetensors"
check 'as it was saved, but for the header' python3 -c '
import sys
a, b = (open(path, "rb").read() for path in sys.argv[1:])
assert a[8 + int.from_bytes(a[:8], "little"):] == b[8 + int.from_bytes(b[:8], "little"):]' \
	"$dir/ema.safetensors" "$dir/lamb/latest/ema.safetensors"
expect 2 'Nesterov' 'LAMB with Nesterov' one none 64 --optimizer lamb --nesterov
expect 2 'below 1' 'LAMB with moments that never decay' one none 64 --optimizer lamb --beta2 1

# 1 x 64 = 2 x 32 = 4 x 16 accumulated.
check 'steps of 64' one b64 64 --steps 50
check 'steps of 2 x 32' one b32 32 --steps 50 --accumulate 2
check 'steps of 4 x 16' one b16 16 --steps 50 --accumulate 4
check 'the same losses by 2 x 32' same_losses "$dir/b64.jsonl" "$dir/b32.jsonl" 1e-5
check 'the same losses by 4 x 16' same_losses "$dir/b64.jsonl" "$dir/b16.jsonl" 1e-5
check 'the epoch is as long' test "$("$jsonl" "$dir/b64.jsonl" step epoch | tail -1)" = \
	"$("$jsonl" "$dir/b16.jsonl" step epoch | tail -1)"
expect 3 'fewer than a step takes' 'more batches than there are' one none 64 --accumulate 1000

# Clipping: the norm in the log is the one before; what is never reached changes nothing.
check 'a bound that is never reached' one loose 64 --steps 50 --clip 1e6
check 'changes nothing' same loose b64
check 'a bound that is' one tight 64 --steps 50 --clip 0.01
expect 1 'differs at step' 'does' same_losses "$dir/b64.jsonl" "$dir/tight.jsonl" 1e-5
check 'the norm is in the log' awk '$1 > 0.01 { n++ } END { exit n != 50 }' <<END
$("$jsonl" "$dir/tight.jsonl" step grad_norm)
END

# Several ranks: all of it together, stopped and resumed, and ranks of different numbers of threads.
many() { # NAME RANKS BATCH OPTION...
	name=$1 count=$2 size=$3
	shift 3
	lenet "$count" "$size" --optimizer lamb --lr 0.005 --schedule constant --clip 1 --ema 0.9 --mixup 0.2 --log-every 1 \
		--log "$dir/$name.jsonl" --checkpoint "$dir/$name" "$@"
}
check 'one rank, 64 images a step' many one 1 64 --steps 20
check 'four ranks, 4 x 8 x 2' many four 4 8 --accumulate 2 --steps 20
check 'lose the same' same_losses "$dir/one.jsonl" "$dir/four.jsonl" 1e-4
check 'ten steps by four ranks' many halves 4 8 --accumulate 2 --steps 10
cp -r "$dir/halves" "$dir/moved" && cp "$dir/halves.jsonl" "$dir/moved.jsonl"
check 'and ten more' many halves 4 8 --accumulate 2 --steps 20 --resume auto
check 'are bit-identical to twenty' same four halves
check 'so is their average' cmp "$dir/four/latest/ema.safetensors" "$dir/halves/latest/ema.safetensors"
check 'or by two ranks' many moved 2 32 --steps 20 --resume auto
check 'lose the same' same_losses "$dir/one.jsonl" "$dir/moved.jsonl" 1e-4
threads() { # NAME THREADS-OF-RANK-1
	timeout -k 5 300 "$gannet" launch -n 2 -- sh -c 't=1; [ "$PMIX_RANK" = 1 ] && t=$4
		exec "$1" train --data "$2" --model lenet --optimizer lars --lr 8 --clip 0.5 --batch 32 --threads $t --steps 10 \
			--loader-threads 1 --log-every 1 --log "$3"' sh "$gannet" "$dir/train" "$dir/$1.jsonl" "$2"
}
check 'two ranks, one with three threads' threads uneven 3
check 'two with one' threads even 1
check 'lose the same, too' same_losses "$dir/even.jsonl" "$dir/uneven.jsonl" 1e-5
expect 1 'rank 1 .*|10th in a row' 'three ranks blow up together' lenet 3 16 --lr 1e6 --steps 50

# Mixup: a function of seed, epoch and sample, so that 1 x 64 and 2 x 32 still see the same.
check 'mixup by 64' one mix64 64 --steps 30 --mixup 0.4
check 'mixup by 2 x 32' one mix32 32 --steps 30 --mixup 0.4 --accumulate 2
check 'the same losses' same_losses "$dir/mix64.jsonl" "$dir/mix32.jsonl" 1e-5
check 'without mixup' one plain64 64 --steps 30
expect 1 'differs at step 1 ' 'other losses' same_losses "$dir/plain64.jsonl" "$dir/mix64.jsonl" 1e-5

# Growing images.
check 'pictures to grow' "$gannet" pack --out "$dir/pictures" --synthetic 80 --classes 4 --size 48x48
grow() { # NAME EPOCHS OPTION...
	name=$1 epochs=$2
	shift 2
	GANNET_LOG=info timeout -k 5 300 "$gannet" train --data "$dir/pictures" --val "$dir/pictures" --model resnet20 --batch 20 \
		--epochs "$epochs" --threads 1 --schedule constant --lr 0.02 --log-every 1 --log "$dir/$name.jsonl" \
		--checkpoint "$dir/$name" "$@"
}
expect 0 'epoch 1: images of side 24' 'sides 16, 24, 32' grow grown 3 --resize-schedule 0:16,1:24,2:32
check 'two epochs' grow parts 2 --resize-schedule 0:16,1:24,2:32
expect 0 'epoch 2: images of side 32' 'and the third' grow parts 3 --resize-schedule 0:16,1:24,2:32 --resume auto
check 'are the same as three' same parts grown
check 'all at one side is another run' grow flat 3
check 'really' sh -c 'test "$1" != "$2"' sh "$(final flat)" "$(final grown)"
check 'the checkpoint is of the full side' grep -q '"side": 32' "$dir/grown/latest/manifest.json"
expect 2 'write rising epochs' 'sides that begin in the middle' grow none 1 --resize-schedule 1:16
expect 2 'write rising epochs' 'sides without epochs' grow none 1 --resize-schedule 128
expect 2 'images of side 4: .*single value' 'a side that is too small, before anything runs' grow none 9 --batch 1 \
	--resize-schedule 0:32,8:4
expect 2 'lenet has other parameters .* side 20 than for 28' 'a network that cannot grow' one none 64 --resize-schedule 0:20,1:28

# Presets fill in what is not given, and say what.
preset() { GANNET_LOG=info one "$@" --lr-start 0 --steps 4 2>&1 | grep ' recipe '; }
expect 0 'recipe goyal for a global batch of 64: .*lr-batch=256 .*warmup-epochs=5.*; given: lr lr-start' goyal preset goyal 32 \
	--accumulate 2 --recipe goyal
# 4 steps of 64 of the 7000 digits are 0.037 of 90 epochs
expect 0 'schedule is scaled from 90 to 0.0367 epochs, .*milestones 0.01223,0.02446,0.03262' 'its schedule shrinks with the run' \
	preset scaled 32 --accumulate 2 --recipe goyal
check 'the start event has both' sh -c '"$1" "$2" start recipe options | grep -q "^goyal for.* lr=0.01 "' sh "$jsonl" \
	"$dir/goyal.jsonl"
check 'and what was chosen among the options' sh -c '"$1" "$2" start options | grep -q "nesterov=1 .*zero-gamma=1 "' sh \
	"$jsonl" "$dir/goyal.jsonl"
expect 0 'recipe mlperf-lars for .* nearest published one is 1632, far from it.: .*weight-decay=5e-05' mlperf-lars \
	preset mlperf 64 --recipe mlperf-lars
expect 0 'recipe nvidia-50 .*weight-decay=3.0517578125e-05' nvidia-50 preset nvidia 64 --recipe nvidia-50
expect 0 'lr = 0.008 +table 2$' 'a dry run has the values and where they are from' "$gannet" train --recipe timm-a3 --dry-run
expect 0 'global batch of 128, published for 2048' 'the batch' "$gannet" train --recipe timm-a3 --dry-run --batch 64 --accumulate 2
expect 0 'lr = 0.008 .*another value is given' 'what is given' "$gannet" train --recipe timm-a3 --dry-run --lr 1
expect 0 'randaugment = 2,18 +table 2: 6 of 10' 'augmentation, too' "$gannet" train --recipe timm-a3 --dry-run
expect 0 'trivialaugment = 1 ' 'of torchvision' "$gannet" train --recipe torchvision-v2 --dry-run
expect 0 'missing here: binary cross-entropy' 'and what is missing' "$gannet" train --recipe timm-a3 --dry-run
expect 2 'give --recipe' 'of no recipe it has nothing' "$gannet" train --dry-run
expect 2 'data DIR is missing' 'a run needs data' "$gannet" train --recipe timm-a3 --no-dry-run
for recipe in torchvision-v1 torchvision-v2 timm-a2 timm-a3 ffcv-16 ffcv-88; do
	expect 0 "recipe $recipe for a global batch of 32[ :]" "$recipe sets options that are there" preset $recipe 32 --side 28 --resize -1 \
		--resize-schedule 0:28 --augment shift --recipe $recipe
done
expect 0 'missing here: binary cross-entropy' 'its log says what is missing' preset missing 32 --side 28 --resize -1 --resize-schedule 0:28 \
	--augment shift --recipe timm-a3
expect 2 'not one of goyal' 'an unknown recipe' one none 64 --recipe adam

# Convolutions of bfloat16 learn what those of float do; a processor without them says so.
check 'lenet in fp32: 150 steps' one wide 64 --steps 150
if grep -q avx512_bf16 /proc/cpuinfo; then
	check 'and in bf16' one narrow 64 --steps 150 --precision bf16
	check 'bf16 has other parameters' sh -c '! cmp -s "$1/wide/latest/model.safetensors" "$1/narrow/latest/model.safetensors"' \
		sh "$dir"
	a=$(top1 "$dir/wide") b=$(top1 "$dir/narrow")
	check "top-1 within 2 points of fp32 ($a and $b tenths of a percent)" test "$b" -ge $((a - 20))
else
	expect 1 'no instructions for bfloat16' 'bf16 is refused here' one narrow 64 --steps 150 --precision bf16
fi
expect 1 'only in double precision' 'the oracle has no bf16' one none 64 --steps 1 --device ref --precision bf16

# What blows up ends, after ten steps without an update, and says how to go on.
expect 1 'not finite at step [0-9]+ .*10th in a row' 'gradients that are never finite' one blown 64 --lr 1e6 --steps 50
expect 1 'step [0-9]+ updates nothing.*; 1 step skipped so far' 'the first skipped step was told' one blown2 64 --lr 1e6 --steps 50
expect 1 'updates nothing.*; 2 steps skipped so far' 'and the second' one blown3 64 --lr 1e6 --steps 50
check 'nothing is saved of it' test ! -e "$dir/blown/latest"
finish
