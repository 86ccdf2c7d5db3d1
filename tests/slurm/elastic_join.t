#!/bin/bash
# train --elastic MIN:MAX --spares under srun, on two nodes: kill -9 on a rank, whose place a spare takes, and then srun --overlap --join adds one.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2

on srun --job-name elastic -N2 --ntasks-per-node=2 --mpi=pmix --no-kill --kill-on-bad-exit=0 --wait=0 "$gannet" train \
	--data "$cluster/train" --model lenet --steps 1000000 --batch 16 --lr 0.02 --threads 1 --loader-threads 1 --log-every 1 --elastic 2:4 --spares 1 --global-batch 64 \
	--log "$cluster/run.jsonl" --checkpoint "$cluster/run" --checkpoint-every 50 >"$cluster/run.out" 2>&1 &
run=$!
started() { until_true reached "$cluster/run.jsonl" 20; }
check "three ranks are in the middle" started
check "three of four tasks train" test "$(field "$cluster/run.jsonl" start ranks)" = 3
victim=$(pid_of_rank 0)
check "rank 0 is found" test "$victim"
kill -KILL "$victim"
worlds() { [ "$(field "$cluster/run.jsonl" resume world | tail -n 1)" = "$1" ]; }
check "the others go on" until_true worlds 2
check "three of them, on two nodes" test "$(field "$cluster/run.jsonl" resume ranks)" = 3
job=$(on squeue -h -n elastic -o %i)
on srun --overlap --jobid "$job" -N1 -n1 "$gannet" train --options "$cluster/run/options" --join "$cluster/run" >"$cluster/join.out" 2>&1 &
joined=$!
check "one more joins" until_true worlds 3
more() { reached "$cluster/run.jsonl" $(($(field "$cluster/run.jsonl" resume step | tail -n 1) + 20)); }
check "they train together" until_true more
stop_ranks "$cluster/run.jsonl"
wait "$joined"
check "it is stopped with the others" test $? = 5
wait "$run"
code=$?
check "srun says that a task was killed ($code)" test "$code" = 137
check "the others were stopped" test "$(field "$cluster/run.jsonl" stop step)" -ge 40
check "four of them" test "$(field "$cluster/run.jsonl" resume ranks | tail -n 1)" = 4
check "the last checkpoint is there" "$gannet" info "$cluster/run"
finish
