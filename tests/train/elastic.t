#!/bin/bash
# train --elastic under gannet launch: whichever rank is killed or stopped, the others go on, with the bits of a run that is stopped and
# started again with as many ranks.
set -u
# shellcheck source=tests/train/elastic.sh
. "$GN_SOURCE/tests/train/elastic.sh"

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
train+=(--log-every 2)
same_bits() { # NAME OPTION...: as a run of 4 that ends where the rank was lost, and one of 3, with the options, that goes on there
	local step last
	step=$(field "$1" resume step) last=$(field "$1" stop step)
	[[ ! ${GN_SANITIZED:-} ]] || return 0
	timeout -k 5 300 "$gannet" launch -n 4 -- "$gannet" "${train[@]}" --steps "$step" --ema 0.99 --checkpoint "$scratch/$1.stopped" &&
		timeout -k 5 300 "$gannet" launch -n 3 -- "$gannet" "${train[@]}" --steps "$last" --ema 0.99 --resume "$scratch/$1.stopped" \
			--checkpoint "$scratch/$1.again" --log "$scratch/$1.again.jsonl" "${@:2}" || return 1
	echo "$step, $last: $(field "$1" stop params_sha256) $(field "$1.again" end params_sha256)"
	[[ $(field "$1" stop params_sha256) = "$(field "$1.again" end params_sha256)" ]] &&
		cmp "$scratch/$1/latest/ema.safetensors" "$scratch/$1.again/latest/ema.safetensors"
}
for victim in 0 2; do
	how=(--elastic-batch keep) again=(--global-batch 64)
	[[ $victim = 0 ]] || how=(--elastic-batch scale) again=(--lr-batch 64)
	check "rank $victim is killed" kills "kill$victim" 4 $victim --ema 0.99 --elastic 2 "${how[@]}" --checkpoint "$scratch/kill$victim"
	check 'the others go on until they are stopped' test "$(codes "kill$victim" 4 | sed 's/137/K/')" = \
		"$([[ $victim = 0 ]] && echo 'K 5 5 5 ' || echo '5 5 K 5 ')"
	check 'the log says how many they are' test "$(field "kill$victim" resume ranks global_batch world)" = "3 $([[ $victim = 0 ]] && echo 64 || echo 48) 2"
	check 'and why' grep -q "\"after\": \"rank $victim on $(uname -n) is lost: " "$scratch/kill$victim.jsonl"
	check 'no sample is left out' test "$(field "kill$victim" resume sample)" = $((64 * $(field "kill$victim" resume step)))
	check 'the last checkpoint is there' "$gannet" info "$scratch/kill$victim"
	check 'whose folder it takes over without a warning' test -z "$(grep 'taking over' "$scratch/kill$victim.err")"
	check 'bits are those of a stop and a start' same_bits "kill$victim" "${again[@]}"
done
check 'a report is drawn' "$gannet" report "$scratch/kill0.jsonl" --out "$scratch/report"

# a state that is divided among ranks goes on from what those that are left have of it
plain=("${train[@]}")
train+=(--log-every 1 --shard gradients --optimizer adamw --ema 0.99 --lr 0.002 --batch 8)
check 'a rank is killed with --shard and --redundancy' kills copies 4 2 --elastic 2 --redundancy 1 --global-batch 64 --checkpoint "$scratch/copies"
check 'the others go on until they are stopped' test "$(codes copies 4)" = '5 5 137 5 '
check 'its part is on another rank' grep -q 'rank 2 on .* lost.*from memory.*; 1 part of the optimizer.s state from copies' "$scratch/copies.err"
check 'bits are those of a stop and a start' as_planned copies
train=("${plain[@]}" --log-every 1 --micro-batches 2) pipes=(--parallel pipeline=2 --cut conv2)
check 'a rank is killed in one of two pipelines' kills pipes 4 1 --elastic 2 --checkpoint "$scratch/pipes"
check 'the others are stopped, of whom one waits' test "$(codes pipes 4)" = '5 137 5 5 '
check 'the other pipeline goes on from memory' grep -q 'rank 1 on .* is lost.*going on with 2 ranks from memory' "$scratch/pipes.err"
check 'bits are those of a stop and a start' as_planned pipes
# with --redundancy of one pipeline, too: a stage that only one rank had comes from the next one
check 'a stage of one pipeline is killed' kills ring 2 0 --ema 0.99 --elastic 1 --redundancy 1 --checkpoint "$scratch/ring"
check 'the other one goes on from memory' grep -q 'going on with 1 rank.* from memory.*; 1 stage from the copy' "$scratch/ring.err"
check 'of the step before at most' test "$(field ring recovered steps_redone)" -le 1
check 'bits are those of a stop and a start' as_planned ring back
train=("${plain[@]}") pipes=()

# 200 steps are more than three ranks take until the second signal comes
begin twice 4 2 --batch 4 --steps 200 --elastic 2 --socket-ifname none.here # which is of no consequence on one host
check 'a run begins, and one rank after the other is killed' test $? = 0
send KILL twice 3
check 'three go on' await_line 1 '"event": "resume"' "$scratch/twice.jsonl"
send KILL twice 0
wait "$launcher"
check 'two go on' test "$(field twice resume ranks | tr '\n' ' ')" = '3 2 '
check 'to the end' test "$(codes twice 4)" = '137 0 0 137 '
check 'at the last step' test "$(field twice end step)" = 200

check 'fewer than --elastic asks for' kills few 4 1 --elastic 4
check 'end with code 4' test "$(codes few 4)" = '4 137 4 4 '
check 'which says so' grep -q 'fewer ranks are left than the 4 that this run needs' "$scratch/few.err"
check 'half of the ranks' kills half 2 1 --elastic 1
check 'end, for the other half might go on' test "$(codes half 2)" = '4 137 '
check 'which says so' grep -q '1 of 2 ranks of the last world answer, and more than half of them must be left' "$scratch/half.err"
finish
