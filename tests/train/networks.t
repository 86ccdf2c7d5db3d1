#!/bin/sh
# The networks after ResNet in whole runs: stochastic depth, AdamW and RMSprop, checkpoints, exported files with torchvision's names as
# initial values, and what is refused.
set -u
. "$GN_SOURCE/tests/train/common.sh"
export OMP_NUM_THREADS=1

check 'small images are packed' "$gannet" pack --out "$dir/train" --synthetic 24 --classes 3 --size 32x32
train() { # NAME MODEL OPTION...
	name=$1 model=$2
	shift 2
	timeout -k 5 300 "$gannet" train --data "$dir/train" --model "$model" --side 32 --batch 8 --steps 3 --lr 0.001 --threads 1 \
		--loader-threads 1 --checkpoint "$dir/$name" --log "$dir/$name.jsonl" "$@"
}
evaluates() { "$gannet" eval --data "$dir/train" --threads 1 "$@" | grep -o '"loss": [0-9.e+-]*'; }
exported() { # NAME GOLDEN TENSOR:AXIS:SIZE...: where it differs from the golden file's network
	name=$1 golden=$2
	shift 2
	check 'is exported' "$gannet" export --checkpoint "$dir/$name" --out "$dir/$name.safetensors"
	check 'under the names and shapes of torchvision' python3 - "$dir/$name.safetensors" "$GN_SOURCE/tests/golden/$golden.json" "$@" <<-'PY'
	import json, sys
	data = open(sys.argv[1], "rb").read()
	header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
	header.pop("__metadata__")
	want = {name: t["shape"] for name, t in json.load(open(sys.argv[2]))["grads"].items()}
	for name, axis, size in (change.split(":") for change in sys.argv[3:]):
	    want[name][int(axis)] = int(size)
	assert {name: t["shape"] for name, t in header.items()} == want, set(header) ^ set(want)
	PY
	evaluates --checkpoint "$dir/$name" >"$dir/$name.txt"
	check 'the file answers as the checkpoint' test -s "$dir/$name.txt" -a "$(cat "$dir/$name.txt")" = "$(evaluates --weights "$dir/$name.safetensors")"
}
under() { # NAME MODEL LIBRARY: what was exported, under the names of another library
	check "is written with $3's names" "$GN_SOURCE/tests/train/library_names" "$dir/$1.safetensors" "$dir/other.safetensors" "$3" "$2"
	check 'that file answers as the checkpoint' test "$(cat "$dir/$1.txt")" = "$(evaluates --weights "$dir/other.safetensors" --model "$2" --side 32)"
}

check 'efficientnet_b0 with RMSprop' train a efficientnet_b0 --optimizer rmsprop --beta2 0.9 --eps 0.0316
check 'the same again' train b efficientnet_b0 --optimizer rmsprop --beta2 0.9 --eps 0.0316
check 'gives the same bits, masks of stochastic depth included' cmp "$dir/a/latest/model.safetensors" "$dir/b/latest/model.safetensors"
check 'without stochastic depth' train c efficientnet_b0 --optimizer rmsprop --beta2 0.9 --eps 0.0316 --drop-path 0
check 'it learns otherwise' eval '! cmp -s "$dir/a/latest/model.safetensors" "$dir/c/latest/model.safetensors"'
check 'convnext_tiny with AdamW' train d convnext_tiny --optimizer adamw --weight-decay 0.05
exported d convnext_tiny-b3-s96-c7 classifier.2.weight:0:3 classifier.2.bias:0:3
under d convnext_tiny timm
under d convnext_tiny transformers
check 'it is what another run begins with' train e convnext_tiny --optimizer adamw --init "$dir/d.safetensors"
check 'vit_b_16 with AdamW' train v vit_b_16 --optimizer adamw --weight-decay 0.05
exported v vit_b_16-b2-s64-c10 heads.head.weight:0:3 heads.head.bias:0:3 encoder.pos_embedding:1:5
under v vit_b_16 timm
under v vit_b_16 transformers
under v vit_b_16 old
expect 0 '^attention  ' 'the operators of its plan' "$gannet" info --plan vit_b_16 --image-size 32 --batch 2
expect 2 'multiple of 16' 'a side that is no multiple of a patch' train w vit_b_16 --side 40
expect 3 'pos_embedding.* images of another side' 'weights of another side' train w vit_b_16 --side 48 --init "$dir/v.safetensors"
expect 2 'cannot grow' 'an embedding of positions is of one side' train w vit_b_16 --resize-schedule 0:32,1:48
expect 2 'adamw has no Nesterov momentum' 'Nesterov' train f convnext_tiny --optimizer adamw --nesterov
expect 2 'rmsprop has no Nesterov momentum' 'Nesterov' train f convnext_tiny --optimizer rmsprop --nesterov
expect 2 'drop-path' 'a probability above 0.99' train f convnext_tiny --drop-path 1
finish
