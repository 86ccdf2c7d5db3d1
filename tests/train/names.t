#!/bin/sh
# Weights under other names: behind prefixes, and as timm, Transformers and torchvision before 0.13 have them. The logits are the same bits.
set -u
. "$GN_SOURCE/tests/train/common.sh"
export OMP_NUM_THREADS=1 GANNET_LOG=info

check 'small images are packed' "$gannet" pack --out "$dir/train" --synthetic 12 --classes 3 --size 32x32
train() { timeout -k 5 300 "$gannet" train --data "$dir/train" --side 32 --batch 4 --steps 1 --threads 1 --loader-threads 1 "$@"; }
evaluate() { timeout -k 5 300 "$gannet" eval --data "$dir/train" --threads 1 --side 32 --resize 32 --batch 4 "$@"; }
exports() { # MODEL
	check "$1 has trained a step" train --model "$1" --checkpoint "$dir/$1"
	check 'is exported' "$gannet" export --checkpoint "$dir/$1" --out "$dir/$1.safetensors"
	check 'and evaluated' evaluate --weights "$dir/$1.safetensors" --logits "$dir/$1.npy"
}
as() { # LIBRARY MODEL PREFIX PATTERN
	name="$1's $2"
	check "$name is written" "$GN_SOURCE/tests/train/library_names" "$dir/$2.safetensors" "$dir/other.safetensors" "$1" "$2" "$3"
	expect 0 "$4" 'is known' evaluate --weights "$dir/other.safetensors" --model "$2" --logits "$dir/other.npy"
	check 'and has the same logits' cmp "$dir/$2.npy" "$dir/other.npy"
}

exports mobilenet_v2
as timm mobilenet_v2 '' "names in .*other.safetensors are timm's"
exports efficientnet_b0
as timm efficientnet_b0 module. "start with 'module.', which is left out"
exports resnet18
as transformers resnet18 '' "are Transformers'"
as none resnet18 module._orig_mod.backbone. "start with 'module._orig_mod.backbone.'"

# with --init, on two ranks: said once, and not of a file of gannet
two() { timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" train --data "$dir/train" --model resnet18 --side 32 --batch 4 --steps 1 \
	--threads 1 --loader-threads 1 --lr 0 --lr-start 0 --checkpoint "$1" --init "$2"; }
check 'two ranks begin with the plain file' eval 'two "$dir/plain" "$dir/resnet18.safetensors" 2>"$dir/plain.log"'
check 'and with the other' eval 'two "$dir/renamed" "$dir/other.safetensors" 2>"$dir/renamed.log"'
check 'the weights are the same' cmp "$dir/plain/latest/model.safetensors" "$dir/renamed/latest/model.safetensors"
check 'it is said once, and of the other alone' test "$(grep -c 'names in' "$dir/plain.log") $(grep -c 'names in' "$dir/renamed.log")" = '0 1'

expect 3 'no tensor layer1.2.conv1.weight, .*, layer1.2.bn2.weight and others, which resnet34 needs' 'a smaller network is none' \
	train --model resnet34 --init "$dir/resnet18.safetensors"
finish
