#!/bin/bash
# When train.sbatch queues its job again and when it does not, with stand-ins for Slurm's commands: each start of the job takes
# its exit code, its newest checkpoint and its messages from a script, and what it asks of scontrol is recorded.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"
cat >"$scratch/bin/srun" <<'SRUN'
#!/bin/bash
if [[ ${NODE_SHELL:-} ]]; then # as a node does
	while [[ $1 == --* ]]; do shift; done
	exec "$@"
fi
[[ " $* " == *" train "* ]] || { echo "umask $(umask) $*"; exit "${STAGE_CODE:-0}"; }
echo "srun $*"
checkpoint=$(sed 's/.*--checkpoint \([^ ]*\) .*/\1/' <<<"$*")
if [[ $STEP ]]; then mkdir -p "$checkpoint/step-$STEP" && touch "$checkpoint/step-$STEP/manifest.json"; fi
[[ ! ${EVENTS:-} ]] || printf '{"event": "%s", "step": 1}\n' $EVENTS >>"$(sed 's/.*--log \([^ ]*\).*/\1/' <<<"$*")"
[[ ! ${FAILED:-} ]] || printf '{"event": "failed", "step": 1, "status": "%s", "message": "."}\n' "$FAILED" \
	>>"$(sed 's/.*--log \([^ ]*\).*/\1/' <<<"$*")"
[[ ! $HEARD ]] || printf '%b\n' "$HEARD" >&2
exit "$CODE"
SRUN
cat >"$scratch/bin/scontrol" <<'SCONTROL'
#!/bin/bash
case "$1 $2" in
"show job") echo "JobId=7 JobState=${STATE:-RUNNING} ReqNodeList=(null) ExcNodeList=${EXCLUDED:-(null)} NodeList=n[1-2]" ;;
"show hostnames") tr ',' '\n' <<<"$3" ;;
*) echo "scontrol $*" ;;
esac
SCONTROL
cat >"$scratch/bin/sinfo" <<'SINFO'
#!/bin/bash
printf '%s\n' $NODES
SINFO
chmod +x "$scratch"/bin/*
export SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n1,n2 SLURM_NNODES=2 SLURM_NTASKS=4 SLURM_JOB_PARTITION=main NODES="n1 n2 n3"
export GANNET_DATA=/data GANNET_CHECKPOINT=$scratch/run STEP='' HEARD='' TMPDIR=$scratch
job() { PATH=$scratch/bin:$PATH timeout -k 5 300 env CODE="$1" "${@:2}" "$GN_SOURCE/slurm/jobs/train.sbatch"; }
again() { expect 0 '^scontrol requeue 7$' "$@"; }
over() { # CODE NAME COMMAND...: ends with CODE, and nothing is asked of scontrol
	local code=$1
	shift
	expect "$code" . "$@"
	if grep -q '^scontrol' <<<"$tap_output"; then
		tap_point 'not ok' "and is not queued again"
		tap_say "it was"
	else
		tap_point ok "and is not queued again"
	fi
}

over 3 "bad data ends the job" job 3
over 2 "so does wrong usage" job 2
over 1 "and a failure" job 1
over 0 "and success" job 0
over 2 "GANNET_RETRIES must be a number" job 4 GANNET_RETRIES=x

again "a lost rank: retry 1" job 4
again "2" job 137
again "3: SIGKILL and a lost peer count together" job 4
over 4 "the fourth without a checkpoint is the end, with code 4 also for 137" job 137
check "which leaves no memory of it" test ! -e "$scratch/run.requeue"

again "retry 1 of another start" job 5
again "2" job 4
again "3" job 4
expect 0 'from step 10 \(0 of 3' "a newer checkpoint resets the count" job 4 STEP=00000010
again "1" job 4
mkdir "$scratch/run/step-00000020" "$scratch/run/step-00000030.tmp" && touch "$scratch/run/step-00000030.tmp/manifest.json"
expect 0 '\(2 of 3' "what is no complete checkpoint resets nothing" job 4
mkdir "$scratch/run/step-100000000" && touch "$scratch/run/step-100000000/manifest.json"
expect 0 '\(0 of 3' "one that another start saved and did not tell of does" job 4
expect 0 '\(1 of 3' "another job's count is not this one's" job 4 SLURM_JOB_ID=8
for bad in "" "job 7 count 3 st" "job 7 count 99999999999999999999 step 0 lost end" 'job 7 count a[$(touch x)] step 0 lost end'; do
	printf '%s' "$bad" >"$scratch/run.requeue"
	expect 0 '\(1 of 3' "nor is a record that is damaged" job 4
done
over 4 "GANNET_RETRIES=0 allows none" job 4 GANNET_RETRIES=0 GANNET_CHECKPOINT="$scratch/none"
again "but going on from a newer checkpoint" job 5 GANNET_RETRIES=0 GANNET_CHECKPOINT="$scratch/none" STEP=00000001
again "a number is read as decimal" job 4 GANNET_RETRIES=08 GANNET_CHECKPOINT="$scratch/none"
again "no folder for temporary files: no host is known, no more" job 4 TMPDIR=/nowhere GANNET_CHECKPOINT="$scratch/none"
over 4 "a job that is ending stays away" job 4 STATE=COMPLETING
over 3 "damaged data found by staging ends it" job 0 STAGE_CODE=3 GANNET_LOCAL=/nvme
again "a rank killed while staging does not" job 0 STAGE_CODE=137 GANNET_LOCAL=/nvme
expect 0 "umask 0077 .*--to /nvme/gannet-$UID/data-[0-9]+" "what is staged lies in a private folder of the user's" job 0 GANNET_LOCAL=/nvme
printf '%s\n' '#!/bin/sh' '[ "$1" = --version ] && echo "local disk     /disk"' >"$scratch/gannet" && chmod +x "$scratch/gannet"
expect 0 "--to /disk/gannet-$UID/data-" "the site's local disk is that of a user who names none" job 0 GANNET="$scratch/gannet"
expect 0 "--to /nvme/gannet-$UID/data-" "and below the user's" job 0 GANNET="$scratch/gannet" GANNET_LOCAL=/nvme
unknown="GANNET_LOCAL is not set, and /none/gannet, which would tell the site's, cannot be run on"
expect 0 "$unknown .*: nothing is staged; GANNET names" "a program that cannot be run is the reason why nothing is staged" job 0 GANNET=/none/gannet
expect 1 "$unknown" "and why stage.sbatch does not know where to" env PATH="$scratch/bin:$PATH" GANNET=/none/gannet "$GN_SOURCE/slurm/jobs/stage.sbatch"
expect 1 "$unknown" "nor stage-node" env GANNET=/none/gannet "$GN_SOURCE/slurm/stage-node" /data
if ((UID)); then
	mkdir "$scratch/shut" "$scratch/shut/run" && chmod 500 "$scratch/shut"
	over 4 "without a place for the record there is no retry" job 4 GANNET_CHECKPOINT="$scratch/shut/run" \
		GANNET_LOG_FILE="$scratch/shut.jsonl"
else
	skip "without a place for the record there is no retry" "root may write everywhere"
fi

run=(GANNET_CHECKPOINT="$scratch/spoiled")
again "srun's code is spoiled, the log says that the run stopped" job 247 "${run[@]}" EVENTS="start step stop"
check "which is told" grep -q 'srun ended with code 247, but .*spoiled.jsonl .* code 5' <<<"$tap_output"
over 247 "a stop of an earlier start does not count" job 247 "${run[@]}"
over 23 "nor does one that is not the last event" job 23 "${run[@]}" EVENTS="stop start step"
over 0 "the log says that the run is done" job 23 "${run[@]}" EVENTS="start end"
over 3 "an event that says nothing of the end leaves srun's code" job 3 "${run[@]}" EVENTS="start other"
run=(GANNET_CHECKPOINT="$scratch/spoiled-failed")
again "srun's code is spoiled, the log says that a rank was lost" job 247 "${run[@]}" FAILED="a peer was lost"
rm -r "$scratch"/spoiled-failed*
again "or that one hung" job 247 "${run[@]}" FAILED="no progress in time"
over 1 "or that the run failed otherwise" job 247 "${run[@]}" FAILED="bad data"
over 3 "a rank's own code is more exact" job 3 "${run[@]}" FAILED="a peer was lost"
run=(GANNET_CHECKPOINT="$scratch/cut")
again "srun is killed by what is sent to its ports, before the run's end" job 139 "${run[@]}" EVENTS="start step"
check "which is told" grep -q 'srun ended with code 139, but .*cut.jsonl has no end of this start' <<<"$tap_output"
again "or before its start" job 139 "${run[@]}"
again "srun ends with 0 before the run's end, as when a node is set down" job 0 "${run[@]}" EVENTS="start step"
over 4 "both within GANNET_RETRIES" job 139 "${run[@]}" EVENTS="resume step"
over 0 "neither after it" job 139 "${run[@]}" EVENTS="resume end"
over 0 "0 is 0 for what writes no line" job 0 "${run[@]}"
over 0 "or a log that is no file" job 0 "${run[@]}" GANNET_LOG_FILE=/dev/null
over 139 "whose signal is its own end" job 139 "${run[@]}" GANNET_LOG_FILE=-
again "srun is killed while staging" job 0 "${run[@]}" STAGE_CODE=139 GANNET_LOCAL=/nvme
# as gannet submit writes it
printf '%s\n' 'export GANNET_LOG_FILE=-' 'gannet_step=(exec program)' ". $GN_SOURCE/slurm/jobs/train.sbatch" >"$scratch/submitted"
submitted() { PATH=$scratch/bin:$PATH timeout -k 5 300 env "$@" bash "$scratch/submitted"; }
over 139 "a program's signal is its own end, too" submitted STAGE_CODE=139
over 0 "and its 0 is 0" submitted
sed -i "s:=-:=$scratch/submitted.jsonl:; s:(exec program):(train --checkpoint $scratch/cut --log $scratch/submitted.jsonl ):" "$scratch/submitted"
again "gannet submit -- train with a log is queued again" submitted CODE=0 EVENTS="start step"

if ((UID == 0)); then
	mkdir -m 1777 "$scratch/all"
	run=(GANNET_CHECKPOINT="$scratch/all/run" GANNET_LOG_FILE="$scratch/all.jsonl")
	for link in run.requeue run.requeue.tmp; do ln -s ../target "$scratch/all/$link" && chown -h 65533 "$scratch/all/$link"; done
	echo "job 7 count 3 step 0 lost end" >"$scratch/target"
	expect 0 '\(1 of 3' "a record that another user's link leads to does not count" job 4 "${run[@]}"
	expect 0 'count 3' "and nothing is written there" cat "$scratch/target"
	echo "job 7 count 3 step 0 lost end" >"$scratch/all/run.requeue" && chown 65533 "$scratch/all/run.requeue"
	expect 0 '\(1 of 3' "nor does another user's file" job 4 "${run[@]}"
	expect 0 '\(2 of 3' "the user's own does" job 4 "${run[@]}"
	check "and no other is left" test "$(ls "$scratch/all")" = "run.requeue
run.requeue.tmp"
	mkdir "$scratch/all/fabrics" && chown 65533 "$scratch/all/fabrics" && ln -s ../target "$scratch/all/fabrics/tcp.bench.jsonl.new"
	expect 1 'all/fabrics belongs to another user' "ib-vs-eth.sbatch writes into no folder that another user has put there" \
		env GANNET_OUT="$scratch/all/fabrics" GANNET_START=echo "$GN_SOURCE/slurm/jobs/ib-vs-eth.sbatch"
	expect 0 'count 3' "nor through his links" cat "$scratch/target"
else
	skip "other users' links and files" "needs root"
fi
touch "$scratch/file"
over 1 "the checkpoint's folder cannot be made: told before staging" job 0 GANNET_CHECKPOINT="$scratch/file/run" GANNET_LOCAL=/nvme
check "by its variable" bash -c 'grep -q "^GANNET_CHECKPOINT: " <<<"$1" && ! grep -q umask <<<"$1"' - "$tap_output"
over 1 "so is the log's" job 0 GANNET_LOG_FILE="$scratch/nowhere/log" GANNET_LOCAL=/nvme
check "by its variable" bash -c 'grep -q "^GANNET_LOG_FILE: " <<<"$1" && ! grep -q umask <<<"$1"' - "$tap_output"
over 1 "a GANNET_LOCAL that is not there ends the job" job 0 NODE_SHELL=1 GANNET_LOCAL="$scratch/nope"
check "by node and variable" grep -qF "$(uname -n): GANNET_LOCAL=$scratch/nope is not a directory on this node" <<<"$tap_output"
check "and nothing is made" test ! -e "$scratch/nope"
expect 1 "GANNET_LOCAL=$scratch/nope is not a directory" "so does stage.sbatch" \
	env PATH="$scratch/bin:$PATH" NODE_SHELL=1 GANNET_LOCAL="$scratch/nope" "$GN_SOURCE/slurm/jobs/stage.sbatch"
over 0 "GANNET_QUOTA goes to gannet stage" job 0 GANNET_LOCAL=/nvme GANNET_QUOTA=800G GANNET_CHECKPOINT="$scratch/quota"
check "as --quota" grep -qE 'stage --from /data --to /nvme/gannet-.* --quota 800G$' <<<"$tap_output"
expect 0 'stage --from /data --to /nvme/gannet-.* --quota 800G$' "so it does from stage.sbatch" \
	env PATH="$scratch/bin:$PATH" GANNET_LOCAL=/nvme GANNET_QUOTA=800G "$GN_SOURCE/slurm/jobs/stage.sbatch"

ended="srun: error: n2: task 1: Exited with exit code"
over 2 "a task that ended before the others waited in vain: its code counts" job 4 HEARD="$ended 2\nsrun: error: n1: task 0: Exited with exit code 4"
over 1 "also when srun has ended the others" job 137 HEARD="$ended 1\nsrun: error: n1: task 0: Killed"
again "not that of one which ended after a loss" job 4 HEARD="$ended 4\nsrun: error: n1: task 0: Exited with exit code 1"
lost="gannet train: rank 3 on n2.cluster.org is lost: its connection closed\ngannet train: rank 2 on n2 is lost: silent"
again "n2 is lost" job 4 HEARD="$lost\ngannet train: rank 0 on n1 is lost: what n2 says" STEP=100000001
excluded() { # LIST NAME COMMAND...
	expect 0 "^scontrol update JobId=7 ExcNodeList=$1\$" "${@:2}"
}
excluded n2 "when it is lost again, it is excluded" job 4 HEARD="$lost"
excluded n9,n2 "beside those that are excluded already" job 137 EXCLUDED=n9 HEARD="srun: error: n2: task 3: Killed"
not_excluded() {
	again "$@"
	if grep -q '^scontrol update' <<<"$tap_output"; then tap_point 'not ok' "and is not excluded"; else tap_point ok "and is not excluded"; fi
}
rm "$scratch/run.requeue"
not_excluded "one that was not lost before" job 4 HEARD="srun: error: n2: task 3: Out Of Memory"
not_excluded "when too few nodes would be left" job 4 HEARD="$lost" NODES="n1 n2"
not_excluded "when two hosts name each other" job 4 HEARD="rank 0 on n1 is lost: a\nrank 3 on n2 is lost: b" STEP=100000002
not_excluded "a host that is not the job's" job 4 HEARD="rank 0 on n7 is lost: a\nrank 0 on n7 is lost: a"

export SLURM_JOB_ID=9 SLURM_ARRAY_JOB_ID=9 SLURM_ARRAY_TASK_ID=2 GANNET_ARGS="--seed %a"
expect 0 '^scontrol requeue 9_2$' "of an array only the task itself is queued again" job 5 STEP=1
check "its checkpoints have a folder of their own" test -d "$scratch/run-2/step-1"
log() { # LOG-ARGUMENT NAME COMMAND...
	expect 0 "--log $1 --seed 2\$" "${@:2}"
}
log "$scratch/run-2.jsonl" "and its log a name; %a is its number" job 5
mkdir "$scratch/l.d"
log "$scratch/l.d/x-2.jsonl" "also where a log is named" job 5 GANNET_LOG_FILE="$scratch/l.d/x.jsonl"
log "$scratch/l.d/x-2" "with any ending" job 5 GANNET_LOG_FILE="$scratch/l.d/x"
finish
