#!/bin/sh
# bfloat16 on processors that oneDNN is told to be less than they are: emulated by choice where there is AVX-512 alone, else refused.
# bf16_emulated.t has all operators.
set -u
. "$GN_SOURCE/tests/train/common.sh"
export OMP_NUM_THREADS=1
as() { # ISA COMMAND...: the processor has no more than that
	isa=$1
	shift
	timeout -k 5 300 env ONEDNN_MAX_CPU_ISA="$isa" "$@"
}
# digits ISA NAME OPTION...: 60 steps of lenet, whose second convolution is of a kind with instructions for it
digits() {
	isa=$1 name=$2
	shift 2
	as "$isa" "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --batch 64 --steps 60 --threads 1 --loader-threads 1 \
		--log-every 10 --log "$dir/$name.jsonl" --checkpoint "$dir/$name" "$@"
}
precision() { "$jsonl" "$dir/$1.jsonl" start precision; }
loss() { "$jsonl" "$dir/$1.jsonl" step loss | tail -n 1; }

for isa in AVX2 SSE41; do
	expect 1 'needs AVX-512 .*use --precision fp32' "with $isa it is refused" as "$isa" "$gannet" info --plan lenet --precision bf16-emulated
done
if ! grep -q 'avx512bw.*avx512vl' /proc/cpuinfo; then
	skip 'emulated bfloat16' 'this processor has no AVX-512'
	finish
	exit
fi

expect 1 'no instructions for bfloat16 .*--precision bf16-emulated' 'refused without the choice, which is named' \
	as AVX512_CORE "$gannet" info --plan lenet --precision bf16
expect 0 'training in bf16 \(emulated\):' 'a plan tells' as AVX512_CORE "$gannet" info --plan lenet --precision bf16-emulated \
	--gb-per-s 20 --gflop-per-s 100
check 'digits are packed' pack_digits
check 'lenet in fp32' digits AVX512_CORE wide
GANNET_LOG=info
expect 0 'no instructions for bfloat16, it emulates' 'in bf16, emulated' digits AVX512_CORE emulated --precision bf16-emulated
GANNET_LOG=warn
check 'the start event says so' test "$(precision emulated)" = 'bf16 (emulated)'
check 'other parameters than of fp32' sh -c '! cmp -s "$1/wide/latest/model.safetensors" "$1/emulated/latest/model.safetensors"' sh "$dir"
check "and as low a loss ($(loss wide) and $(loss emulated))" awk -v a="$(loss wide)" -v b="$(loss emulated)" \
	'BEGIN { exit !(b > 0 && b < 1.1 * a + 0.02 && a < 2) }'
finish
