#!/bin/sh
# A rank killed in the middle; resume, bit-identical at the same world size, with the right sample at another; stop by signal.
set -u
. "$GN_SOURCE/tests/train/common.sh"
# The rate is constant, so that a run may be interrupted at any step and go on to any other.
run() { # NAME RANKS BATCH STEPS OPTION...
	name=$1 ranks=$2 batch=$3 steps=$4
	shift 4
	lenet "$ranks" "$batch" --steps "$steps" --schedule constant --log-every 1 --log "$dir/$name.jsonl" --checkpoint "$dir/$name" \
		--checkpoint-every 20 "$@"
}

# The process of rank 2 among the launcher's children.
rank_pid() { # LAUNCHER RANK
	for pid in $(pgrep -P "$1"); do
		if tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "PMIX_RANK=$2"; then
			echo "$pid"
			return 0
		fi
	done
	return 1
}

wait_for_step() { # LOG STEP: until the log has that step
	touch "$1"
	timeout -k 5 300 sh -c 'tail -n +1 -F "$1" 2>/dev/null | grep -q -m 1 "\"step\": $2,"' sh "$1" "$2"
}

final() { "$jsonl" "$dir/$1.jsonl" end params_sha256; }

# start NAME: a run of four in the background that does not end by itself, and whose launcher ends no rank; that is $launcher
start() {
	"$gannet" launch -n 4 --keep-going -- "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --batch 16 --threads 1 \
		--loader-threads 1 --steps 1000000 --schedule constant --log-every 1 --log "$dir/$1.jsonl" --checkpoint "$dir/$1" \
		--checkpoint-every 20 >"$dir/$1.out" 2>&1 &
	launcher=$!
}

check 'digits are packed' pack_digits

start killed
check 'a run gets to step 25' wait_for_step "$dir/killed.jsonl" 25
victim=$(rank_pid "$launcher" 2)
check 'rank 2 is killed with kill -9' kill -9 "${victim:-none}"
wait "$launcher"
code=$?
check "the run ends with code 4 (got $code)" test "$code" = 4
check 'each of the others by itself' test "$(grep '^gannet launch: ' "$dir/killed.out" | grep -o 'rank [013] ended with code 4' | sort -u | wc -l)" = 3
check 'they name rank and host' grep -Eq "rank 2 on $(hostname).*(lost|died|closed|gone)" "$dir/killed.out"
sed 's/^/# /' "$dir/killed.out" | head -20
check 'nothing unfinished is left in the checkpoints' sh -c '! ls "$1" | grep -q tmp' sh "$dir/killed"
cp -r "$dir/killed" "$dir/moved" && cp "$dir/killed.jsonl" "$dir/moved.jsonl"

start stopped
check 'another run gets to step 5' wait_for_step "$dir/stopped.jsonl" 5
# A handler's frame on the stack of a thread inside oneDNN's generated code corrupts the heap: there must be no handler.
no_handler() {
	mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$(rank_pid "$launcher" 1)/status")
	test -n "$mask" && test $((0x$mask & (1 << 14 | 1 << 9))) -eq 0
}
check 'no handler is set for SIGTERM and SIGUSR1' no_handler
kill -USR1 "$launcher"
wait "$launcher"
code=$?
check "USR1 ends it with code 5 (got $code)" test "$code" = 5
check 'it says how to go on' grep -q 'resume auto' "$dir/stopped.out"

# Both go on to a step 20 beyond what the first has saved and the second has done.
# The kill may come between a checkpoint and its line in the log.
saved=$(ls "$dir/killed" | sed -n 's/^step-0*//p' | tail -1) stop_at=$("$jsonl" "$dir/stopped.jsonl" stop step | tail -1)
steps=$((${saved:-0} > ${stop_at:-0} ? ${saved:-0} + 20 : ${stop_at:-0} + 20))
check 'a run never interrupted' run whole 4 16 $steps
check 'it ended with a digest of the parameters' test -n "$(final whole)"
check 'resumed with four ranks' run killed 4 16 $steps --resume auto
check 'the parameters are bit-identical to the whole run' test "$(final killed)" = "$(final whole)"
check 'the resume is in the log' test "$("$jsonl" "$dir/killed.jsonl" resume step | wc -l)" = 1

check 'resumed with two ranks of 32' run moved 2 32 $steps --resume auto
"$jsonl" "$dir/whole.jsonl" step step loss >"$dir/a.txt"
"$jsonl" "$dir/moved.jsonl" step step loss >"$dir/b.txt"
# Later steps drift apart by rounding alone; a wrong sample would show at once.
check 'its losses are those of the whole run for 20 steps, sample for sample' awk -v from="$("$jsonl" "$dir/moved.jsonl" \
	resume step)" '
	NR == FNR { want[$1] = $2; next }
	{ got[$1] = $2 } # of steps behind the checkpoint, which are there twice, the second
	END {
		for (step = from + 1; step <= from + 20; step++) {
			if (!(step in got) || !(step in want)) { print "no step", step; bad = 1; continue }
			d = got[step] - want[step]; if (d < 0) d = -d
			if (d > 1e-4 * want[step]) { print "step", step, got[step], want[step]; bad = 1 }
		}
		exit bad
	}' "$dir/a.txt" "$dir/b.txt"

check 'resumed again' run stopped 4 16 $steps --resume auto
check 'the same parameters once more' test "$(final stopped)" = "$(final whole)"
check 'the log is one continuous run of steps' sh -c '"$1" "$2" step step | awk -v n="$3" "
	\$1 != NR { bad = 1 } END { exit bad || NR != n }"' sh "$jsonl" "$dir/stopped.jsonl" $steps
check 'resuming what is finished does nothing and is fine' run stopped 4 16 $steps --resume auto
expect 2 'holds checkpoints already' 'starting afresh in the same folder is refused' run stopped 4 16 $steps

few() { # RANKS BATCH OPTION...: as lenet, on 1000 images
	ranks=$1 batch=$2
	shift 2
	lenet "$ranks" "$batch" --data "$dir/val" "$@"
}
# When there are checkpoints: seven steps an epoch. All ranks have to take the same step for that, whoever's clock it is.
saves() { # NAME OPTION...: the steps that were saved
	name=$1
	shift
	few 2 71 --log "$dir/$name.jsonl" --checkpoint "$dir/$name" "$@" && "$jsonl" "$dir/$name.jsonl" checkpoint step | tr '\n' ' '
}
expect 0 '^14 21 $' 'every second epoch, and at the end' saves second --epochs 3 --checkpoint-epochs 2
expect 0 '^1 2 3 4 5 6 7 8 $' 'after a moment' saves moment --steps 8 --checkpoint-minutes 0.000001
expect 0 '^7 8 $' 'not before an hour has passed' saves hour --steps 8 --checkpoint-minutes 60

# At two thirds of the batch from a checkpoint within an epoch on: 858, 716 and 574 of the 1000 samples are left, of which whole
# batches of 94 are taken, and ten of the next epoch.
other() { # NAME BATCH OPTION...: of both ranks together
	name=$1 batch=$2
	shift 2
	few 2 $((batch / 2)) --log "$dir/$name.jsonl" --log-every 1 --checkpoint "$dir/$name" "$@"
}
for left in 858:1:10 716:2:9 574:3:9; do
	name=third-${left%%:*} left=${left#*:}
	before=${left%:*} after=${left#*:}
	check "$before of seven batches of an epoch" other "$name" 142 --steps "$before"
	check 'resumed at two thirds of the batch, to the end of the next epoch' other "$name" 94 --resume auto --epochs 2
	check "with $((after - before)) batches and ten" test "$("$jsonl" "$dir/$name.jsonl" checkpoint step | tail -2 | tr '\n' ' ')" = \
		"$after $((after + 10)) "
done

# --steps: the schedule ends at the last step, whatever the batch was, and a batch that changes moves nothing but the peak.
rates() { # NAME STEPS FROM PEAK: a cosine over all steps, from that one on
	"$jsonl" "$dir/$1.jsonl" step step lr | awk -v steps="$2" -v from="$3" -v peak="$4" '
		$1 < from { next }
		{ want = peak * (1 + cos(3.14159265358979 * ($1 - 1) / steps)) / 2; d = $2 - want; seen++
		  if (d < 0) d = -d; if (!(d < 1e-9)) { print "step", $1, $2, want; bad = 1 } }
		END { exit bad || !seen }'
}
check 'eight steps of 128' other steps 128 --steps 8 --lr-batch 128
check 'go down to zero' rates steps 8 1 0.01
check 'resumed at a quarter of the batch, for as many' other steps 32 --steps 16 --lr-batch 128 --resume auto --checkpoint-every 12
check 'it is the second half of a run of sixteen steps' rates steps 16 9 0.0025
mkdir "$dir/within" && cp -r "$dir/steps/step-00000012" "$dir/within/"
check 'resumed once more within it' other within 32 --steps 16 --lr-batch 128 --resume auto
check 'the parameters are bit-identical' test "$(final within)" = "$(final steps | tail -1)"
check 'eight steps with a warm-up of an epoch' other warm 128 --steps 8 --lr-batch 128 --warmup-epochs 1
check 'go on with batches of which all sixteen are less than an epoch' other warm 32 --steps 16 --lr-batch 128 --warmup-epochs 1 --resume auto
falls() { "$jsonl" "$dir/warm.jsonl" step step lr | awk '$1 > 8 { bad = bad || (seen++ && $2 >= last); last = $2 } END { exit bad || !(last > 0 && last < 3e-4) }'; }
check 'and the rate falls to the end' falls
expect 2 'warmup-epochs 2 is not below the length of the run' 'a start that could resume, and with too long a warm-up, is refused' \
	other long 128 --steps 8 --warmup-epochs 2 --resume auto

# No epochs: an evaluation.
check 'a checkpoint is evaluated' few 2 500 --epochs 0 --val "$dir/val" --resume "$dir/second" --log "$dir/none.jsonl"
check 'at its step, and nothing is trained' test "$("$jsonl" "$dir/none.jsonl" eval step images)$(grep -c '"event": "step"' \
	"$dir/none.jsonl")" = '21 10000'
check 'again, with what had been evaluated' few 1 500 --epochs 0 --val "$dir/val" --resume "$dir/second" --log "$dir/none.jsonl"
check 'which is done again' test "$("$jsonl" "$dir/none.jsonl" eval step | wc -l)" = 2
check 'weights are evaluated' few 1 500 --epochs 0 --val "$dir/val" --init "$dir/second/latest/model.safetensors" \
	--checkpoint "$dir/untrained" --log "$dir/init.jsonl"
check 'alike' test "$("$jsonl" "$dir/init.jsonl" eval top1)" = "$("$jsonl" "$dir/none.jsonl" eval top1 | head -1)"
check 'and not saved' test ! -e "$dir/untrained/latest"

# A network whose weights lie in an order of their own while it runs, with all that is laid out as they are.
net() { # NAME OPTION...
	name=$1
	shift
	timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" train --data "$dir/train" --model resnet20 --optimizer lamb \
		--ema 0.9 --lr 0.002 --batch 4 --threads 1 --loader-threads 1 --steps 6 --log-every 1 --checkpoint-every 3 \
		--keep 3 --log "$dir/$name.jsonl" --checkpoint "$dir/$name" "$@"
}
check 'six steps of resnet20 with LAMB and an average' net direct
for name in again oracle; do
	mkdir "$dir/$name" && cp -r "$dir/direct/step-00000003" "$dir/$name/"
done
check 'resumed at the third' net again --resume auto
check 'the parameters are bit-identical' test "$(final again)" = "$(final direct)"
for file in model ema; do
	check "so is what $file.safetensors holds" cmp "$dir/direct/step-00000006/$file.safetensors" \
		"$dir/again/step-00000006/$file.safetensors"
done
check 'resumed at the third by the oracle, which knows only the order of the files' net oracle --resume auto --device ref
"$jsonl" "$dir/direct.jsonl" step step loss | awk '$1 > 3' >"$dir/a.txt"
"$jsonl" "$dir/oracle.jsonl" step step loss >"$dir/b.txt"
check 'its losses are the same within 1e-3' sh -c 'paste -d " " "$1" "$2" | awk "
	{ d = \$2 - \$4; if (d < 0) d = -d; if (\$1 != \$3 || !(d <= 1e-3 * \$2)) { print; bad = 1 } } END { exit bad || NR != 3 }"' \
	sh "$dir/a.txt" "$dir/b.txt"

# The newest checkpoint is damaged: the one before it is taken, and that is said.
newest=$(ls -d "$dir"/whole/step-* | tail -1)
printf 'x' | dd of="$newest/model.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 0 'is skipped, it is damaged.*SHA-256' 'a flipped byte: the older checkpoint is evaluated' \
	timeout -k 5 300 "$gannet" eval --data "$dir/val" --checkpoint "$dir/whole"
truncate -s -1 "$newest/model.safetensors"
expect 3 'bytes, the manifest says' 'a file shorter than the manifest says' \
	timeout -k 5 300 "$gannet" eval --data "$dir/val" --checkpoint "$newest"
mkdir "$dir/one" && cp -r "$newest" "$dir/one"
expect 3 'the only checkpoint in .*/one is not whole: ' 'the only one is damaged' \
	timeout -k 5 300 "$gannet" eval --data "$dir/val" --checkpoint "$dir/one"
mv "$newest" "$dir/one/step-99999999"
expect 3 'none of the 2 checkpoints in .*/one is valid; the oldest: ' 'both are' \
	timeout -k 5 300 "$gannet" eval --data "$dir/val" --checkpoint "$dir/one"
expect 3 '--resume takes auto, none or the path of a checkpoint: ' 'a word that is neither' run words 2 5 1 --resume yes
finish
