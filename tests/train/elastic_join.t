#!/bin/bash
# train --elastic MIN:MAX, --spares and --join under gannet launch: a spare rank takes the place of a lost one, a process that comes later makes
# the run grow; with the bits of runs of as many ranks at each step that are stopped and started again.
set -u
# shellcheck source=tests/train/elastic.sh
. "$GN_SOURCE/tests/train/elastic.sh"

train+=(--log-every 1)
check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
join() { timeout -k 5 300 "${on_node[@]}" "$gannet" train --options "$scratch/$1/options" --join "$scratch/$1" "${@:2}"; } # NAME OPTION...
spare() { # RANK CODES: a spare takes its place
	check "rank $1 is killed" kills "spare$1" 4 "$1" --elastic 2 --spares 1 --checkpoint "$scratch/spare$1"
	check 'three ranks had trained, and one waited' test "$(field "spare$1" start ranks)" = 3
	check 'the others go on until they are stopped' test "$(codes "spare$1" 4)" = "$2"
	check 'three ranks go on' test "$(field "spare$1" resume ranks world)" = '3 2'
	check 'with the bits of three ranks' as_planned "spare$1"
}
spare 0 '137 5 5 5 '
[[ ! ${GN_LONG:-} ]] || spare 1 '5 137 5 5 '
begin idle 3 5 --steps 20 --elastic 2 --spares 1
wait "$launcher"
check 'a spare that nobody needs ends with the run' test "$(codes idle 3)" = '0 0 0 '

# --resume, which train.sbatch gives and the file options does not repeat
begin grow 2 20 --steps 100000 --elastic 2:3 --global-batch 64 --checkpoint "$scratch/grow" --resume auto
check 'the file by which others find the run is for its user alone' test "$(stat -c %a "$scratch/grow/members")" = 600
expect 2 "options or data differ from the run's" 'other options are refused' join grow --lr 0.03
cp -r "$scratch/grow/options" "$scratch/options"
mkdir "$scratch/open" && install -m 644 "$scratch/grow/members" "$scratch/open/members"
expect 2 'mode 0644' 'a file that others can read is refused' \
	"$gannet" train --options "$scratch/options" --join "$scratch/open"
head -c 5000 "$scratch/grow/members" >"$scratch/open/members" && chmod 600 "$scratch/open/members"
expect 2 'no file of a run' 'and one that is torn' "$gannet" train --options "$scratch/options" --join "$scratch/open"
expect 1 'cannot make folder' 'one that fails before it trains ends' join grow --log-samples /proc/none
check 'and the others go on without it' await_line 1 '"event": "resume"' "$scratch/grow.jsonl"
join grow 2>"$scratch/join.err" &
newcomer=$!
check 'a process joins' await_line 2 '"event": "resume"' "$scratch/grow.jsonl"
GANNET_LOG=info "$gannet" train --options "$scratch/options" --join "$scratch/grow" 2>"$scratch/waits.err" &
waiting=$!
check 'one more waits, for three are the most' await_line 1 'waiting' "$scratch/waits.err"
check 'they train on' more_steps grow 5
check 'without it' kill -TERM $waiting
wait $waiting
check 'it is stopped' test $? = 5
check 'while it waited' grep -q 'stopped on request while it waited' "$scratch/waits.err"
send TERM grow 0
wait "$launcher"
wait $newcomer
check 'it is stopped with the run' test $? = 5
check 'three ranks go on' test "$(field grow resume ranks world | tr '\n' ' ')" = '2 3 3 4 '
check 'like the others' test "$(codes grow 2)" = '5 5 '
check 'with the bits of two and then three ranks' as_planned grow
expect 3 'no run that others may join' 'the file is gone with the run' "$gannet" train --options "$scratch/options" --join "$scratch/grow"

begin leaves 2 20 --steps 100000 --elastic 2:3 --global-batch 64 --checkpoint "$scratch/leaves"
"$gannet" train --options "$scratch/leaves/options" --join "$scratch/leaves" 2>"$scratch/leaves.join.err" &
newcomer=$!
check 'a process joins another run' await_line 1 '"event": "resume"' "$scratch/leaves.jsonl"
check 'for some steps' more_steps leaves 5
kill -TERM $newcomer
wait $newcomer
check 'it is stopped, and leaves' test $? = 5
check 'which it says' grep -q 'this process has left the run, which goes on' "$scratch/leaves.join.err"
check 'the others go on' await_line 2 '"event": "resume"' "$scratch/leaves.jsonl"
check 'for more steps' more_steps leaves 5
send TERM leaves 0
wait "$launcher"
check 'until they are stopped' test "$(codes leaves 2)$(field leaves resume ranks | tr '\n' ' ')" = '5 5 3 2 '
check 'no finished step was lost' test "$(field leaves recovered steps_redone | tr '\n' ' ')" = '0 0 '
check 'with the bits of two, three and two ranks' as_planned leaves

# Parts of the optimizer's state are divided anew among more ranks, and with copies again when one leaves.
for redundancy in 0 1; do
	name=parts$redundancy
	begin $name 2 20 --steps 100000 --elastic 2:3 --global-batch 64 --shard optimizer --ema 0.99 --redundancy $redundancy --checkpoint "$scratch/$name"
	"$gannet" train --options "$scratch/$name/options" --join "$scratch/$name" 2>"$scratch/$name.join.err" &
	newcomer=$!
	check "a process joins a sharded run, --redundancy $redundancy" await_line 1 '"event": "resume"' "$scratch/$name.jsonl"
	check 'for some steps' more_steps $name 5
	if ((redundancy)); then
		kill -TERM $newcomer
		wait $newcomer
		check 'it is stopped, and leaves' test $? = 5
		check 'the others go on' await_line 2 '"event": "resume"' "$scratch/$name.jsonl"
		check 'for more steps' more_steps $name 5
	fi
	send TERM $name 0
	wait "$launcher"
	wait $newcomer
	check 'until they are stopped' test "$(codes $name 2)$(field $name resume ranks | tr '\n' ' ')" = "5 5 3 $( ((redundancy == 0)) || echo '2 ')"
	check 'no finished step was lost' test "$(field $name recovered steps_redone | sort -u)" = 0
	planned=(--shard optimizer --ema 0.99)
	check 'with the bits of as many ranks at each step' as_planned $name
	planned=()
done

# A pipeline takes several ranks: the first that comes waits for another one.
pipes=(--parallel pipeline=2 --cut conv2 --micro-batches 2)
begin stages 2 20 --steps 100000 --elastic 2:4 --global-batch 32 --checkpoint "$scratch/stages"
GANNET_LOG=info "$gannet" train --options "$scratch/stages/options" --join "$scratch/stages" 2>"$scratch/stages.join.err" &
newcomer=$!
check 'a process comes to a pipeline of two' await_line 1 'waiting' "$scratch/stages.join.err"
check 'which trains on' more_steps stages 20
check 'as it was' test -z "$(field stages resume ranks 2>/dev/null)"
"$gannet" train --options "$scratch/stages/options" --join "$scratch/stages" 2>"$scratch/stages.join2.err" &
second=$!
check 'another one comes' await_line 1 '"event": "resume"' "$scratch/stages.jsonl"
check 'for some steps' more_steps stages 5
send TERM stages 0
wait "$launcher"
wait $newcomer
first=$?
wait $second
check 'all are stopped' test "$first $? $(codes stages 2)" = '5 5 5 5 '
check 'those that came know it' grep -q 'taken in: rank [23] of 4, in world 2 of the run' "$scratch/stages.join.err"
check 'two pipelines went on' test "$(field stages resume ranks)" = 4
check 'no finished step was lost' test "$(field stages recovered steps_redone)" = 0
check 'with the bits of one and then two pipelines' as_planned stages
pipes=()

begin both 2 5 --steps 100000 --elastic 2:4 --global-batch 64 --checkpoint "$scratch/both"
"$gannet" train --options "$scratch/both/options" --join "$scratch/both" 2>"$scratch/join.err" &
newcomer=$!
"$gannet" train --options "$scratch/both/options" --join "$scratch/both" 2>"$scratch/join2.err" &
second=$!
four() { field both resume ranks | grep -q 4; }
check 'two processes join' until_true four
worlds=$(grep -c '"event": "resume"' "$scratch/both.jsonl")
send KILL both 1
check 'of four ranks one is lost' await_line $((worlds + 1)) '"event": "recovered"' "$scratch/both.jsonl"
for signal in STOP TERM CONT; do kill -$signal $newcomer $second; done # what they see in the same step
wait $newcomer
check 'one is stopped' test $? = 5
wait $second
check 'and another one at once, without whom too few are left' test $? = 5
wait "$launcher"
check 'which stops the run' test "$(codes both 2)" = '5 137 '
check 'with a checkpoint' test "$(field both checkpoint step | tail -n 1)" -eq "$(field both stop step)"

begin alone 1 20 --steps 100000 --elastic 1:2 --elastic-batch scale --checkpoint "$scratch/alone"
join alone 2>"$scratch/join.err" &
newcomer=$!
check 'a run of one rank grows' await_line 1 '"event": "resume"' "$scratch/alone.jsonl"
check 'to two' test "$(field alone resume ranks)" = 2
send TERM alone 0
wait "$launcher"
wait $newcomer
check 'and both are stopped' test "$? $(codes alone 1)" = '5 5 '

if ((UID == 0)) && unshare --uts true 2>/dev/null; then
	# shellcheck disable=SC2016
	on_node=(unshare --uts sh -c 'hostname "node${PMIX_RANK:-new}" && exec "$@"' sh)
	begin sealed 3 20 --steps 100000 --elastic 2:3 --global-batch 96 --checkpoint "$scratch/sealed" --encrypt-network
	send KILL sealed 2
	check 'over encrypted links two ranks go on' await_line 1 '"event": "resume"' "$scratch/sealed.jsonl"
	join sealed 2>"$scratch/join.err" &
	newcomer=$!
	check 'and a process joins them' await_line 2 '"event": "resume"' "$scratch/sealed.jsonl"
	check 'three train on' more_steps sealed 5
	send TERM sealed 0
	wait "$launcher"
	wait $newcomer
	check 'all are stopped' test "$? $(codes sealed 3)" = '5 5 5 137 '
	check 'with the bits of plain links' as_planned sealed
	on_node=()
else
	skip 'over encrypted links two ranks go on, and a process joins them' 'namespaces need root'
fi

expect 2 'at most 2 ranks are fewer than at least 3' 'MAX below MIN is refused' "$gannet" "${train[@]}" --elastic 3:2
expect 2 'give --checkpoint' 'MAX needs a folder' "$gannet" "${train[@]}" --elastic 1:2
expect 2 'give --elastic' 'spares need losses that are survived' "$gannet" "${train[@]}" --spares 1
expect 2 'stages, so that their loss is survived' 'copies of what each rank has' "$gannet" "${train[@]}" --redundancy 1 --elastic 1
expect 2 'give --elastic MIN and --spares N' 'and so does the place of a slow rank' "$gannet" "${train[@]}" --slow-replace
expect 2 '3 ranks need as many batches' 'so do more ranks than batches' \
	"$gannet" launch -n 2 -- "$gannet" "${train[@]}" --elastic 1:3 --checkpoint "$scratch/few"
expect 2 'only 2 ranks train' 'MIN above the ranks is refused' "$gannet" launch -n 2 -- "$gannet" "${train[@]}" --elastic 3
expect 2 '2 ranks train already' 'MAX below the ranks is refused' "$gannet" launch -n 2 -- "$gannet" "${train[@]}" --elastic 1:1 --checkpoint "$scratch/none"
expect 2 'not the folder of the run' 'who joins has the folder of the run' "$gannet" "${train[@]}" --elastic 1:2 --join "$scratch" --checkpoint "$scratch/zz"
mkdir "$scratch/empty"
expect 3 'no run that others may join' 'who joins need not repeat the folder for --keep-best' \
	"$gannet" "${train[@]}" --val "$scratch/train" --keep-best top1 --elastic 1:2 --join "$scratch/empty"
expect 2 'leaves none of 2 ranks' 'all ranks as spares are refused' "$gannet" launch -n 2 -- "$gannet" "${train[@]}" --elastic 1 --spares 2
finish
