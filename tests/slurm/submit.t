#!/bin/bash
# gannet submit on a virtual cluster: a snapshot that does not change, one that did, a job that is queued again and one that is not,
# a dependency, an array, and a training that goes on after it was stopped.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
export GANNET_JOBS=$GN_SOURCE/slurm/jobs GANNET_LOG=warn
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2 --requeue-delay 5
cd "$cluster" || exit 1
submit() { id=$(on "$gannet" submit "$@" 2>"$cluster/err") || { cat "$cluster/err"; return 1; }; } # sets id
state() { on scontrol show job "$1" --oneliner | grep -o 'JobState=[A-Z]*'; }
over() { state "$1" | grep -vqE 'PENDING|RUNNING|COMPLETING|REQUEUED'; }
ended() { until_true over "$1" || { state "$1"; return 1; }; state "$1"; cat "$cluster/$2"/*.out; } # ID DIR

mkdir src
echo 'echo "this is version one, of rank $RANK of $WORLD_SIZE"' >src/program
snapshot() {
	submit --dir one -N 2 --snapshot src --sbatch=--hold -- exec sh program || return 1
	echo 'echo edited' >src/program
	on scontrol release "$id"
	ended "$id" one
}
expect 0 "this is version one, of rank 1 of 2" "what is edited while the job waits changes nothing" snapshot
check "not a line of what was edited ran" bash -c '! grep -q edited one/*.out'
tampered() {
	submit --dir two --snapshot src --sbatch=--hold -- exec sh program || return 1
	echo 'echo tampered' >two/snapshot/program
	on scontrol release "$id"
	ended "$id" two
}
expect 0 "the snapshot .* is not what was submitted" "a snapshot that was changed is not run" tampered
check "not a line of it" bash -c '! grep -qx tampered two/*.out'

# shellcheck disable=SC2016
again() {
	submit --dir again --retries 1 -- exec sh -c 'if mkdir "$0" 2>/dev/null; then exit 5; fi; echo "second start"' "$cluster/mark" || return 1
	ended "$id" again
}
expect 0 "^second start$" "code 5: queued again" again
capped() { submit --dir capped --retries 0 -- exec sh -c 'exit 5' && ended "$id" capped; }
expect 0 "not queued again: 0 times in a row without a newer checkpoint" "up to --retries" capped
fails() { submit --dir fails -- exec sh -c 'echo out; exit 7' && ended "$id" fails; }
expect 0 "gannet exec ended with code 7" "a failure is not queued again" fails
after() {
	submit --dir first --sbatch=--hold -- exec true || return 1
	local first=$id
	submit --dir second --after "$first" -- exec true || return 1
	on scontrol show job "$id" --oneliner
	on scancel "$id" "$first"
}
expect 0 "Dependency=afterok:" "--after" after
array() {
	submit --dir array --array 1-2 -- exec echo "task %a" || return 1
	until_true bash -c 'cat array/*_1.out array/*_2.out | grep -c "^task [12]$" | grep -qx 2' || return 1
	cat array/*.out
}
expect 0 "^task 2$" "an array's tasks have their numbers" array
# One node's disk is full: the job starts there, finds it, and goes elsewhere.
excluded() {
	on srun -w n1 mount -t tmpfs -o size=1M none "$cluster/vc/nvme" && submit --dir excluded --exclude-bad -- exec hostname || return 1
	ended "$id" excluded
}
expect 0 "job [0-9]+: host n1 is bad; the job excludes it" "--exclude-bad: a bad node is found" excluded
check "and left" bash -c "cat excluded/*.out | grep -qx n2"
too_few() { submit --dir few -N 2 --exclude-bad -- exec hostname && ended "$id" few; }
expect 0 "n[][0-9-]+: bad, with too few other nodes to exclude them; gannet preflight ended with code 6" "while there are enough others" too_few
on srun -w n1 umount "$cluster/vc/nvme"

train() {
	submit --dir trained -N 2 --ppn 1 -- train --data "$cluster/train" --val "$cluster/val" --model lenet --epochs 3 --batch 32 --lr 0.02 --threads 1 \
		--loader-threads 1 --checkpoint "$cluster/run" --log "$cluster/run.jsonl" --checkpoint-epochs 1 --log-every 1 || return 1
	until_true reached "$cluster/run.jsonl" 5 || return 1
	on scancel --batch --signal=USR1 "$id"
	ended "$id" trained
}
expect 0 "queueing again, to go on from step" "a training that is stopped is queued again" train
check "goes on" grep -q '"event": "resume"' "$cluster/run.jsonl"
check "and ends" grep -q '"event": "end"' "$cluster/run.jsonl"
finish
