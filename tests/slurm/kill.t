#!/bin/bash
# kill -9 on one rank in the middle: the others end within ten seconds with code 4, naming rank and host; resumed from the last
# checkpoint, the run ends with the parameters of one that nobody disturbed, and it goes on at another world size, too.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2

train() { # TASKS-PER-NODE NAME ARG...
	on srun -N2 --ntasks-per-node="$1" --mpi=pmix --kill-on-bad-exit=0 "$gannet" train --data "$cluster/train" --model lenet \
		--steps 300 --batch 16 --lr 0.05 --threads 1 --loader-threads 1 --log-every 1 --checkpoint-every 40 \
		--checkpoint "$cluster/$2" --log "$cluster/$2.jsonl" "${@:3}"
}
check "a run that nobody disturbs" train 2 whole
check "a checkpoint has one optimizer file a node" test "$(compgen -G "$cluster/whole/latest/optimizer-*" | wc -l)" = 2

train 2 run >"$cluster/run.out" 2>&1 &
run=$!
started() { until_true reached "$cluster/run.jsonl" 100; }
check "a second one is in the middle" started
victim=$(pid_of_rank 3)
check "rank 3 is found" test "$victim"
SECONDS=0
kill -KILL "$victim"
wait "$run"
took=$SECONDS
check "all have ended within 10 s ($took s)" test "$took" -le 10
expect 0 "tasks? 0-2: Exited with exit code 4|n1: tasks 0-1: Exited with exit code 4" "the others ended with code 4" cat "$cluster/run.out"
expect 0 "n2: task 2: Exited with exit code 4" "also the one beside it" cat "$cluster/run.out"
expect 0 "rank 3.*n2" "they name rank and host" cat "$cluster/run.out"
check "the run stopped in the middle" test "$(last_step "$cluster/run.jsonl")" -lt 290

cp -r "$cluster/run" "$cluster/other"
cp "$cluster/run.jsonl" "$cluster/other.jsonl"
check "it resumes from the last checkpoint" train 2 run --resume auto
# Every 40 steps, and at the end of an epoch (109).
committed() {
	local step
	step=$(field "$cluster/run.jsonl" resume step) && echo "from step $step" && ((step >= 80)) &&
		grep -q "\"event\": \"checkpoint\", .*\"step\": $step," "$cluster/run.jsonl"
}
check "from a step that was committed" committed
same() { [[ $(field "$cluster/run.jsonl" end params_sha256) == "$(field "$cluster/whole.jsonl" end params_sha256)" ]]; }
check "and ends with the parameters of the undisturbed run, bit by bit" same
at=$(field "$cluster/run.jsonl" resume sample)
check "it resumes with one task a node" train 1 other --resume auto
check "at the same sample" test "$(field "$cluster/other.jsonl" resume sample)" = "$at"
check "on two ranks" test "$(field "$cluster/other.jsonl" resume ranks)" = 2
finish
