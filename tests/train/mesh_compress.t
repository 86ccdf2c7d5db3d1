#!/bin/bash
# Compressed gradients of ranks that have the same part of the network, by every method in meshes of pipelines, tensor groups and both; and runs that
# go on in other meshes.
set -u
# shellcheck source=tests/train/mesh.sh
. "$GN_SOURCE/tests/train/mesh.sh"

# shellcheck disable=SC2086
for mesh in pipe tensor both; do
	ranks=4
	[[ $mesh != both ]] || ranks=8
	hows='bf16 powersgd:2'
	[[ $mesh != pipe ]] || hows='int8 topk:0.05 powersgd:2' # slices would round their copies differently
	for how in $hows; do
		check "$mesh, $how" compressed $mesh $how $ranks
		check 'with what was kept back' same $mesh-$how $mesh-$how-r
	done
done
# shellcheck disable=SC2086
{
	check 'the first half in pipelines' lenet other 4 --steps 4 --lr 0.02 $pipe --compress powersgd:2
	check 'goes on in tensor groups' lenet other 4 --steps 6 --lr 0.02 --resume auto $tensor --compress powersgd:2
	check 'without what was kept back' warns other 'made in another mesh: gradients that --compress kept back'
	check 'and without a mesh' lenet other 4 --steps 8 --lr 0.02 --resume auto --compress powersgd:2
	check 'which says so, too' warns other 'made in another mesh: gradients that --compress kept back'
	check 'and back' lenet other 4 --steps 9 --lr 0.02 --resume auto $pipe --compress powersgd:2
	check 'which says so, too' warns other 'made in another mesh: gradients that --compress kept back'
}
finish
