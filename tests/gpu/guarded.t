#!/bin/bash
# The host never touches the GPU's memory itself: with emulated GPUs whose memory is out of its reach but for the calls of the runtime, whoever
# does so crashes (tests/gpu/emulate_runtime.h).
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
export OMP_NUM_THREADS=1 GANNET_EMULATED_SEED=0
program=$GN_BUILD/tests/gpu/gannet_emulated
if [[ ${GN_SANITIZED:-} ]]; then
	skip "the host in the GPU's memory" "AddressSanitizer places it"
	finish
fi

whole() { # NAME COMMAND...: to its end
	"${@:2}" >"$scratch/$1" 2>&1 && return
	tail -n 20 "$scratch/$1"
	return 1
}
seeds=(1 2) # of what is chosen by measuring
[[ ! ${GN_LONG:-} ]] || seeds+=(3)
for times in "${seeds[@]}"; do
	export GANNET_EMULATED_TIMES=$times
	check "operators, times by seed $times" whole ops "$GN_BUILD/tests/gpu/test_ops_emulated"
done
unset GANNET_EMULATED_TIMES
check "plans" whole plan "$GN_BUILD/tests/gpu/test_plan_emulated"

"$program" pack --synthetic 24 --classes 4 --size 40x40 --out "$scratch/data" >"$scratch/log" 2>&1 || cat "$scratch/log" >&2
train() { # RANKS OPTIONS...
	local started=()
	(($1 == 1)) || started=("$gannet" launch -n "$1" --)
	timeout -k 5 300 "${started[@]}" "$program" train --data "$scratch/data" --model resnet20 --side 16 --batch 2 --lr 0.02 --device cuda \
		--augment crop-flip "${@:2}"
}
for times in "${seeds[@]}"; do
	export GANNET_EMULATED_TIMES=$times
	check "training in fp16, times by seed $times" whole half train 1 --steps 3 --precision fp16
	check "with batch norms within convolutions" grep -E ' of [0-9]+ batch norms [0-9]+ forward and [0-9]+ backward within' "$scratch/half"
done
unset GANNET_EMULATED_TIMES
check "training, its average and validation" whole train train 1 --steps 4 --val "$scratch/data" --ema 0.9 --clip 2 --checkpoint "$scratch/run"
check "going on from a checkpoint, with --accumulate" whole resumed train 1 --steps 6 --accumulate 2 --resume auto --checkpoint "$scratch/run"
check "eval" whole eval timeout -k 5 300 "$program" eval --device cuda --data "$scratch/data" --checkpoint "$scratch/run"
check "two ranks by UCX" whole ucx train 2 --steps 3 --comm ucx
check "two ranks with --sync-bn" whole sync train 2 --steps 3 --comm nccl --sync-bn all
check "bench train" whole bench timeout -k 5 300 "$program" bench train --device cuda --model resnet20 --side 16 --batch 2 --iters 2
finish
