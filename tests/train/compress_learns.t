#!/bin/bash
# A network learns the digits by gradients that each method compresses.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
export UCX_WARN_UNUSED_ENV_VARS=n GANNET_LOG=warn OMP_NUM_THREADS=1

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
check 'and those to evaluate on' "$gannet" pack --out "$scratch/val" "$GN_SOURCE/data/digits/digits-val.tar.xz"
lenet() { # NAME OPTION...
	launch 2 "$gannet" train --data "$scratch/train" --val "$scratch/val" --model lenet --lr 0.02 --batch 32 --threads 1 \
		--loader-threads 1 --epochs 2 --log "$scratch/$1.jsonl" "${@:2}"
}
# learns NAME FLOOR: top-1 of the last evaluation
learns() {
	"$GN_SOURCE/tests/cmd/jsonl" "$scratch/$1.jsonl" eval top1 | tail -1 | awk -v floor="$2" '{ print; exit !($1 >= floor) }'
}
check 'lenet without compression' lenet none
check 'learns the digits' learns none 0.92
for method in bf16 fp16 int8 topk:0.01 topk:0.6 dgc:0.01 powersgd:2; do
	check "lenet with $method" lenet "$method" --compress "$method"
	# dgc sends so much in its first epochs that momentum, which what was sent loses, hardly acts
	floor=0.88
	[[ $method == dgc:* ]] && floor=0.6
	check "$method: learns the digits" learns "$method" $floor
done
finish
