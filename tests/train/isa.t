#!/bin/sh
# Older processors train without oneDNN's plain loops, which are hundreds of times as slow.
set -u
. "$GN_SOURCE/tests/train/common.sh"
export OMP_NUM_THREADS=1
step() { # ISA
	timeout -k 5 300 env ONEDNN_MAX_CPU_ISA="$1" ONEDNN_VERBOSE=1 "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --batch 4 \
		--steps 1 --threads 1 --loader-threads 1 >"$dir/out" 2>"$dir/err" || { cat "$dir/err"; return 1; }
	grep -c 'exec,cpu,convolution,.*backward_weights' "$dir/out" >"$dir/count"
	grep 'exec,cpu,convolution,ref' "$dir/out" && return 1
	[ "$(cat "$dir/count")" -ge 2 ] || { cat "$dir/out"; return 1; }
}
check 'digits are packed' pack_digits
for isa in SSE41 AVX AVX2 ALL; do
	check "no convolution of lenet is a plain loop with $isa" step "$isa"
done
finish
