#!/bin/bash
# Tensor groups of larger networks: gradients of all families within rounding of the whole network's, and the digits learned as well as by ranks
# of data.
set -u
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"
net() { # NAME RANKS MODEL OPTION...
	launch "$2" "$gannet" train --data "$scratch/train" --model "$3" --channels 3 --side 32 --lr 0.01 --threads 1 --loader-threads 1 \
		--schedule constant --steps 2 --checkpoint "$scratch/$1" --log "$scratch/$1.jsonl" "${@:4}"
}
apart() { "$GN_SOURCE/tests/train/apart" "$scratch/$1/latest/model.safetensors" "$scratch/$2/latest/model.safetensors" "$3"; }
learned() { "$jsonl" "$scratch/$1.jsonl" eval top1 | tail -1; }

for model in resnet18 resnet50 vgg16 vit_b_16 mobilenet_v2 mobilenet_v3_large efficientnet_b0 convnext_tiny; do
	check "gradients of $model, of 2 and 4 slices" env GN_TENSOR_NETWORK=$model "$GN_BUILD/tests/train/test_tensor"
done
# Directly: by the rule a slice and the whole layer may be convolved in two ways.
for model in resnet18 vgg16; do
	check "$model on two ranks of data" net "$model" 2 "$model" --batch 4 --convolution direct
	check 'in two tensor groups of two' net "$model-4" 4 "$model" --batch 4 --convolution direct --parallel data=2,tensor=2
	check 'the same up to rounding' apart "$model" "$model-4" 1e-3
done
check 'digits by ranks of data' lenet data 2 --batch 16 --epochs 8 --val "$scratch/val"
check 'in tensor groups' lenet mesh 4 --batch 16 --epochs 8 --val "$scratch/val" --parallel data=2,tensor=2
check 'learned as well, within half a percent' awk -v a="$(learned data)" -v b="$(learned mesh)" 'BEGIN { exit !(a > 0.9 && b >= a - 0.005) }'
if grep -q 'avx512bw.*avx512vl' /proc/cpuinfo; then
	check 'bf16 in a tensor group' net bf16 2 resnet18 --batch 6 --parallel tensor=2 --precision bf16-emulated
else
	skip 'bf16 in a tensor group' 'no AVX-512'
fi
finish
