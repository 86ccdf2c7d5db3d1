#!/bin/bash
# Compressed gradients: what every rank gets, by every method, and runs that go on with what was kept back. compress_learns.t has what is learned.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
probe=$GN_BUILD/tests/train/compress_probe
export UCX_WARN_UNUSED_ENV_VARS=n GANNET_LOG=warn OMP_NUM_THREADS=1
methods='bf16 fp16 int8 topk:0.01 topk:0.6 dgc:0.01 powersgd:2'

right() { # N METHOD
	launch "$1" "$probe" "$2" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/err"; return 1; }
	[[ $(grep -c 'buckets are right' "$scratch/out") == "$1" ]]
}
for method in $methods local; do
	for n in 2 3 4; do
		check "$method, $n ranks: same bits, sums, bytes" right $n "$method"
	done
done

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-val.tar.xz"
# Going on: the same bits with as many ranks, and with another number what was kept back is shared out.
short() { # NAME RANKS OPTION...
	launch "$2" "$gannet" train --data "$scratch/train" --model lenet --lr 0.02 --schedule constant --batch 16 --threads 1 --loader-threads 1 \
		--checkpoint "$scratch/$1" --log "$scratch/$1.jsonl" "${@:3}"
}
digest() { "$GN_SOURCE/tests/cmd/jsonl" "$scratch/$1.jsonl" end params_sha256 | tail -1; }
for method in int8 topk:0.01 dgc:0.01 powersgd:2; do
	check "$method: 12 steps" short "$method-whole" 2 --compress "$method" --steps 12
	check "$method: 6 steps" short "$method-part" 2 --compress "$method" --steps 6
	check "$method: go on to 12" short "$method-part" 2 --compress "$method" --steps 12 --resume auto
	check "$method: the same bits" test "$(digest "$method-whole")" = "$(digest "$method-part")"
done
for n in 1 3; do
	check "topk:0.01 goes on with $n ranks" short topk:0.01-part $n --compress topk:0.01 --steps $((16 + n)) --resume auto
	check "powersgd:2 goes on with $n ranks" short powersgd:2-part $n --compress powersgd:2 --steps $((16 + n)) --resume auto
done
expect 0 'made with --compress topk:0.01, this run has none.*dropped' 'going on without compression is told' short topk:0.01-part 2 \
	--steps 20 --resume auto
nothing_dropped() { ! short "$@" 2>&1 | grep dropped; }
check 'going on with it after none drops nothing' nothing_dropped topk:0.01-part 2 --steps 21 --resume auto --compress topk:0.01
GANNET_LOG=info expect 0 '--compress auto: topk:0.01, which the run before' 'what auto takes from a checkpoint is told' short topk:0.01-part 2 --steps 22 \
	--resume auto --compress auto
finish
