#!/bin/bash
# A batch job that is told to stop, twice, by either way that Slurm has, queues itself again; its log shows one continuous run
# and it ends with the parameters of a run that nobody interrupted. One whose rank is killed does, too, without the host that lost a
# rank twice, and one whose srun is killed or whose node is set down; of an array only the task that was told to stop.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "the digits are packed" cluster_digits
check "three nodes come up" vc up --nodes 3 --cpus-per-node 2 --requeue-delay 5

# A job has no end that it could reach before it is told to stop; its third start has 60 steps. Its ranks are here before the first of them
# is in the log.
cat >"$cluster/gannet" <<GANNET
#!/bin/bash
GN_SOURCE=$GN_SOURCE GN_BUILD=$GN_BUILD
. $GN_SOURCE/tests/slurm/cluster.sh
steps=1000000
((\${SLURM_RESTART_COUNT:-0} < 2)) || steps=\$((\$(last_step $cluster/log.jsonl) + 60))
[[ \$1 != train ]] || set -- "\$@" --steps "\$steps"
exec $gannet "\$@"
GANNET
chmod +x "$cluster/gannet"
args="--batch 16 --lr 0.05 --schedule constant --threads 1 --loader-threads 1 --log-every 1"
submit() {
	GANNET=$cluster/gannet GANNET_DATA=$cluster/train GANNET_VAL=$cluster/val GANNET_MODEL=lenet GANNET_CHECKPOINT=$cluster/run \
		GANNET_LOG_FILE=$cluster/log.jsonl GANNET_ARGS=$args \
		on sbatch --parsable --chdir="$cluster" --output="$cluster/job.out" "$GN_SOURCE/slurm/jobs/train.sbatch" >"$cluster/job"
}
check "sbatch takes slurm/jobs/train.sbatch" submit
job=$(cat "$cluster/job")
# Beside it, on the third node, an array. The last task's SLURM_JOB_ID is the array's.
submit_array() {
	array=$(GANNET=$cluster/gannet GANNET_DATA=$cluster/train GANNET_MODEL=lenet GANNET_CHECKPOINT=$cluster/sweep GANNET_LOG_FILE='' \
		GANNET_ARGS="--batch 16 --lr 0.005 --threads 1 --loader-threads 1 --log-every 1 --checkpoint-every 20 --seed %a" \
		on sbatch --parsable --array=1-2 -N1 --ntasks-per-node=1 --chdir="$cluster" --output="$cluster/task-%a.out" "$GN_SOURCE/slurm/jobs/train.sbatch")
}
submit_array
stop_one() {
	until_true reached "$cluster/sweep-2.jsonl" 20 && until_true reached "$cluster/sweep-1.jsonl" 20 && on scancel --signal=USR1 --batch "${array}_2"
}
check "an array of two tasks trains beside it" stop_one
stopped_one() { until_true grep -q '"event": "resume"' "$cluster/sweep-2.jsonl" || { tail "$cluster"/task-*.out; return 1; }; }
running_one() { local at; at=$(last_step "$cluster/sweep-1.jsonl") && until_true reached "$cluster/sweep-1.jsonl" $((at + 1)); }
starts() { [[ $(cat "$cluster"/task-"$1".out | grep -c " start ") == "$2" ]]; }
resumes() { (($(grep -c '"event": "resume"' "$cluster/log.jsonl") >= $1)); }

# shellcheck disable=SC2317
stop_at() { # STEP RESUMES SCANCEL-OPTION...
	until_true reached "$cluster/log.jsonl" "$1" || { tail "$cluster/job.out"; return 1; }
	on scancel --signal=USR1 "${@:3}" "$job"
	until_true resumes "$2" || { tail "$cluster/job.out"; return 1; }
}
check "scancel --signal=USR1 to the batch shell: it stops and starts again" stop_at 25 1 --batch
check "of an array one task is told to stop; it starts again" stopped_one
check "that one has started twice" starts 2 2
check "the other once, and trains" starts 1 1
check "still" running_one
on scancel "$array"
check "each has its own checkpoints" test -e "$cluster/sweep-1/latest" -a -e "$cluster/sweep-2/latest"
check "scancel --signal=USR1 to the tasks: it stops and starts again" stop_at 50 2
ended() { grep -q '"event": "end"' "$cluster/log.jsonl"; }
check "it ends" until_true ended
expect 0 "queueing again" "the job's output says why it started again" cat "$cluster/job.out"
completed() { [[ $(on squeue -h -j "$job" -t all -o %T) == COMPLETED ]]; }
check "Slurm calls it completed" until_true completed

continuous() {
	python3 - "$cluster/log.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line["step"] for line in lines if line["event"] == "step"]
starts = [line for line in lines if line["event"] in ("start", "resume")]
assert steps == list(range(1, lines[-1]["step"] + 1)) and lines[-1]["event"] == "end", steps
assert [line["event"] for line in starts] == ["start", "resume", "resume"], starts
last = 0
for line in lines:
    if line["event"] == "step": last = line["step"]
    if line["event"] in ("start", "resume"): assert line["step"] == last, (line, last)
PY
}
check "the log has each step once, in order, over three starts" continuous

# shellcheck disable=SC2086,SC2317 # a list; check calls it
whole() {
	on srun -N2 --ntasks-per-node=2 --mpi=pmix "$gannet" train --data "$cluster/train" --val "$cluster/val" --model lenet $args --steps "$(field "$cluster/log.jsonl" end step)" \
		--log "$cluster/whole.jsonl" --checkpoint "$cluster/whole"
}
check "the same run, never interrupted" whole
same() { [[ $(field "$cluster/log.jsonl" end params_sha256) == "$(field "$cluster/whole.jsonl" end params_sha256)" ]]; }
check "both end with the same parameters, bit by bit" same

# A job that is cancelled gets SIGTERM first; it must not come back.
cancelled() {
	rm -rf "$cluster/run" "$cluster/log.jsonl"
	submit && job=$(cat "$cluster/job") && until_true reached "$cluster/log.jsonl" 20 || return 1
	on scancel "$job"
	until_true gone
	[[ $(on squeue -h -j "$job" -t all -o %T) == CANCELLED ]]
}
gone() { [[ ! $(on squeue -h -j "$job") ]]; }
check "a cancelled job stays away" cancelled

# kill -9 of a rank on n2, twice.
job=
args+=" --checkpoint-every 20"
rm -rf "$cluster/run" "$cluster/log.jsonl"
check "another job is taken" submit
job=$(cat "$cluster/job")
nodes() { [[ $(on squeue -h -t R -j "$job" -o %N) == "$1" ]]; }
# shellcheck disable=SC2317
kill_on_n2() { # STEP RESUMES
	until_true reached "$cluster/log.jsonl" "$1" && nodes 'n[1-2]' && kill -KILL "$(pid_of_rank 3)" && until_true resumes "$2" && return
	tail "$cluster/job.out"
	return 1
}
check "a rank on n2 is killed: the job starts again" kill_on_n2 25 1
check "killed there again: it starts again" kill_on_n2 50 2
expect 0 "a rank was lost on n2; queueing again, .*0 of 3" "the job's output names the host" cat "$cluster/job.out"
check "now without n2" nodes 'n[1,3]'
check "and goes on to the end" until_true ended
check "which Slurm calls completed" until_true completed

# srun killed, as by what is no message of Slurm's; then a node that is set down.
rm -rf "$cluster/run" "$cluster/log.jsonl" "$cluster/job.out"
check "a third job is taken" submit
job=$(cat "$cluster/job")
# shellcheck disable=SC2317
kill_srun() {
	until_true reached "$cluster/log.jsonl" 25 && kill -SEGV "$(pgrep -o -f "^srun .*--checkpoint $cluster/run ")" && until_true resumes 1 && return
	tail "$cluster/job.out"
	return 1
}
check "its srun is killed: the job starts again" kill_srun
expect 0 "srun ended with code 139, but .*log.jsonl has no end of this start" "which the output tells" cat "$cluster/job.out"
# shellcheck disable=SC2317
set_down() {
	until_true reached "$cluster/log.jsonl" $(($(last_step "$cluster/log.jsonl") + 20)) && on scontrol update NodeName=n2 State=DOWN Reason=test &&
		until_true resumes 2 && return
	tail "$cluster/job.out"
	return 1
}
check "a node is set down: it starts again" set_down
check "it ends" until_true ended
check "which Slurm calls completed" until_true completed
check "and the script only then" test "$(grep -c 'ended with code 0' "$cluster/job.out")" = 1

finish
