#!/bin/bash
# Pipelines of networks with batch norm and stochastic depth: other cuts than pipeline.t's, and activations that are recomputed, with the same bits.
set -u
# shellcheck source=tests/train/pipeline.sh
. "$GN_SOURCE/tests/train/pipeline.sh"
two='--parallel pipeline=2 --cut'
# shellcheck disable=SC2086 # options
{
	check 'resnet20 on one rank' net res1 1 resnet20 --batch 4 --accumulate 3 --steps 2 $small --val "$scratch/val"
	check 'resnet20 cut within a layer' net res2 2 resnet20 --batch 12 --micro-batches 3 --steps 2 $small $two layer1.1 --val "$scratch/val"
	check 'the same bits' same res1 res2
	check 'batch norm as well' cmp "$(weights res1)" "$(weights res2)"
	check 'and the same evaluation' test -n "$(score res1)" -a "$(score res1)" = "$(score res2)"
	again resr-gpipe res1 - 2 resnet20 --batch 12 --micro-batches 3 --steps 2 $small $two layer2 --pipe-schedule gpipe
	drop="efficientnet_b0 --batch 6 --micro-batches 3 --steps 1 --side 32 --channels 1 --drop-path 0.9 $two features.7"
	check 'dropout of whole paths' net drop 2 $drop
	again dropr drop 70 2 $drop
}
finish
