#!/bin/bash
# Random faults in every way to share a step: a rank is killed, stopped for good, stopped for less than the limits, or starts late, after
# a random step and a random number of its waits behind that. A run whose fault passes ends with the parameters of a run without one. Another ends with code 4, names the rank and
# (in a pipeline its stage) and leaves no checkpoint that is not whole; resumed, it ends with those parameters, too. With parameter servers' async and ssp, where no two
# runs have the same parameters, it comes to its last step; and a worker's loss does not end it where no worker serves, but for rank 0's.
# GN_FAULTS faults (8; 300 in tests/long), GN_SEED the first; each is repeated by its own seed. GN_MODES: only in modes that match it.
# GN_STEPS (100) of a run, which may take GN_RUN_S (300) seconds, for busy machines.
set -u
# shellcheck source=tests/train/elastic.sh
. "$GN_SOURCE/tests/train/elastic.sh"
modes=('' '--compress bf16' '--compress fp16' '--compress int8' '--compress topk:0.01' '--compress dgc:0.01' '--compress powersgd:2'
	'--shard optimizer' '--shard gradients --accumulate 2' '--local-steps 4' '--transport tcp --algo ring' '--no-overlap' '--parallel data=1 --micro-batches 2'
	'--parallel pipeline=2 --micro-batches 2 --pipe-schedule gpipe' '--parallel pipeline=2 --micro-batches 4 --pipe-schedule 1f1b'
	'--parallel pipeline=2 --cut fc1 --micro-batches 2 --pipe-schedule pipedream' '--parallel pipeline=2 --cut conv2 --pipe-schedule decoupled'
	'--parallel tensor=2' '--parallel pipeline=2,tensor=2 --cut conv2 --micro-batches 2'
	'--update sync --servers 1' '--update async --servers 1' '--update ssp:3 --servers 1'
	'--update sync --servers shared' '--update async --servers shared' '--update ssp:3 --servers shared')
some=()
for mode in "${modes[@]}"; do [[ ! "$mode" =~ ${GN_MODES:-} ]] || some+=("$mode"); done
modes=("${some[@]}")
((${#modes[@]})) || { echo "GN_MODES='$GN_MODES' matches no mode" >&2; exit 2; }
faults=(kill kill stop pause pause late)
steps=${GN_STEPS:-100} last=$((steps * 7 / 10)) # faults come after a step up to the second

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"

is_async() { [[ $1 == *'--update async'* || $1 == *'--update ssp'* ]]; } # MODE: workers have no common step
keeps_going() { is_async "$1" && [[ $1 == *'--servers 1'* ]]; }             # MODE: without a worker that is lost
# lenet NAME RANKS MODE OPTION...: appends to $scratch/NAME.jsonl, text in NAME.err. Each rank leaves its process in NAME.pid.RANK;
# LATE_RANK starts LATE_S seconds after the others.
lenet() {
	local keep=() clip='--clip 1'
	! keeps_going "$3" || keep=(--keep-going)
	[[ $3 != *--update* ]] || clip=	  # which servers refuse
	[[ $3 != *--parallel* ]] || clip= # sums of squares in the order of stages, which are measured in each run
	# shellcheck disable=SC2016,SC2086 # for the shell of each rank; options
	NAME=$scratch/$1 timeout -k 5 "${GN_RUN_S:-300}" "$gannet" launch -n "$2" --grace 6 "${keep[@]}" -- bash -c 'echo $$ >"$NAME.pid.$PMIX_RANK"
		[[ $PMIX_RANK != "${LATE_RANK:-}" ]] || sleep "$LATE_S"
		exec "$@"' bash "$gannet" train --data "$scratch/train" --model lenet --lr 0.005 $clip --batch 8 --threads 1 \
		--loader-threads 1 --schedule constant --bucket 200K --steps $steps --checkpoint "$scratch/$1" --checkpoint-every 9 \
		--log "$scratch/$1.jsonl" --log-every 1 $3 "${@:4}" >"$scratch/$1.err" 2>&1
}
digest() { "$jsonl" "$scratch/$1.jsonl" end params_sha256 | tail -n 1; }
at_last_step() { [[ $("$jsonl" "$scratch/$1.jsonl" end step | tail -n 1) == "$steps" ]] || { echo 'not at the last step'; return 1; }; }
# same NAME REFERENCE MODE
same() {
	if is_async "$3"; then
		at_last_step "$1"
		return
	fi
	[[ $(digest "$1") && $(digest "$1") == "$(digest "$2")" ]] || { echo "parameters differ from those of a run without a fault"; return 1; }
}
# Whatever has a checkpoint's name can be read.
whole() { # NAME
	local step
	for step in "$scratch/$1"/step-*; do
		[[ ! -d $step || $step == *.tmp ]] || "$gannet" info "$step" || return 1
	done
}
# strike NAME RANK FAULT RUN: after the step, and the number of times that the rank waits after that, which are drawn. RUN: the process that ends with the ranks. A rank that is
# stopped when the run has ended is let go: nobody waits for it.
strike() {
	local after=$((RANDOM % last + 1)) waits=$((RANDOM % 100)) pause=$((RANDOM % 900 + 100)) pid
	echo "$3 after step $after and $waits waits (pause: $pause ms)"
	await_line "$after" '"event": "step"' "$scratch/$1.jsonl" || return 1
	pid=$(<"$scratch/$1.pid.$2")
	after_waits "$pid" "$waits"
	case $3 in
	kill) kill -KILL "$pid" ;;
	stop)
		kill -STOP "$pid"
		while kill -0 "$4" 2>/dev/null; do
			[[ ! $(digest "$1") ]] || { kill -CONT "$pid"; break; }
			sleep 0.1
		done ;;
	pause) kill -STOP "$pid" && sleep "$(printf '0.%03d' "$pause")" && kill -CONT "$pid" ;;
	esac
}
# What gannet launch says of ranks but RANK: nothing, or that they ended with code 4.
others() { # NAME RANK
	! grep '^gannet launch: ' "$scratch/$1.err" | grep -oE 'rank [0-9]+ (was killed|ended with code) [^,;]*' | grep -v "^rank $2 " |
		grep -v ' code 4$' || { echo 'another rank failed otherwise'; return 1; }
}
# A worker is lost, and the others come to the last step.
went_on() { # NAME RANKS RANK
	local at=$scratch/$1.jsonl
	[[ $("$jsonl" "$at" worker_lost rank) == "$3" ]] || { echo "the log does not name rank $3"; return 1; }
	grep -q "a worker is lost: rank $3 on .* is lost: .*; the run goes on with $(($2 - 2)) of $(($2 - 1))" "$scratch/$1.err" ||
		{ echo "rank $3 is not named"; return 1; }
	grep -qE "rank $3 (was killed by signal|ended with code 4).*; $(($2 - 1)) of $2 ranks succeeded" "$scratch/$1.err" ||
		{ echo 'the others did not all succeed'; return 1; }
}
# All ranks are on one node, so that tensor groups and then pipelines are ranks in a row.
stage_named() { # NAME RANKS MODE RANK
	local stages=$2 place
	[[ $3 == *--parallel* ]] || return 0
	[[ $3 != *pipeline=2* ]] || stages=2
	place="stage $(($4 % stages)) of $stages of pipeline $(($4 / stages))"
	[[ $3 != *tensor=2* ]] || place="slice $(($4 % 2)) of 2 of tensor group $(($4 / 2))"
	[[ $3 != *pipeline=2,tensor=2* ]] || place="stage $(($4 / 2)) of 2, slice $(($4 % 2)) of 2 of pipeline 0"
	grep -q "rank $4, $place, is lost" "$scratch/$1.err" || { echo "rank $4, $place, is not named"; return 1; }
}
# Ended by the loss of a rank, then resumed.
lost() { # NAME RANKS MODE RANK CODE REFERENCE
	[[ $5 == 4 ]] || { echo "exit code $5, not 4"; return 1; }
	grep -qE "rank $4 on .* is lost|rank $4 was killed by signal" "$scratch/$1.err" || { echo "rank $4 is not named"; return 1; }
	stage_named "$1" "$2" "$3" "$4" && others "$1" "$4" && whole "$1" && lenet "$1" "$2" "$3" --resume auto || return 1
	if [[ $3 == *decoupled* ]]; then # its predictors are in no checkpoint
		at_last_step "$1"
	else
		same "$1" "$6" "$3"
	fi
}
fault() { # SEED
	local mode fault ranks rank reference name=$1 code pid
	RANDOM=$1
	mode=$((RANDOM % ${#modes[@]})) fault=${faults[RANDOM % ${#faults[@]}]} ranks=$((RANDOM % 3 + 2))
	[[ ${modes[mode]} != *'--servers 1'* ]] || ((ranks > 2)) || ranks=3
	[[ ${modes[mode]} != *pipeline=2* && ${modes[mode]} != *tensor=2* ]] || ((ranks != 3)) || ranks=4
	[[ ${modes[mode]} != *pipeline=2,tensor=2* ]] || ranks=4
	rank=$((RANDOM % ranks)) reference=$mode-$ranks mode=${modes[mode]}
	echo "$fault: rank $rank of $ranks, train $mode"
	[[ $(digest "$reference") ]] || lenet "$reference" "$ranks" "$mode" || { cat "$scratch/$reference.err"; return 1; }
	rm -rf "${scratch:?}/$reference"
	# What passes is far from the limits; what does not is noticed soon.
	export GANNET_HEARTBEAT_TIMEOUT=30 GANNET_STALL_TIMEOUT=30
	[[ $fault != stop ]] || GANNET_HEARTBEAT_TIMEOUT=8 # ranks that are only slow send heartbeats meanwhile
	if [[ $fault == late ]]; then
		LATE_RANK=$rank LATE_S=$(printf '0.%03d' $((RANDOM % 1000))) lenet "$name" "$ranks" "$mode"
		code=$?
	else
		lenet "$name" "$ranks" "$mode" &
		pid=$!
		strike "$name" "$rank" "$fault" $pid
		wait $pid
		code=$?
	fi
	cat "$scratch/$name.err"
	export GANNET_HEARTBEAT_TIMEOUT=30
	if [[ $fault != kill && $fault != stop ]]; then
		((code == 0)) && whole "$name" && same "$name" "$reference" "$mode" || return 1
	elif [[ $(digest "$name") && $("$jsonl" "$scratch/$name.jsonl" worker_lost rank) ]]; then
		echo "$fault" >>"$scratch/in-time"
		went_on "$name" "$ranks" "$rank" && whole "$name" && same "$name" "$reference" "$mode" || return 1
	elif [[ ! $(digest "$name") ]]; then
		echo "$fault" >>"$scratch/in-time"
		lost "$name" "$ranks" "$mode" "$rank" $code "$reference" || { cat "$scratch/$name.err"; return 1; }
	else # it came when the run had ended, or was about to
		echo "$fault" >>"$scratch/too-late"
		((code == 0 || code == 4)) && others "$name" "$rank" && whole "$name" && same "$name" "$reference" "$mode" || return 1
	fi
	rm -rf "${scratch:?}/$name" "$scratch/$name".*
}
seed=${GN_SEED:-$((RANDOM + 1))} count=${GN_FAULTS:-8}
echo "# GN_SEED=$seed GN_FAULTS=$count"
for ((i = seed; i < seed + count; i++)); do check "a random fault, GN_SEED=$i GN_FAULTS=1 GN_MODES='${GN_MODES:-}'" fault $i; done
touch "$scratch/in-time" "$scratch/too-late"
in_time=$(grep -c . "$scratch/in-time") too_late=$(grep -c . "$scratch/too-late")
echo "# $in_time faults came while ranks trained, $too_late when the run was over"
((count < 8)) || check 'some come while ranks train' test $((in_time)) -gt 0
finish
