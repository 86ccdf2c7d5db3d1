#!/bin/bash
# --shard and --compress in pipelines, tensor groups and both: over the ranks that have the same part of the network. Sharded: the bits of the
# same mesh without, a part of the state on each rank, checkpoints for every mesh.
# Compressed: fewer bytes, what is kept back in checkpoints; mesh_compress.t has all methods.
set -u
# shellcheck source=tests/train/mesh.sh
. "$GN_SOURCE/tests/train/mesh.sh"
weights() { echo "$scratch/$1/latest/${2:-model}.safetensors"; }
near() { "$GN_SOURCE/tests/train/apart" "$(weights "$1" "${4:-model}")" "$(weights "$2" "${4:-model}")" "$3"; }

halves() { # NAME
	sed -n 's/.*rank 0 holds \([0-9.]*\) MB of optimizer state and averages, without sharding \([0-9.]*\) MB.*/\1 \2/p' "$scratch/$1.err" |
		awk '{ got = 1; ok = $1 < 0.55 * $2 } END { exit !(got && ok) }'
}

lars='--optimizer lars --lr 2 --ema 0.9 --clip 0.5'

# Norms of whole tensors and of the whole gradient, averages, evaluations of both.
# shellcheck disable=SC2086 # options
{
	check 'pipelines' lenet pipe 4 --steps 4 $pipe $lars --val "$scratch/val"
	check 'sharded' lenet pipe-s 4 --steps 4 $pipe $lars --val "$scratch/val" --shard optimizer
	check 'the same bits' same pipe pipe-s
	check 'and averages' cmp "$(weights pipe ema)" "$(weights pipe-s ema)"
	check 'half of the state' halves pipe-s
	check 'tensor groups' lenet tensor 4 --steps 4 $tensor $lars
	check 'sharded' lenet tensor-s 4 --steps 4 $tensor $lars --shard optimizer
	check 'within 1e-6' near tensor tensor-s 1e-6
	check 'half of the state' halves tensor-s
	check 'gradients of two batches, too' lenet tensor-g 4 --steps 2 $tensor --accumulate 2 --lr 0.02 --shard gradients
	check 'and not' lenet tensor-n 4 --steps 2 $tensor --accumulate 2 --lr 0.02
	check 'within 1e-6' near tensor-n tensor-g 1e-6
	check 'pipelines of tensor groups' lenet both 8 --steps 3 $both $lars
	check 'sharded' lenet both-s 8 --steps 3 $both $lars --shard optimizer
	check 'within 1e-6' near both both-s 1e-6

	# Checkpoints of parts of parts go on in every mesh, and whole ones in parts.
	for from in pipe pipe-s; do
		cp -r "$scratch/$from" "$scratch/$from-2"
		check "$from goes on sharded" lenet "$from-2" 4 --steps 6 --resume auto $pipe $lars --shard optimizer
		cp -r "$scratch/$from" "$scratch/$from-3"
		check "and with tensor groups" lenet "$from-3" 4 --steps 6 --resume auto $tensor $lars --shard optimizer
		cp -r "$scratch/$from" "$scratch/$from-4"
		check "and without a mesh" lenet "$from-4" 2 --steps 6 --resume auto --micro-batches 2 $lars --shard optimizer
	done
	for n in 2 3 4; do check 'the same bits' same pipe-$n pipe-s-$n; done
	check 'as sharded all along' lenet long 4 --steps 6 $pipe $lars --shard optimizer --checkpoint-every 4
	check 'the same bits' same long pipe-s-2
}

# The loops of mesh_compress.t are over all methods and meshes.
# shellcheck disable=SC2086
for way in 'pipe int8' 'tensor powersgd:2'; do
	read -r mesh how <<<"$way"
	check "$mesh, $how" compressed $mesh $how 4
	check 'with what was kept back' same $mesh-$how $mesh-$how-r
done
finish
