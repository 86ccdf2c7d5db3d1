#!/bin/bash
# Pipelines of networks with batch norm and stochastic depth: other cuts than pipeline.t's, and activations that are recomputed, with the same bits.
set -u
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"
net() { # NAME RANKS MODEL OPTION...: in $scratch/NAME
	launch "$2" "$gannet" train --data "$scratch/train" --model "$3" --lr 0.02 --threads 1 --loader-threads 1 --schedule constant \
		--log "$scratch/$1.jsonl" --checkpoint "$scratch/$1" "${@:4}"
}
small='--side 16 --channels 1'
weights() { echo "$scratch/$1/latest/${2:-model}.safetensors"; }

held() { grep -o '"activation_bytes": [0-9]*' "$scratch/$1.jsonl" | sed -n '1s/.* //p'; } # by the first stage
smaller() { awk -v a="$(held "$1")" -v b="$(held "$2")" -v percent="$3" 'BEGIN { exit !(a > 0 && 100 * a < percent * b) }'; }
again() { # NAME OF PERCENT RANKS MODEL OPTION...: the bits of OF, with less than so many percent of its memory
	check "$5 with --recompute, ${*: -1}" net "$1" "$4" "$5" --recompute "${@:6}"
	check 'the same bits' same "$2" "$1"
	check 'batch norm as well' cmp "$(weights "$2")" "$(weights "$1")"
	[ "$3" = - ] || check "less than $3 % of the memory" smaller "$1" "$2" "$3"
}
two='--parallel pipeline=2 --cut'
# shellcheck disable=SC2086 # options
{
	check 'resnet20 on one rank' net res1 1 resnet20 --batch 4 --accumulate 3 --steps 2 $small --val "$scratch/val"
	check 'resnet20 cut within a layer' net res2 2 resnet20 --batch 12 --micro-batches 3 --steps 2 $small $two layer1.1 --val "$scratch/val"
	check 'the same bits' same res1 res2
	check 'batch norm as well' cmp "$(weights res1)" "$(weights res2)"
	check 'and the same evaluation' test -n "$(score res1)" -a "$(score res1)" = "$(score res2)"
	again resr-gpipe res1 - 2 resnet20 --batch 12 --micro-batches 3 --steps 2 $small $two layer2 --pipe-schedule gpipe
	drop="efficientnet_b0 --batch 6 --micro-batches 3 --steps 1 --side 32 --channels 1 --drop-path 0.9 $two features.7"
	check 'dropout of whole paths' net drop 2 $drop
	again dropr drop 70 2 $drop
}
finish
