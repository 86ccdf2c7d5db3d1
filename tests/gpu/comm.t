#!/bin/bash
# Sums of GPU memory by NCCL and by UCX, between processes on the GPUs that are here; without any on some that are emulated, and what those
# ranks say that look for a real one.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
probe=$GN_BUILD/tests/gpu/comm_probe program=$gannet
# as many ranks as there are GPUs may use NCCL
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')

right() { # N HOW NAME: by what its name says
	launch "$1" "$probe" "$2" >"$scratch/out" 2>"$scratch/err"
	cat "$scratch/out" "$scratch/err"
	[[ $(grep -cE "sums of GPU memory by $3 are right$" "$scratch/out") == "$1" ]]
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
	grep -q '^rank 1 on .* is lost: its connection closed' "$scratch/err"
}

if ((gpus == 0)); then
	check "without a GPU: both ranks say whose" together auto '^rank 0 on .*: cuda: there is no '
	probe=$GN_BUILD/tests/gpu/comm_probe_emulated program=$GN_BUILD/tests/gpu/gannet_emulated
	export GANNET_EMULATED_GPUS=2
fi
check "two ranks by UCX" right 2 ucx ucx
check "two ranks by what is faster" right 2 auto '(ucx|nccl)'
check "UCX: a rank that dies is named by the other" lost ucx
# benched HOW TYPE: every sum that the bench makes is right
benched() {
	launch 2 "$program" bench allreduce --device cuda --comm "$1" --type "$2" --min-bytes 4K --max-bytes 4M --factor 32 --iters 3 \
		--json >"$scratch/out" 2>"$scratch/err" && [[ $(grep -c '"algo": *"'"$1"'".*"wrong": 0}' "$scratch/out") == 3 ]] && return
	cat "$scratch/out" "$scratch/err"
	return 1
}
check "bench allreduce of GPU memory by UCX" benched ucx float
check "of bfloat16" benched ucx bfloat16
one_gpu() { together nccl 'share one GPU, .*, which NCCL does not support: give each rank'; }
if ((gpus == 0)); then
	check "two emulated GPUs, two ranks by NCCL" right 2 nccl nccl
	in_groups() { GANNET_EMULATED_GPUS=4 PROBE_GROUP=2 right 4 "$1" "$1"; }
	check "two groups of two by NCCL, at once" in_groups nccl
	check "and by UCX" in_groups ucx
	# NCCL itself: loaded, asked for an identifier, and for a communicator, which it cannot make
	toolkit=$(sed -n "s,^CUDA_CPPFLAGS='-isystem \([^ ]*\)/include .*,\1,p" "$GN_BUILD/config.log")
	if /sbin/ldconfig -p | grep -q libnccl.so.2 || compgen -G "$toolkit/lib*/libnccl.so.2" >/dev/null; then
		no_driver() { GANNET_EMULATED_NCCL=real together "$1" '^rank [01] on .*, cuda:[01]: ncclCommInitRankConfig: .*Cuda failure.*driver'; }
		check "the real NCCL: both ranks say what it misses" no_driver nccl
		check "and with auto" no_driver auto
	else
		skip "the real NCCL: both ranks say what it misses" "no libnccl.so.2"
	fi
	check "NCCL: a rank that dies is named by the other" lost nccl
	# Its peer waits for it, and it for nobody, for longer than a stall may last; NCCL tells nothing of 20 MB that a slow network takes 7 s
	# for. All wait at the same time.
	waiting() { # NAME HOW SETTING...
		env "${@:3}" timeout -k 5 300 "$gannet" launch -n 2 -- "$probe" "$2" -1 5000 >"$scratch/$1.out" 2>"$scratch/$1.err"
	}
	waiting late-nccl nccl GANNET_EMULATED_HOLD_MS=7000 GANNET_EMULATED_HOLD_RANK=1 &
	waiting late-ucx ucx GANNET_EMULATED_HOLD_MS=7000 GANNET_EMULATED_HOLD_RANK=1 &
	waiting slow nccl GANNET_EMULATED_NCCL_MB_S=3 &
	wait
	waited() { # NAME [WORDS]
		cat "$scratch/$1.err"
		[[ $(grep -c 'are right$' "$scratch/$1.out") == 2 ]] && grep -q "${2-}" "$scratch/$1.err"
	}
	check "NCCL: a GPU that is late with what is to be summed is no stall" waited late-nccl 'emulated: a copy took 7000 ms'
	check "nor is it by UCX" waited late-ucx 'emulated: a copy took 7000 ms'
	check "NCCL: a large sum on a slow network is no stall" waited slow
	export GANNET_EMULATED_GPUS=5
	check "five ranks by NCCL" right 5 nccl nccl
	check "bench allreduce by NCCL" benched nccl half
	export GANNET_EMULATED_GPUS=2 GANNET_EMULATED_NCCL_FAILS=6
	check "an error that NCCL reports is told by both, and is no stall" together nccl '^rank [01] on .*, cuda:[01]: ncclAllReduce: .*network error'
	unset GANNET_EMULATED_NCCL_FAILS
	export GANNET_EMULATED_GPUS=1
	check "one GPU for two ranks: NCCL refuses, and both say what to do" one_gpu
	check "and then auto is UCX" right 2 auto ucx
elif ((gpus == 1)); then
	check "one GPU for two ranks: NCCL refuses, and both say what to do" one_gpu
	check "one rank by NCCL" right 1 nccl nccl
else
	check "two ranks by NCCL" right 2 nccl nccl
	check "NCCL: a rank that dies is named by the other" lost nccl
fi
finish
