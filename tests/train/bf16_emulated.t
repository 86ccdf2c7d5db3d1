#!/bin/sh
# Emulated bfloat16, on a processor that oneDNN is told to have AVX-512 alone: every operator against the oracle, and a network within its bounds.
set -u
. "$GN_SOURCE/tests/train/common.sh"
export OMP_NUM_THREADS=1
good=$GN_SOURCE/tests/golden/resnet18-b4-s64-c10.json
as() { # ISA COMMAND...: the processor has no more than that
	isa=$1
	shift
	timeout -k 5 300 env ONEDNN_MAX_CPU_ISA="$isa" "$@"
}
if ! grep -q 'avx512bw.*avx512vl' /proc/cpuinfo; then
	skip 'emulated bfloat16' 'this processor has no AVX-512'
	finish
	exit
fi

if [ ! -x "$GN_BUILD/tests/kernels/test_bf16" ]; then
	skip 'operators meet the oracle' 'tests/kernels/test_bf16 was not built: configure found no cmocka'
elif [ ! "${GN_SANITIZED:-}" ]; then
	check 'operators meet the oracle' sh -c '"$@" >"$0" 2>&1 && grep -q "bfloat16 is emulated here" "$0"' "$dir/operators" \
		timeout -k 5 300 env ONEDNN_MAX_CPU_ISA=AVX512_CORE "$GN_BUILD/tests/kernels/test_bf16"
fi
expect 0 'host, bf16 .emulated.' 'resnet18 is within the bounds of bf16 (a wrong number is seen by selftest.t)' as AVX512_CORE "$gannet" selftest --precision bf16-emulated \
	--golden "$good"
finish
