#!/bin/bash
# kill -9 on one rank in the middle: the others end by the closed connection with code 4, naming rank and host; resumed from the last
# checkpoint, the run ends with the parameters of one that nobody disturbed, and it goes on at another world size, too.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2

# No limit of silence can end it: it is beyond that behind on.
train() { # TASKS-PER-NODE NAME STEPS ARG...
	on srun -N2 --ntasks-per-node="$1" --mpi=pmix --kill-on-bad-exit=0 "$gannet" train --data "$cluster/train" --model lenet \
		--steps "$3" --schedule constant --batch 16 --lr 0.05 --threads 1 --loader-threads 1 --log-every 1 --checkpoint-every 15 \
		--heartbeat-timeout 1000 --checkpoint "$cluster/$2" --log "$cluster/$2.jsonl" "${@:4}"
}
train 2 run 1000000 >"$cluster/run.out" 2>&1 &
run=$!
started() { until_true reached "$cluster/run.jsonl" 40; }
check "a run is in the middle" started
victim=$(pid_of_rank 3)
check "rank 3 is found" test "$victim"
kill -KILL "$victim"
wait "$run"
expect 0 "tasks? 0-2: Exited with exit code 4|n1: tasks 0-1: Exited with exit code 4" "the others ended with code 4" cat "$cluster/run.out"
expect 0 "n2: task 2: Exited with exit code 4" "also the one beside it" cat "$cluster/run.out"
expect 0 "rank 3.*n2.*is lost: its connection closed" "they name rank and host" cat "$cluster/run.out"
check "a checkpoint has one optimizer file a node" test "$(compgen -G "$cluster/run/latest/optimizer-*" | wc -l)" = 2

cp -r "$cluster/run" "$cluster/other"
cp "$cluster/run.jsonl" "$cluster/other.jsonl"
# The steps that were saved last, and 25 more. A log may lack the checkpoint that was committed just before the end.
saved=$(readlink "$cluster/run/latest" | sed 's/.*step-0*//')
steps=$((saved + 25))
check "it resumes from the last checkpoint" train 2 run $steps --resume auto
# Every 15 steps, and at the end of an epoch (109).
committed() {
	local step
	step=$(field "$cluster/run.jsonl" resume step) && echo "from step $step, $saved saved" && ((step >= 30 && step == saved))
}
check "from a step that was committed" committed
check "a run that nobody disturbs" train 2 whole $steps
same() { [[ $(field "$cluster/run.jsonl" end params_sha256) == "$(field "$cluster/whole.jsonl" end params_sha256)" ]]; }
check "ends with the same parameters, bit by bit" same
at=$(field "$cluster/run.jsonl" resume sample)
check "it resumes with one task a node" train 1 other $steps --resume auto
check "at the same sample" test "$(field "$cluster/other.jsonl" resume sample)" = "$at"
check "on two ranks" test "$(field "$cluster/other.jsonl" resume ranks)" = 2
finish
