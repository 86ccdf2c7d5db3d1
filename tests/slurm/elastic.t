#!/bin/bash
# train --elastic under srun, on two nodes: kill -9 on rank 0, which has the log and the checkpoint folder; the others go on.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2

# Runs without an end that they could reach before the kill: they are stopped when the others have gone on.
begin() { # NAME OPTION...
	on srun -N2 --ntasks-per-node=2 --mpi=pmix --no-kill --kill-on-bad-exit=0 --wait=0 env GANNET_LOG=info "$gannet" train \
		--data "$cluster/train" --model lenet --steps 1000000 --batch 16 --lr 0.02 --threads 1 --loader-threads 1 --log-every 1 --elastic 2 \
		--log "$cluster/$1.jsonl" --checkpoint "$cluster/$1" "${@:2}" >"$cluster/$1.out" 2>&1 &
	run=$!
	until_true reached "$cluster/$1.jsonl" 20
}
recovered() { grep -q '"event": "recovered"' "$cluster/$1.jsonl"; }
go_on() { until_true recovered "$1" && until_true reached "$cluster/$1.jsonl" $(($(field "$cluster/$1.jsonl" resume step) + 20)); } # NAME

begin run --checkpoint-every 50
check "four ranks are in the middle" test $? = 0
victim=$(pid_of_rank 0)
check "rank 0 is found" test "$victim"
kill -KILL "$victim"
check "the others go on" go_on run
stop_ranks "$cluster/run.jsonl"
wait "$run"
code=$?
check "srun says that a task was killed ($code)" test "$code" = 137
check "the others were stopped" test "$(field "$cluster/run.jsonl" stop step)" -ge 20
check "three of them" test "$(field "$cluster/run.jsonl" resume ranks) $(field "$cluster/run.jsonl" resume world)" = '3 2'
expect 0 'rank 0 on n1 is lost.*going on with 3 ranks from memory' "rank and host are named" cat "$cluster/run.out"
expect 0 'taking over the checkpoint folder from process .* on n1' "the folder of another host is taken over at once" cat "$cluster/run.out"
check "the last checkpoint is there" "$gannet" info "$cluster/run"

# a sharded optimizer, whose parts are copied to the other node
begin shard --shard optimizer --redundancy 1
check "four ranks with parts are in the middle" test $? = 0
kill -KILL "$(pid_of_rank 0)"
check "the others go on" go_on shard
stop_ranks "$cluster/shard.jsonl"
wait "$run"
expect 0 'rank 2, on another node, has a copy of rank 0.s part' "copies are on the other node" cat "$cluster/shard.out"
expect 0 'going on with 3 ranks from memory.*; 1 part of the optimizer.s state from copies' "they go on from them" cat "$cluster/shard.out"
check "and were stopped" test "$(field "$cluster/shard.jsonl" stop step)" -ge 20

submit() {
	GANNET=$gannet GANNET_DATA=$cluster/train GANNET_MODEL=lenet GANNET_CHECKPOINT=$cluster/batch GANNET_LOG_FILE=$cluster/batch.jsonl \
		GANNET_ELASTIC=2 GANNET_ARGS="--steps 300 --batch 16 --lr 0.02 --threads 1 --loader-threads 1 --log-every 1" \
		on sbatch --parsable --no-kill --chdir="$cluster" --output="$cluster/batch.out" "$GN_SOURCE/slurm/jobs/train.sbatch" >"$cluster/job"
}
check "train.sbatch with GANNET_ELASTIC" submit
in_batch() { until_true reached "$cluster/batch.jsonl" 3; }
check "is in the middle" in_batch
victim=$(pid_of_rank 0)
check "rank 0 is found" test "$victim"
kill -KILL "$victim"
ended() { grep -q '"event": "end"' "$cluster/batch.jsonl"; }
check "the others come to the end" until_true ended
completed() { [[ $(on squeue -h -j "$(cat "$cluster/job")" -t all -o %T) == COMPLETED ]]; }
check "and the job with 0" until_true completed
check "of three ranks, with the same global batch" test "$(field "$cluster/batch.jsonl" resume ranks) $(field "$cluster/batch.jsonl" resume global_batch)" = '3 64'
check "and was not queued again" test "$(grep -c 'queueing again' "$cluster/batch.out")" = 0
finish
