#!/bin/bash
# Sums of GPU memory by NCCL and by UCX, between processes on the GPUs that are here. Without one: that all ranks end with the same error.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
probe=$GN_BUILD/tests/gpu/comm_probe
# as many ranks as there are GPUs may use NCCL
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')

right() { # N HOW
	launch "$1" "$probe" "$2" >"$scratch/out" 2>"$scratch/err"
	cat "$scratch/out" "$scratch/err"
	[[ $(grep -c 'sums of GPU memory by .* are right$' "$scratch/out") == "$1" ]]
}
# together HOW PATTERN: two ranks end alike, each naming what is wrong, nobody waits
together() {
	launch 2 "$probe" "$1" >"$scratch/out" 2>"$scratch/err" && return 1
	cat "$scratch/err"
	[[ $(grep -cE "$2" "$scratch/err") == 2 ]]
}
lost() { # HOW
	launch 2 "$probe" "$1" 1 >"$scratch/out" 2>"$scratch/err"
	cat "$scratch/err"
	grep -q 'rank 1 on' "$scratch/err"
}

if ((gpus == 0)); then
	check "NCCL without a GPU: both ranks say whose" together nccl 'NCCL: rank 0 on .*cuda:0: .*(cudaErrorInsufficientDriver|cudaErrorNoDevice)'
	check "auto without a GPU" together auto '^cuda:0: .*(cudaErrorInsufficientDriver|cudaErrorNoDevice)'
	skip "sums of GPU memory" "no GPU here"
else
	check "two ranks by UCX" right 2 ucx
	check "two ranks by what is faster" right 2 auto
	check "UCX: a rank that dies is named by the other" lost ucx
	if ((gpus == 1)); then
		check "one GPU for two ranks: NCCL refuses, and both say what to do" together nccl 'have one GPU between them'
		check "one rank by NCCL" right 1 nccl
	else
		check "two ranks by NCCL" right 2 nccl
		check "NCCL: a rank that dies is named by the other" lost nccl
	fi
fi
finish
