#!/bin/bash
# Pipelines and tensor groups under srun on two nodes: those of one data index on one node, the mesh drawn with hosts, a rank that is lost.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2
# run NAME TASKS OPTION...: tasks are dealt to the nodes in turns, so neighbours of a pipeline are no neighbours of the step
run() {
	on srun -N2 -n "$2" --distribution=cyclic --mpi=pmix "$gannet" train --data "$cluster/train" --model lenet --lr 0.02 --threads 1 \
		--loader-threads 1 --log "$cluster/$1.jsonl" --checkpoint "$cluster/$1" "${@:3}" >"$cluster/$1.out" 2>&1
}
check "two ranks of data" run data 2 --steps 6 --batch 4 --accumulate 2
check "two pipelines" run mesh 4 --steps 6 --batch 8 --micro-batches 2 --parallel data=2,pipeline=2 --cut conv2
check "the same bits" test "$(field "$cluster/data.jsonl" end params_sha256)" = "$(field "$cluster/mesh.jsonl" end params_sha256)"
expect 0 'data 0: n1\[0\] -> n1\[2\]' "a pipeline is on one node" cat "$cluster/mesh.out"
check "one pipeline over both nodes" run long 2 --steps 6 --batch 8 --micro-batches 2 --parallel pipeline=2 --cut conv2
expect 0 'data 0: n1\[0\] => n2\[1\]' "which the log shows" cat "$cluster/long.out"
check "two tensor groups" run tensor 4 --steps 6 --batch 4 --accumulate 2 --parallel data=2,tensor=2
check "the same up to rounding" "$GN_SOURCE/tests/train/apart" "$cluster/data/latest/model.safetensors" "$cluster/tensor/latest/model.safetensors" 1e-4
expect 0 'data 0: n1\[0\] - n1\[2\]' "a tensor group is on one node" cat "$cluster/tensor.out"
check "one tensor group over both nodes" run wide 2 --steps 6 --batch 8 --parallel tensor=2
expect 0 'data 0: n1\[0\] = n2\[1\]' "which the log shows" cat "$cluster/wide.out"

run lost 4 --epochs 1000 --log-every 1 --batch 8 --micro-batches 2 --parallel data=2,pipeline=2 --cut conv2 &
run=$!
started() { until_true reached "$cluster/lost.jsonl" 10; }
check "a run is in the middle" started
victim=$(pid_of_rank 3)
check "rank 3 is found" test "$victim"
kill -KILL "$victim"
wait "$run"
expect 0 'rank 3, stage 1 of 2 of pipeline 1, is lost' "its stage is named" cat "$cluster/lost.out"
finish
