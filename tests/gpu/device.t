#!/bin/bash
# gannet --device: what a build or a machine without a GPU says, and what only a GPU computes.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
good=$GN_SOURCE/tests/golden/resnet18-b4-s64-c10.json
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES='' # a machine that has one is made to look as if it had none

"$gannet" pack --synthetic 20 --classes 2 --size 32x32 --out "$dir/data" >"$dir/log" 2>&1 || cat "$dir/log" >&2
none='--device cuda: .*(no CUDA: configure --with-cuda|no NVIDIA driver|no CUDA-capable device|nvidia-smi)'
expect 1 "$none" 'selftest without a GPU says why' "$gannet" selftest --device cuda --golden "$good"
expect 1 "$none" 'train, too' "$gannet" train --data "$dir/data" --model resnet20 --batch 4 --steps 1 --device cuda
expect 2 'device' 'a device that is none' "$gannet" train --data "$dir/data" --model resnet20 --device gpu
expect 1 'fp16 is for GPUs' 'fp16 is not for processors' "$gannet" train --data "$dir/data" --model resnet20 --batch 4 --steps 1 \
	--precision fp16
expect 1 'tf32 is for GPUs' 'nor is tf32' "$gannet" selftest --precision tf32 --golden "$good"
expect 0 'step' 'auto is the host where there is no GPU' "$gannet" train --data "$dir/data" --model resnet20 \
	--batch 4 --steps 2 --device auto --checkpoint "$dir/run"
expect 1 "$none" 'eval, too' "$gannet" eval --data "$dir/data" --checkpoint "$dir/run" --device cuda
expect 0 '"images": 20' 'eval by auto' "$gannet" eval --data "$dir/data" --checkpoint "$dir/run" --device auto
finish
