#!/bin/bash
# Parameter servers under srun: kill -9 on a worker of async does not end the run, which goes on with the others and names rank and host.
# The run has no end that a worker, who may be far ahead of rank 0, could reach before it is killed; it is stopped at last.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2

on srun -N2 --ntasks-per-node=2 --mpi=pmix --no-kill --kill-on-bad-exit=0 --wait=0 "$gannet" train \
	--data "$cluster/train" --model lenet --steps 1000000 --batch 16 --lr 0.02 --threads 1 --loader-threads 1 --log-every 1 --update async --servers 1 \
	--log "$cluster/run.jsonl" --checkpoint "$cluster/run" >"$cluster/run.out" 2>&1 &
run=$!
started() { until_true reached "$cluster/run.jsonl" 50; }
check "three workers and a server are in the middle" started
victim=$(pid_of_rank 2)
check "rank 2 is found" test "$victim"
kill -KILL "$victim"
check "the loss is in the log" until_true grep -q '"event": "worker_lost"' "$cluster/run.jsonl"
at=$(last_step "$cluster/run.jsonl")
check "the others go on" until_true reached "$cluster/run.jsonl" $((at + 50))
stop_ranks "$cluster/run.jsonl"
wait "$run"
code=$?
check "srun says that a task was killed ($code)" test "$code" = 137
check "the others were stopped" test "$(field "$cluster/run.jsonl" stop step)" -gt "$at"
check "with a checkpoint" "$gannet" info "$cluster/run"
expect 0 'a worker is lost: rank 2 on n2 is lost.*goes on with 2 of 3' "rank and host are named" cat "$cluster/run.out"
check "also there" test "$(field "$cluster/run.jsonl" worker_lost rank) $(field "$cluster/run.jsonl" worker_lost host)" = '2 n2'
finish
