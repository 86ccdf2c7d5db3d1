#!/bin/bash
# A batch job that is told to stop, twice, by either way that Slurm has, queues itself again; its log shows one continuous run
# and it ends with the parameters of a run that nobody interrupted.
set -u
# shellcheck source=tests/slurm/lab.sh
. "$GN_SOURCE/tests/slurm/lab.sh"
lab_begin
check "the digits are packed" lab_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2 --requeue-delay 5

args="--epochs 3 --batch 16 --lr 0.05 --threads 1 --loader-threads 1 --log-every 1"
submit() {
	GANNET=$gannet GANNET_DATA=$lab/train GANNET_VAL=$lab/val GANNET_MODEL=lenet GANNET_CHECKPOINT=$lab/run \
		GANNET_LOG_FILE=$lab/log.jsonl GANNET_ARGS=$args \
		on 30 sbatch --parsable --chdir="$lab" --output="$lab/job.out" "$GN_SOURCE/slurm/jobs/train.sbatch" >"$lab/job"
}
check "sbatch takes slurm/jobs/train.sbatch" submit
job=$(cat "$lab/job")
resumes() { (($(grep -c '"event": "resume"' "$lab/log.jsonl") >= $1)); }

# shellcheck disable=SC2317
stop_at() { # STEP RESUMES SCANCEL-OPTION...
	until_within 120 reached "$lab/log.jsonl" "$1" || { tail "$lab/job.out"; return 1; }
	on 30 scancel --signal=USR1 "${@:3}" "$job"
	until_within 60 resumes "$2" || { tail "$lab/job.out"; return 1; }
}
check "scancel --signal=USR1 to the batch shell: it stops and starts again" stop_at 60 1 --batch
check "scancel --signal=USR1 to the tasks: it stops and starts again" stop_at 160 2
ended() { grep -q '"event": "end"' "$lab/log.jsonl"; }
check "it ends" until_within 180 ended
expect 0 "queueing again" "the job's output says why it started again" cat "$lab/job.out"
completed() { [[ $(on 30 squeue -h -j "$job" -t all -o %T) == COMPLETED ]]; }
check "Slurm calls it completed" until_within 30 completed

continuous() {
	python3 - "$lab/log.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line["step"] for line in lines if line["event"] == "step"]
starts = [line for line in lines if line["event"] in ("start", "resume")]
assert steps == list(range(1, starts[0]["total_steps"] + 1)), steps
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
	on 180 srun -N2 --ntasks-per-node=2 --mpi=pmix "$gannet" train --data "$lab/train" --val "$lab/val" --model lenet $args \
		--log "$lab/whole.jsonl" --checkpoint "$lab/whole"
}
check "the same run, never interrupted" whole
same() { [[ $(field "$lab/log.jsonl" end params_sha256) == "$(field "$lab/whole.jsonl" end params_sha256)" ]]; }
check "both end with the same parameters, bit by bit" same

# A job that is cancelled gets SIGTERM first; it must not come back.
cancelled() {
	rm -rf "$lab/run" "$lab/log.jsonl"
	submit && job=$(cat "$lab/job") && until_within 120 reached "$lab/log.jsonl" 20 || return 1
	on 30 scancel "$job"
	until_within 60 gone
	[[ $(on 30 squeue -h -j "$job" -t all -o %T) == CANCELLED ]]
}
gone() { [[ ! $(on 30 squeue -h -j "$job") ]]; }
check "a cancelled job stays away" cancelled
finish
