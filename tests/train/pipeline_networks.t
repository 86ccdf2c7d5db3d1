#!/bin/bash
# Pipelines of larger networks: the bits of one rank that accumulates as many micro-batches, also over whole epochs; automatic cuts; bf16 where
# there is it.
set -u
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"
net() { # NAME RANKS MODEL OPTION...
	launch "$2" "$gannet" train --data "$scratch/train" --model "$3" --channels 3 --side ${side:-32} --lr 0.01 --threads 1 --loader-threads 1 \
		--schedule constant --steps 2 --checkpoint "$scratch/$1" --log "$scratch/$1.jsonl" "${@:4}"
}
same_files() { cmp "$scratch/$1/latest/model.safetensors" "$scratch/$2/latest/model.safetensors"; }

while read -r model side cut2 cut3; do
	check "$model on one rank" net "$model" 1 "$model" --batch 2 --accumulate 3
	for schedule in gpipe 1f1b; do
		check "in two stages, $schedule" net "$model-2-$schedule" 2 "$model" --batch 6 --micro-batches 3 --parallel pipeline=2 --cut "$cut2" \
			--pipe-schedule $schedule
		check 'the same bits' same "$model" "$model-2-$schedule"
		check 'batch norm, too' same_files "$model" "$model-2-$schedule"
	done
	check 'in three stages' net "$model-3" 3 "$model" --batch 6 --micro-batches 3 --parallel pipeline=3 --cut "$cut3"
	check 'the same bits' same "$model" "$model-3"
	check 'batch norm, too' same_files "$model" "$model-3"
done <<END
resnet18 32 layer3 layer2,layer4.1
resnet50 32 layer3 layer1.1,layer4
mobilenet_v2 64 features.8 features.4,features.15
efficientnet_b0 32 features.4 features.3,features.6
vgg16 32 features.17 features.10,classifier
END
side=32
check 'cuts that are chosen' net chosen 2 resnet18 --batch 6 --micro-batches 3 --parallel pipeline=2
check 'the same bits' same resnet18 chosen
# Whole epochs: the accuracy of data parallel, to the bit.
whole() { # NAME RANKS MODEL OPTION...
	timeout -k 5 300 "$gannet" launch -n "$2" -- "$gannet" train --data "$scratch/train" --val "$scratch/val" --model "$3" --lr 0.05 --threads 1 --loader-threads 1 \
		--checkpoint "$scratch/$1" --log "$scratch/$1.jsonl" "${@:4}"
}
alike() { # NAME NAME: and shows it
	score "$2"
	same "$1" "$2" && [[ $(score "$1") && $(score "$1") == "$(score "$2")" ]]
}
while read -r model options; do
	# shellcheck disable=SC2086 # options
	{
		check "$model, whole epochs on one rank" whole "$model-e1" 1 "$model" --batch 16 --accumulate 4 $options
		check 'in a pipeline' whole "$model-e2" 2 "$model" --batch 64 --micro-batches 4 --parallel pipeline=2 $options
		check 'the same parameters and accuracy' alike "$model-e1" "$model-e2"
		check 'on two ranks' whole "$model-d" 2 "$model" --batch 16 --accumulate 2 $options
		check 'in two pipelines' whole "$model-d2" 4 "$model" --batch 32 --micro-batches 2 --parallel data=2,pipeline=2 $options
		check 'the same parameters and accuracy' alike "$model-d" "$model-d2"
	}
done <<END
lenet --epochs 3
resnet20 --epochs 2 --side 16 --channels 1
END

# Without a pause: by definition, and twice the same. At side 32 batch norms of two images see two values, and networks of them explode.
side=64
while read -r model cuts ranks; do
	check "$model by the definition of pipedream" oracle "$model" $side 3 "$cuts" 2 3 4 4
	check 'in a pipeline' net "$model-dream" "$ranks" "$model" --batch 6 --micro-batches 3 --steps 4 --lr 0.02 --ema 0.9 --augment none \
		--parallel "pipeline=$ranks" --cut "$cuts" --pipe-schedule pipedream
	check 'the same bits' is_oracle "$model-dream"
	for run in 1 2; do
		check 'decoupled' net "$model-far$run" "$ranks" "$model" --batch 6 --micro-batches 3 --steps 4 --parallel "pipeline=$ranks" --cut "$cuts" \
			--pipe-schedule decoupled
	done
	check 'twice the same bits' same "$model-far1" "$model-far2"
done <<END
resnet18 layer3 2
resnet50 layer1.1,layer3,layer4 4
mobilenet_v2 features.4,features.15 3
efficientnet_b0 features.4 2
END
side=
if grep -q 'avx512bw.*avx512vl' /proc/cpuinfo; then
	for schedule in 1f1b pipedream decoupled; do
		check "bf16 in a pipeline, $schedule" net bf16-$schedule 2 resnet18 --batch 6 --micro-batches 3 --parallel pipeline=2 --cut layer3 \
			--precision bf16-emulated --pipe-schedule $schedule
	done
else
	skip 'bf16 in a pipeline' 'no AVX-512'
fi
finish
