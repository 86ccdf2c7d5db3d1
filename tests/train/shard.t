#!/bin/bash
# The sharded optimizer: the same training as without, parts of the state on each rank, checkpoints for any number of ranks.
set -u
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"
lenet() { # NAME RANKS OPTION...: in $scratch/NAME
	launch "$2" "$gannet" train --data "$scratch/train" --model lenet --batch 8 --threads 1 --loader-threads 1 --schedule constant \
		--bucket 200K --log "$scratch/$1.jsonl" --checkpoint "$scratch/$1" "${@:3}"
}

weights() { echo "$scratch/$1/latest/${2:-model}.safetensors"; }
near() { "$GN_SOURCE/tests/train/apart" "$(weights "$1" "${4:-model}")" "$(weights "$2" "${4:-model}")" "$3"; }

bf16=
grep -q 'avx512bw.*avx512vl' /proc/cpuinfo && bf16=--precision\ bf16-emulated
# Two ranks add in one order, so all bits are the same; three and four do not, and after a step are within 1e-6. Four parts are of the last way.
n=0
for how in '--optimizer sgd --lr 0.02 --nesterov' '--optimizer lars --lr 2 --ema 0.9 --clip 2' \
	'--optimizer lamb --lr 0.001 --ema 0.9 --accumulate 2'" $bf16"; do
	n=$((n + 1))
	# shellcheck disable=SC2086 # options
	check "2 ranks, $how" lenet plain$n 2 --steps 5 $how
	# shellcheck disable=SC2086
	check 'and sharded' lenet shard$n 2 --steps 5 --shard optimizer $how
	check 'the same bits' same plain$n shard$n
	counts=3
	((n < 3)) || counts='3 4'
	for ranks in $counts; do
		# shellcheck disable=SC2086
		check "$ranks ranks, a step" lenet plain$n-$ranks $ranks --steps 1 $how
		# shellcheck disable=SC2086
		check 'and sharded' lenet shard$n-$ranks $ranks --steps 1 --shard optimizer $how
		check 'within 1e-6' near plain$n-$ranks shard$n-$ranks 1e-6
	done
done
check 'the averages are the same bits' cmp "$(weights plain3 ema)" "$(weights shard3 ema)"
check 'those of 4 ranks within 1e-6' near plain3-4 shard3-4 1e-6 ema
check 'all ranks write parts of the state' test -f "$scratch/shard3-4/latest/optimizer-00003.safetensors"

# Gradients of each batch are divided, too: another order of sums.
check 'gradients of two batches, 3 ranks' lenet gradients 3 --steps 1 --shard gradients --accumulate 2 --lr 0.02
check 'and not sharded' lenet whole 3 --steps 1 --accumulate 2 --lr 0.02
check 'within 1e-6' near gradients whole 1e-6

# Checkpoints of parts are those of whole state: each goes on from both, with another number of ranks, sharded and not.
lamb="--optimizer lamb --lr 0.001 --ema 0.9 --accumulate 2 $bf16"
for how in none optimizer gradients; do
	for from in plain3 shard3; do
		cp -r "$scratch/$from" "$scratch/$from-$how"
		# shellcheck disable=SC2086
		check "from $from with 3 ranks, --shard $how" lenet "$from-$how" 3 --steps 7 --resume auto --shard $how $lamb
	done
	check 'the same bits' same plain3-$how shard3-$how
done
# shellcheck disable=SC2086
check 'the averages of one rank, too' lenet shard3-optimizer 1 --steps 8 --resume auto --shard optimizer $lamb --val "$scratch/val"
evaluate() { "$gannet" eval --data "$scratch/val" --checkpoint "$scratch/$1" --ema | grep -o '"loss": [^,}]*'; }
check 'eval finds the same average' test "$(evaluate shard3)" = "$(evaluate plain3)"
check 'export, too' "$gannet" export --checkpoint "$scratch/shard3" --out "$scratch/out.safetensors"

# The run's own evaluation of the average, which is gathered for it, leaves the training alone.
check 'evaluated in between' lenet evaluated 3 --steps 1 --shard optimizer --optimizer lars --lr 2 --ema 0.9 --clip 2 --val "$scratch/val"
check 'the same bits' same evaluated shard2-3
check 'the average is another network' sh -c 'test "$("$1" "$2" eval ema.loss)" != "$("$1" "$2" eval loss)"' sh "$jsonl" "$scratch/evaluated.jsonl"

# What a rank holds: resident bytes, and the same parameters.
check 'state is divided in memory, resnet18, 2 ranks' launch 2 "$GN_BUILD/bench/parallel/sharded" resnet18 lamb 32 2 2

expect 2 '--shard and --compress int8 cannot be combined: each rank' 'not with compression' "$gannet" train --data "$scratch/train" --model lenet \
	--shard optimizer --compress int8
finish
