#!/bin/bash
# train --elastic under gannet launch: whichever rank is killed or stopped, the others go on, with the bits of a run that is stopped and
# started again with as many ranks.
set -u
# shellcheck source=tests/train/elastic.sh
. "$GN_SOURCE/tests/train/elastic.sh"

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
train+=(--log-every 5)
same_bits() { # NAME OPTION...: as a run of 4 that ends where the rank was lost, and one of 3, with the options, that goes on there
	local step
	step=$(field "$1" resume step)
	timeout -k 5 300 "$gannet" launch -n 4 -- "$gannet" "${train[@]}" --steps "$step" --ema 0.99 --checkpoint "$scratch/$1.stopped" &&
		timeout -k 5 300 "$gannet" launch -n 3 -- "$gannet" "${train[@]}" --steps 50 --ema 0.99 --resume "$scratch/$1.stopped" \
			--log "$scratch/$1.again.jsonl" "${@:2}" || return 1
	echo "$step: $(field "$1" end params_sha256) $(field "$1.again" end params_sha256)"
	[[ $(field "$1" end params_sha256) = "$(field "$1.again" end params_sha256)" ]]
}

for victim in 0 2; do
	how=(--elastic-batch keep) again=(--global-batch 64)
	[[ $victim = 0 ]] || how=(--elastic-batch scale) again=(--lr-batch 64)
	check "rank $victim is killed" kills "kill$victim" 4 $victim --steps 50 --ema 0.99 --elastic 2 "${how[@]}" --checkpoint "$scratch/kill$victim"
	check 'the others end well' test "$(codes "kill$victim" 4 | sed 's/137/K/')" = "$([[ $victim = 0 ]] && echo 'K 0 0 0 ' || echo '0 0 K 0 ')"
	check 'at the last step' test "$(field "kill$victim" end step)" = 50
	check 'the log says how many they are' test "$(field "kill$victim" resume ranks global_batch world)" = "3 $([[ $victim = 0 ]] && echo 64 || echo 48) 2"
	check 'and why' grep -q "\"after\": \"rank $victim on $(uname -n) is lost: " "$scratch/kill$victim.jsonl"
	check 'no sample is left out' test "$(field "kill$victim" resume sample)" = $((64 * $(field "kill$victim" resume step)))
	check 'the last checkpoint is there' "$gannet" info "$scratch/kill$victim"
	check 'whose folder it takes over without a warning' test -z "$(grep 'taking over' "$scratch/kill$victim.err")"
	check 'bits are those of a stop and a start' same_bits "kill$victim" "${again[@]}"
done
# running averages of batch normalization, which a step that is not finished has changed
train+=(--model resnet20 --batch 4)
check 'a rank is killed with batch normalization' kills bn 4 1 --steps 20 --log-every 1 --ema 0.99 --elastic 2 --checkpoint "$scratch/bn"
check 'the others end at the last step' test "$(field bn end step)" = 20
same_files() { # as of a run that is stopped where the rank was lost, and goes on there
	timeout -k 5 300 "$gannet" launch -n 4 -- "$gannet" "${train[@]}" --steps "$(field bn resume step)" --ema 0.99 --checkpoint "$scratch/bn.stopped" &&
		timeout -k 5 300 "$gannet" launch -n 3 -- "$gannet" "${train[@]}" --steps 20 --ema 0.99 --global-batch 16 --resume "$scratch/bn.stopped" \
			--checkpoint "$scratch/bn.again" || return 1
	cmp "$scratch/bn/latest/model.safetensors" "$scratch/bn.again/latest/model.safetensors" &&
		cmp "$scratch/bn/latest/ema.safetensors" "$scratch/bn.again/latest/ema.safetensors"
}
check 'files are those of a stop and a start' same_files
train=("${train[@]:0:${#train[@]}-4}")
check 'a report is drawn' "$gannet" report "$scratch/kill0.jsonl" --out "$scratch/report"

# a state that is divided among ranks goes on from what those that are left have of it
plain=("${train[@]}")
train+=(--log-every 1 --shard gradients --optimizer adamw --ema 0.99 --lr 0.002)
check 'a rank is killed with --shard and --redundancy' kills copies 4 2 --steps 40 --elastic 2 --redundancy 1 --global-batch 128 --checkpoint "$scratch/copies"
check 'the others end well' test "$(codes copies 4)" = '0 0 137 0 '
check 'its part is on another rank' grep -q 'rank 2 on .* lost.*from memory.*; 1 part of the optimizer.s state from copies' "$scratch/copies.err"
check 'bits are those of a stop and a start' as_planned copies
train=("${plain[@]}" --log-every 1 --micro-batches 2) pipes=(--parallel pipeline=2 --cut conv2)
check 'a rank is killed in one of two pipelines' kills pipes 4 1 --steps 40 --elastic 2 --checkpoint "$scratch/pipes"
check 'the others end well, of whom one waits' test "$(codes pipes 4)" = '0 137 0 0 '
check 'the other pipeline goes on from memory' grep -q 'rank 1 on .* is lost.*going on with 2 ranks from memory' "$scratch/pipes.err"
check 'bits are those of a stop and a start' as_planned pipes
# with --redundancy of one pipeline, too: a stage that only one rank had comes from the next one
for victim in 0 1; do
	check "stage $victim of one pipeline is killed" kills ring$victim 2 $victim --steps 40 --ema 0.99 --elastic 1 --redundancy 1 --checkpoint "$scratch/ring$victim"
	check 'the other one goes on from memory' grep -q 'going on with 1 rank.* from memory.*; 1 stage from the copy' "$scratch/ring$victim.err"
	check 'of the step before at most' test "$(field ring$victim recovered steps_redone)" -le 1
	check 'bits are those of a stop and a start' as_planned ring$victim back
done
pipes=(--parallel pipeline=3 --cut "conv2,fc1")
check 'a stage is killed, and a process waits' kills ring3 4 1 --steps 40 --optimizer adamw --elastic 2 --spares 1 --redundancy 1 --checkpoint "$scratch/ring3"
check 'which takes its place' test "$(field ring3 resume ranks)$(codes ring3 4)" = '30 137 0 0 '
check 'from memory' grep -q 'going on with 3 ranks from memory.*; 1 stage from the copy' "$scratch/ring3.err"
planned=(--optimizer adamw)
check 'bits are those of a stop and a start' as_planned ring3 back
planned=()
train=("${plain[@]}") pipes=()

begin stop 4 2 --steps 50 --elastic 2 --heartbeat-timeout -k 5 300 --checkpoint "$scratch/stop"
check 'a run begins, and rank 0, which has log and checkpoints, is stopped' test $? = 0
send STOP stop 0
check 'the others go on to the end without it' await_line 1 '"event": "end"' "$scratch/stop.jsonl"
send CONT stop 0
wait "$launcher"
check 'it ends with code 4 when it wakes up' test "$(codes stop 4)" = '4 0 0 0 '
check 'and leaves the log alone' test "$(tail -1 "$scratch/stop.jsonl" | grep -c '"event": "end"')" = 1

# a rank that stands still for most of the time, until it has ended
begin slow 4 2 --steps 100000 --elastic 2 --spares 1 --slow-replace --slow-steps 5 --log-every 1 --global-batch 48 --checkpoint "$scratch/slow"
perl -e '($end, $pid) = @ARGV; until (-e $end or !kill 0, $pid) {
	kill STOP => $pid; select undef, undef, undef, .2; kill CONT => $pid; select undef, undef, undef, .001 }' \
	"$scratch/slow.1.code" "$(cat "$scratch/slow.1.pid")" &
check 'a slow rank is replaced by a spare' await_line 1 '"event": "resume"' "$scratch/slow.jsonl"
wait $!
send TERM slow 0
wait "$launcher"
check 'and ends with code 4' test "$(codes slow 4)" = '5 4 5 5 '
check 'which it says' grep -q 'rank 1 on .*, which is slow, is replaced by a process that waits: a process that waited has taken the place' "$scratch/slow.err"
check 'three ranks go on' test "$(field slow resume ranks world)" = '3 2'
check 'with the bits of three ranks' as_planned slow

begin twice 4 2 --steps 200 --elastic 2 --socket-ifname none.here # which is of no consequence on one host
check 'a run begins, and one rank after the other is killed' test $? = 0
send KILL twice 3
check 'three go on' await_line 1 '"event": "resume"' "$scratch/twice.jsonl"
send KILL twice 0
wait "$launcher"
check 'two go on' test "$(field twice resume ranks | tr '\n' ' ')" = '3 2 '
check 'to the end' test "$(codes twice 4)" = '137 0 0 137 '

check 'fewer than --elastic asks for' kills few 4 1 --steps 10000 --elastic 4
check 'end with code 4' test "$(codes few 4)" = '4 137 4 4 '
check 'which says so' grep -q 'fewer ranks are left than the 4 that this run needs' "$scratch/few.err"
check 'half of the ranks' kills half 2 1 --steps 10000 --elastic 1
check 'end, for the other half might go on' test "$(codes half 2)" = '4 137 '
check 'which says so' grep -q '1 of 2 ranks of the last world answer, and more than half of them must be left' "$scratch/half.err"
finish
