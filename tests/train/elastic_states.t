#!/bin/bash
# train --elastic under gannet launch: what beside parameters goes on after a loss, such as batch norm's averages and stages that one rank had, a
# process that waits for a place, a rank that stands still, and one that is slow.
set -u
# shellcheck source=tests/train/elastic.sh
. "$GN_SOURCE/tests/train/elastic.sh"

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
plain=("${train[@]}" --log-every 1)
# running averages of batch normalization, which a step that is not finished has changed
train=("${plain[@]}" --model resnet20 --batch 4)
check 'a rank is killed with batch normalization' kills bn 4 1 --ema 0.99 --elastic 2 --checkpoint "$scratch/bn"
check 'the others go on until they are stopped' test "$(codes bn 4)" = '5 137 5 5 '
same_files() { # as of a run that is stopped where the rank was lost, and goes on there
	timeout -k 5 300 "$gannet" launch -n 4 -- "$gannet" "${train[@]}" --steps "$(field bn resume step)" --ema 0.99 --checkpoint "$scratch/bn.stopped" &&
		timeout -k 5 300 "$gannet" launch -n 3 -- "$gannet" "${train[@]}" --steps "$(field bn stop step)" --ema 0.99 --global-batch 16 \
			--resume "$scratch/bn.stopped" --checkpoint "$scratch/bn.again" || return 1
	cmp "$scratch/bn/latest/model.safetensors" "$scratch/bn.again/latest/model.safetensors" &&
		cmp "$scratch/bn/latest/ema.safetensors" "$scratch/bn.again/latest/ema.safetensors"
}
check 'files are those of a stop and a start' same_files

# stages that only one rank had
train=("${plain[@]}" --micro-batches 2) pipes=(--parallel pipeline=2 --cut conv2)
check 'the last stage of one pipeline is killed' kills ring 2 1 --ema 0.99 --elastic 1 --redundancy 1 --checkpoint "$scratch/ring"
check 'the other one goes on from memory' grep -q 'going on with 1 rank.* from memory.*; 1 stage from the copy' "$scratch/ring.err"
check 'of the step before at most' test "$(field ring recovered steps_redone)" -le 1
check 'bits are those of a stop and a start' as_planned ring back
pipes=(--parallel pipeline=3 --cut "conv2,fc1")
check 'a stage is killed, and a process waits' kills ring3 4 1 --optimizer adamw --elastic 2 --spares 1 --redundancy 1 --checkpoint "$scratch/ring3"
check 'which takes its place' test "$(field ring3 resume ranks) $(codes ring3 4)" = '3 5 137 5 5 '
check 'from memory' grep -q 'going on with 3 ranks from memory.*; 1 stage from the copy' "$scratch/ring3.err"
planned=(--optimizer adamw)
check 'bits are those of a stop and a start' as_planned ring3 back
planned=()
train=("${plain[@]}") pipes=()

# The limit is the usual one, by which ranks are not lost that are only slow.
begin stop 4 2 --steps 1000000 --elastic 2 --heartbeat-timeout 5 --checkpoint "$scratch/stop"
check 'a run begins, and rank 0, which has log and checkpoints, is stopped' test $? = 0
send STOP stop 0
check 'the others go on without it' await_line 1 '"event": "resume"' "$scratch/stop.jsonl"
check 'for some steps' more_steps stop 2
send TERM stop 1 2 3
check 'until they are asked to stop' await_line 1 '"event": "stop"' "$scratch/stop.jsonl"
send CONT stop 0
wait "$launcher"
check 'it ends with code 4 when it wakes up' test "$(codes stop 4)" = '4 5 5 5 '
check 'and leaves the log alone' test "$(tail -1 "$scratch/stop.jsonl" | grep -c '"event": "stop"')" = 1

# A rank that stands still for most of the time, until it has ended: hundreds of times slower than the others, which are not far from each other.
begin slow 4 2 --steps 1000000 --elastic 2 --spares 1 --slow-replace --slow-factor 10 --slow-steps 5 --global-batch 48 --checkpoint "$scratch/slow"
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
finish
