#!/bin/bash
# Parameter servers under srun: kill -9 on a worker of async does not end the run, which goes on with the others and names rank and host.
# A worker may be hundreds of steps ahead of rank 0: it is killed long before its last.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2
steps=${GN_SERVERS_STEPS:-1000}

on srun -N2 --ntasks-per-node=2 --mpi=pmix --no-kill --kill-on-bad-exit=0 --wait=0 "$gannet" train \
	--data "$cluster/train" --model lenet --steps "$steps" --batch 16 --lr 0.02 --threads 1 --loader-threads 1 --log-every 1 --update async --servers 1 \
	--log "$cluster/run.jsonl" --checkpoint "$cluster/run" >"$cluster/run.out" 2>&1 &
run=$!
started() { until_true reached "$cluster/run.jsonl" 50; }
check "three workers and a server are in the middle" started
victim=$(pid_of_rank 2)
check "rank 2 is found" test "$victim"
killed=$(date +%s)
kill -KILL "$victim"
wait "$run"
code=$?
echo "# went on for $(($(date +%s) - killed)) s"
check "srun says that a task was killed ($code)" test "$code" = 137
check "the others have come to the end" test "$(field "$cluster/run.jsonl" end step)" = "$steps"
check "with a checkpoint" "$gannet" info "$cluster/run"
expect 0 'a worker is lost: rank 2 on n2 is lost.*goes on with 2 of 3' "rank and host are named" cat "$cluster/run.out"
check "in the log, too" test "$(field "$cluster/run.jsonl" worker_lost rank) $(field "$cluster/run.jsonl" worker_lost host)" = '2 n2'
finish
