#!/bin/bash
# One call of the CUDA runtime, a kernel or NCCL fails, another one in each run (tests/gpu/emulate_runtime.h): the run ends soon, with an error that
# names the call, or what failed was not needed and every bit of the result is as ever.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
export OMP_NUM_THREADS=1
program=$GN_BUILD/tests/gpu/gannet_emulated
"$program" pack --synthetic 12 --classes 3 --size 28x28 --out "$scratch/data" >"$scratch/log" 2>&1 || cat "$scratch/log" >&2

model=(--model lenet --side 28)
# train NAME RANKS COMM
train() {
	local started=()
	rm -f "$scratch/$1.jsonl"
	(($2 == 1)) || started=("$gannet" launch -n "$2" --)
	timeout -k 5 300 "${started[@]}" "$program" train --data "$scratch/data" "${model[@]}" --batch 2 --steps 3 --lr 0.01 --device cuda \
		--comm "$3" --log "$scratch/$1.jsonl" >"$scratch/$1" 2>&1
}
sha() { grep -o '"params_sha256": *"[0-9a-f]*"' "$scratch/$1.jsonl"; }
# What waits for an event, or asks NCCL, is called by what it waits for. Behind a fault that stays another call may be the first to be told.
# named CALL RANK: by the rank itself, or by rank 0 for all, when all have that error. Nobody else is to blame.
named() {
	local name=${1%%With*}
	[[ $1 != @(cudaEventQuery|ncclCommGetAsyncError) ]] || name="$1|nccl|a copy between GPU and host"
	[[ ! ${GANNET_EMULATED_FAIL_STICKY:-} ]] || name='cuda|nccl'
	! grep -qE "ERROR .*\[$2\] train: rank . on .* is lost" "$scratch/run" &&
		grep ERROR "$scratch/run" | grep -E -e "\[$2\] train: " -e "\[0\] train: rank $2 on [^ ]*: " | grep -qE -e "$name"
}

# survives RANKS COMM RANK SHARE [LAST]: calls number 1, 2, ... of that rank, each time by a SHARE-th further, to the last
survives() {
	local n=1 call code failed=0 runs=0
	train whole "$1" "$2" || { cat "$scratch/whole"; return 1; }
	while ((n <= ${5:-n})); do
		GANNET_EMULATED_FAIL_AT=$n GANNET_EMULATED_FAIL_RANK=$3 train run "$1" "$2"
		code=$?
		call=$(sed -n 's/.*emulated: call [0-9]*, \(.*\), fails$/\1/p' "$scratch/run")
		if [[ ! $call ]]; then # there are no more
			((code == 0)) || { echo "before call $n: exit code $code"; tail -n 5 "$scratch/run"; failed=1; }
			break
		fi
		runs=$((runs + 1))
		if ((code == 0)) && [[ $(sha run) == "$(sha whole)" ]] || { ((code == 1 || code == 4)) && named "$call" "$3"; }; then
			n=$((n + 1 + n / $4))
			continue
		fi
		echo "call $n, $call: exit code $code"
		grep -e ERROR -e Sanitizer "$scratch/run" | head -n 5
		failed=1
		n=$((n + 1 + n / $4))
	done
	echo "$runs runs"
	((!failed && runs > 10))
}
check "one rank, whatever call fails" survives 1 auto 0 12
share=4
[[ ! ${GN_LONG:-} ]] || share=7
check "two ranks by UCX, of which the second meets it" survives 2 ucx 1 "$share"
direct() { GANNET_EMULATED_DIRECT=1 survives 2 ucx 1 3 && grep -q 'GPU memory: ucx, messages in GPU memory' "$scratch/whole"; }
check "two ranks straight from GPU memory" direct
sticky() { GANNET_EMULATED_FAIL_STICKY=1 survives "$@"; }
check "one rank, with a fault that stays" sticky 1 auto 0 4
check "two ranks with one" sticky 2 ucx 1 3
# a rank whose NCCL fails waits for word of who is lost
check "two ranks by NCCL" survives 2 nccl 0 3 250
model=(--model resnet20 --side 16 --sync-bn all)
check "two ranks whose batch norms are summed" survives 2 ucx 1 2
finish
