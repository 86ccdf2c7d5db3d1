#!/bin/bash
# train --elastic: the global batch after a loss, and which images the steps that count have used; exactly half of the ranks; sharded
# optimizers and pipelines; slow ranks; and what the log, summary, top and report say of losses.
set -u
# shellcheck source=tests/train/elastic.sh
. "$GN_SOURCE/tests/train/elastic.sh"

check 'images are packed' "$gannet" pack --out "$scratch/train" --synthetic 640 --classes 4 --size 28x28
train+=(--log-every 5)
once() { "$GN_SOURCE/tests/train/samples_once" "$scratch/$1.jsonl" "$scratch/$1.samples" >"$scratch/$1.once"; }

# whole epochs of 640 images are ten steps of 64; in the last one the run was stopped
every() { grep -qE "^$(field "$1" stop step) steps; images of epochs:( 640)+( [0-9]+)?\$" "$scratch/$1.once"; }
begin keep 4 2 --steps 1000000 --elastic 2 --log-samples "$scratch/keep.samples"
check 'a run of four begins, and two are killed one after the other' test $? = 0
send KILL keep 3
check 'three go on' await_line 1 '"event": "recovered"' "$scratch/keep.jsonl"
check 'for some steps' more_steps keep 2
send KILL keep 0
check 'two go on' await_line 2 '"event": "recovered"' "$scratch/keep.jsonl"
check 'for an epoch and more' more_steps keep 3
send TERM keep 1 2
wait "$launcher"
check 'until they are stopped' test "$(codes keep 4)" = '137 5 5 137 '
check 'with the same global batch' test "$(field keep resume ranks global_batch world | tr '\n' ' ')" = '3 64 2 2 64 3 '
check 'no image is used twice in an epoch' once keep
check 'and none is left out' every keep
check 'the log says what the losses cost' test "$(field keep recovered world ranks ranks_before steps_redone | tr '\n' ' ')" = '2 3 4 0 3 2 3 0 '
check 'in seconds' test "$(field keep recovered seconds | awk '$1 > 0' | wc -l)" = 2
"$gannet" summary "$scratch/keep.jsonl" >"$scratch/summary" && "$gannet" top --once "$scratch/keep.jsonl" >"$scratch/top"
check 'summary lists the worlds' grep -qE 'world 3 from step [0-9]+: 2 ranks after 3, in [0-9.]+ s; 0 finished steps redone' "$scratch/summary"
check 'and the time' grep -q 'between worlds' "$scratch/summary"
check 'top, too' grep -qE 'world 3 of 2 ranks since step [0-9]+  losses 2, [0-9.]+ s between worlds  goodput [0-9]+ %' "$scratch/top"
check 'and a report' "$gannet" report "$scratch/keep.jsonl" --out "$scratch/report"
check 'with the goodput' grep -qE 'Losses of ranks: 2, [0-9.]+ s between worlds. Goodput: [0-9.]+ %' "$scratch/report/report.html"

check 'a rank is killed with --elastic-batch scale' kills scale 4 1 --elastic 2 --elastic-batch scale --log-samples "$scratch/scale.samples"
check 'a smaller global batch' test "$(field scale resume ranks global_batch)" = '3 48'
check 'has a smaller rate' test "$(field scale step lr | awk '{ printf "%.4f\n", $1 }' | sort -u | tr '\n' ' ')" = '0.0150 0.0200 '
check 'and uses no image twice in an epoch' once scale

check 'a rank is killed while the rate goes down' kills falls 4 2 --steps 1000 --elastic 2 --elastic-batch scale --schedule cosine
falls() {
	field falls step step lr | awk -v from="$(field falls resume step)" '
		{ want = ($1 > from ? 0.75 : 1) * 0.01 * (1 + cos(3.14159265358979 * ($1 - 1) / 1000)); d = $2 - want
		  seen += $1 > from; if (d < 0) d = -d; if (!(d < 1e-9)) { print "step", $1, $2, want; bad = 1 } }
		END { exit bad || !seen }'
}
check 'it goes on from there in proportion, by the cosine that ends with the run' falls

for victim in 0 1; do
	check "of two ranks $victim is killed" kills "half$victim" 2 $victim --elastic 1 --checkpoint "$scratch/half$victim" \
		--log-samples "$scratch/half$victim.samples"
	check 'the other one goes on' test "$(codes "half$victim" 2)" = "$([[ $victim = 0 ]] && echo '137 5 ' || echo '5 137 ')"
	check 'alone, with the same global batch' test "$(field "half$victim" resume ranks global_batch)" = '1 32'
	check 'to a last checkpoint' test -e "$scratch/half$victim/step-$(printf %08d "$(field "half$victim" stop step)")/manifest.json"
	check 'nothing else is left there' test "$(cd "$scratch/half$victim" && echo owner*)" = 'owner*'
	check 'each image was used once an epoch' once "half$victim"
done
check 'half of four ranks, 0 among them, are killed at once' kills four 4 '0 2' --elastic 2 --checkpoint "$scratch/four"
check 'the others go on' test "$(codes four 4)" = '137 5 137 5 '

# The limit is the usual one, by which ranks are not lost that are only slow.
begin stop 2 2 --steps 1000000 --elastic 1 --heartbeat-timeout 5 --checkpoint "$scratch/stop" --checkpoint-every 1 --keep 2
check 'a run of two begins, and rank 0 is stopped' test $? = 0
send STOP stop 0
check 'the other goes on' await_line 1 '"event": "resume"' "$scratch/stop.jsonl"
check 'for some steps' more_steps stop 2
send TERM stop 1
check 'until it is asked to stop' await_line 1 '"event": "stop"' "$scratch/stop.jsonl"
send CONT stop 0
wait "$launcher"
check 'the first ends with code 4 when it wakes up' test "$(codes stop 2)" = '4 5 '
check 'and leaves the log alone' test "$(tail -1 "$scratch/stop.jsonl" | grep -c '"event": "stop"')" = 1

check 'too few are left' kills few 4 '1 2' --elastic 3 --checkpoint "$scratch/few"
check 'the run ends with code 4' test "$(codes few 4)" = '4 137 137 4 '
check 'the last line of the log says so, once' test "$(grep -c '"event": "failed".*a peer was lost' "$scratch/few.jsonl") $(tail -1 "$scratch/few.jsonl" | cut -c1-19)" = \
	'1 {"event": "failed",'
check 'and the checkpoint folder is free' test ! -e "$scratch/few/owner"

# what a rank had of the optimizer's state is lost with it
check 'a rank is killed with --shard' kills shard 4 2 --elastic 2 --shard optimizer --checkpoint "$scratch/shard" --checkpoint-every 7 --keep 99 \
	--log-samples "$scratch/shard.samples"
check 'the others go on' test "$(codes shard 4)" = '5 5 137 5 '
back() { # of every seventh step and of every epoch, which has ten; or from the beginning, where there was none yet
	local step
	step=$(field shard resume step)
	step=${step:-0}
	(((step % 7 == 0 || step % 10 == 0) && $(field shard recovered step) == step))
}
check 'from a checkpoint' back
check 'each image was used once an epoch' once shard
same_bits() { # as a run of three that goes on there
	local step from
	step=$(field shard resume step)
	# Killed before the first checkpoint: from the beginning.
	from=none
	((step == 0)) || from=$scratch/shard/step-$(printf %08d "$step")
	timeout -k 5 300 "$gannet" launch -n 3 -- "$gannet" "${train[@]}" --steps "$(field shard stop step)" --shard optimizer --global-batch 64 \
		--resume "$from" --log "$scratch/again.jsonl" || return 1
	[[ $(field again end params_sha256) = "$(field shard stop params_sha256)" ]]
}
check 'bits are those of a start from that checkpoint' same_bits
train+=(--log-every 1)
redundant() { # NAME VICTIMS OPTION...: of 4 ranks, whose parts are copied to the next one
	kills "$1" 4 "$2" --elastic 1 --shard optimizer --redundancy 1 --checkpoint "$scratch/$1" --checkpoint-every 7 "${@:3}"
}
check 'two ranks are killed whose copies others have' redundant apart '0 2' --log-samples "$scratch/apart.samples"
check 'the others go on from memory' grep -q 'are lost.*going on with 2 ranks from memory.*; 2 parts of the optimizer.s state from copies' "$scratch/apart.err"
check 'both are named' grep -qE 'rank 0 on [^ ]+, rank 2 on [^ ]+ are lost' "$scratch/apart.err"
check 'no image is used twice' once apart
check 'two neighbours are killed' redundant beside '1 2' --log-samples "$scratch/beside.samples"
check 'the others go on from the last checkpoint' grep -q 'no rank that is left has the part of rank 1 of the run.s state: going on with 2 ranks from the [lb]' "$scratch/beside.err"
saved() { (($(field beside resume step) % 7 == 0 || $(field beside resume step) % 10 == 0)); }
check 'which was saved every seven steps and after each epoch' saved
check 'no image is used twice' once beside
shard_twice() { # the second loss after the first one's recovery
	begin later 4 3 --steps 1000000 --elastic 1 --shard optimizer --redundancy 1 --checkpoint "$scratch/later" --checkpoint-every 1000 || return 1
	send KILL later 3
	await_line 1 '"event": "recovered"' "$scratch/later.jsonl" || return 1
	more_steps later 2 || return 1
	send KILL later 1
	await_line 2 '"event": "recovered"' "$scratch/later.jsonl" && more_steps later 2 || return 1
	send TERM later 0 2
	wait "$launcher"
	(($(grep -c 'from memory.*1 part of' "$scratch/later.err") == 2))
}
check 'one is killed, and another one later' shard_twice
train+=(--shard optimizer)
check 'with the bits of four, three and two ranks' as_planned later
train=("${train[@]:0:${#train[@]}-2}")
expect 2 '--redundancy copies parts' 'copies need parts' "$gannet" "${train[@]}" --elastic 2 --redundancy 1 --checkpoint "$scratch/none"
expect 2 'goes back to the last checkpoint' 'which is needed' "$gannet" "${train[@]}" --elastic 2 --shard optimizer

# pipelines: with the stage of another one, from a checkpoint with fewer stages, with ranks that wait
short=(--elastic 1 --micro-batches 4 --checkpoint-every 7)
check 'of three stages one is killed' kills stages 3 1 "${short[@]}" --parallel pipeline=3 --cut conv2,fc1 --checkpoint "$scratch/stages"
check 'the last checkpoint goes on in two' grep -q 'no rank that is left has stage 1 of the run.s state: going on with 2 ranks from the [lb]' "$scratch/stages.err"
check 'until they are stopped' test "$(codes stages 3) $(field stages resume mesh.pipeline)" = '5 137 5  2'
check 'a rank is killed of four and a spare' kills spare 5 1 "${short[@]}" --spares 1 --parallel data=2,pipeline=2 --checkpoint "$scratch/spare"
check 'which takes its place' test "$(codes spare 5) $(field spare resume mesh.data mesh.pipeline)" = '5 137 5 5 5  2 2'
check 'from memory' grep -q 'going on with 4 ranks from memory' "$scratch/spare.err"
train+=(--micro-batches 4) pipes=(--parallel pipeline=2)
check 'with the bits of two pipelines' as_planned spare
two_losses() { # the rank that waits takes the place of the second one
	begin waits 4 3 --steps 1000000 --elastic 2 --checkpoint "$scratch/waits" --checkpoint-every 10 || return 1
	send KILL waits 1
	await_line 1 '"event": "recovered"' "$scratch/waits.jsonl" || return 1
	await_line 1 'rank is in none: it waits to be taken in' "$scratch/waits.err" || return 1
	more_steps waits 20 || return 1
	send KILL waits 2
	await_line 2 '"event": "recovered"' "$scratch/waits.jsonl" || return 1
	send TERM waits 0
	wait "$launcher"
	codes waits 4
	[[ $(codes waits 4) == '5 137 137 5 ' && $(field waits resume ranks | tr '\n' ' ') == '2 2 ' ]]
}
check 'two ranks of different pipelines are killed, and two go on' two_losses
train=("${train[@]:0:${#train[@]}-2}") pipes=()
expect 2 'goes back to the last checkpoint' 'pipelines need checkpoints' "$gannet" "${train[@]}" --elastic 2 --parallel pipeline=2

# ranks that take different numbers of batches: the loss of 4 of them with 1 each, but for the order of sums
seq 1 4 >"$scratch/weights"
losses() { # RANKS OPTION...
	timeout -k 5 300 "$gannet" launch -n "$1" -- "$gannet" "${train[@]}" --steps 20 --global-batch 64 --log "$scratch/of$1.jsonl" "${@:2}" &&
		field "of$1" step loss >"$scratch/of$1"
}
alike() {
	rm -f "$scratch"/of*
	losses 3 "$@" && losses 4 "$@" && paste "$scratch/of3" "$scratch/of4" |
		perl -ane '$bad ||= abs($F[0] - $F[1]) > 1e-4 * $F[1]; END { exit($bad || $. < 4) }'
}
check 'three ranks take four batches' alike
check 'with weights of classes and sharded gradients' alike --class-weights "$scratch/weights" --shard gradients
check 'a slow rank' timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" "${train[@]}" --steps 20 --slow-factor 1 --slow-steps 10 --log "$scratch/slow.jsonl"
check 'is named' grep -qE '"event": "slow".*"step": 10, "rank": [01], "host": "[^"]+", "factor": [0-9.]+, "steps": 10' "$scratch/slow.jsonl"
expect 0 'no process waits that could take the place of rank [01]' 'and stays where none waits' timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" "${train[@]}" \
	--steps 20 --slow-factor 1 --slow-steps 10 --elastic 1 --slow-replace
expect 0 'only until gannet launch ends the other ranks.*: start it with --keep-going' 'a launcher that ends all is warned of' timeout -k 5 300 "$gannet" launch -n 2 -- \
	"$gannet" "${train[@]}" --steps 2 --elastic 1
expect 0 'survives no loss here: one of two ranks is half of them' 'two ranks without a folder can lose none' timeout -k 5 300 "$gannet" launch -n 2 --keep-going -- \
	"$gannet" "${train[@]}" --steps 2 --elastic 1
check 'no rank is' timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" "${train[@]}" --steps 20 --slow-factor 1e6 --slow-steps 10 --log "$scratch/fast.jsonl"
check 'where none is slow' test "$(grep -c '"event": "slow"' "$scratch/fast.jsonl")" = 0
expect 2 'no multiple of --batch 16' 'a global batch of no whole batches is refused' "$gannet" "${train[@]}" --global-batch 40
expect 2 'fewer than 4 ranks' 'and one of fewer batches than ranks' timeout -k 5 300 "$gannet" launch -n 4 -- "$gannet" "${train[@]}" --global-batch 32
finish
