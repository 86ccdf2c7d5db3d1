#!/bin/sh
# A stop during an evaluation: the epoch is in a checkpoint already, no step and no evaluation follow, and the run that goes on makes
# up for the evaluation. The oracle takes its time: seconds for what others do at once.
set -u
. "$GN_SOURCE/tests/train/common.sh"

options="--model resnet20 --batch 2 --threads 1 --loader-threads 1 --log-every 1"
# shellcheck disable=SC2086 # a list
train() { # OPTION...: two ranks
	timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" train --data "$dir/few" --val "$dir/many" $options --log "$dir/run.jsonl" \
		--checkpoint "$dir/run" "$@"
}
# start OPTION...: on the oracle, in the background; the launcher is $launcher
# shellcheck disable=SC2086
start() {
	GANNET_LOG=info "$gannet" launch -n 2 -- "$gannet" train --data "$dir/few" --val "$dir/many" $options --log "$dir/run.jsonl" \
		--checkpoint "$dir/run" --device ref "$@" >"$dir/out" 2>&1 &
	launcher=$!
}
wait_for() { # FILE PATTERN
	until_true grep -q -e "$2" "$1"
}
count() { grep -c "\"event\": \"$1\"" "$dir/run.jsonl"; }
ends() { # CODE: the launcher's, in $code
	wait "$launcher"
	code=$? launcher=
	test "$code" = "$1" || sed 's/^/# /' "$dir/out" >&2
}

launcher=
trap 'test -z "$launcher" || kill -KILL "$launcher" 2>/dev/null; rm -rf "$dir"' EXIT

check 'a few images are packed' "$gannet" pack --out "$dir/few" --synthetic 16 --classes 4 --size 32x32
check 'and many for validation' "$gannet" pack --out "$dir/many" --synthetic 1000 --classes 4 --size 32x32
start --epochs 2
check 'the epoch is in a checkpoint before it is evaluated' wait_for "$dir/run.jsonl" '"event": "checkpoint"'
check 'SIGTERM' kill -TERM "$launcher"
ends 5
check "ends it with code 5 (got $code)" test "$code" = 5
check 'after the epoch it was in' test "$(count step)" = 4
check 'without an evaluation' test "$(count eval)" = 0
check 'and without another checkpoint' test "$(count checkpoint)" = 1
check 'it says so' grep -q 'no evaluation, because the run is to stop' "$dir/out"

rm "$dir/out"
start --epochs 1 --resume auto
check 'nothing but that evaluation is left of a run of one epoch' wait_for "$dir/run.jsonl" '"event": "resume"'
check 'SIGUSR1' kill -USR1 "$launcher"
ends 5
check "ends it with code 5 (got $code)" test "$code" = 5

check 'going on' train --epochs 2 --resume auto
check 'begins with the evaluation that was left out' test "$("$jsonl" "$dir/run.jsonl" eval step epoch | tr '\n' ' ')" = '4 1 8 2 '
check 'before the next step' sh -c 'grep -n -m 1 "\"event\": \"eval\"" "$1" | cut -d: -f1 >"$2/a" &&
	grep -n "\"step\": 5," "$1" | head -1 | cut -d: -f1 >"$2/b" && test "$(cat "$2/a")" -lt "$(cat "$2/b")"' sh "$dir/run.jsonl" "$dir"
check 'what has been evaluated' train --epochs 2 --resume auto
check 'is not evaluated again' test "$(count eval)" = 2

# An interrupt stops a run, the second one ends it. The steps that are interrupted twice take the oracle longer than anybody waits.
rm -r "$dir/run" "$dir/run.jsonl"
start --epochs 100000 --device host
check 'ranks that train' wait_for "$dir/run.jsonl" '"step": 3,'
twice_at_once() { perl -e 'exit(2 != kill "INT", $ARGV[0], $ARGV[0])' "$launcher"; }
check 'SIGINT, to the launcher and to its group' twice_at_once
ends 5
check "ends them with code 5 (got $code)" test "$code" = 5
check 'with a checkpoint' test -f "$dir/run/latest/manifest.json"
check 'it says what a second one does' test "$(grep -c 'a second interrupt ends it immediately' "$dir/out")" = 1

rm -r "$dir/run" "$dir/run.jsonl" "$dir/out"
start --epochs 100000 --device host
check 'ranks that train' wait_for "$dir/run.jsonl" '"step": 3,'
check 'SIGHUP, as of a terminal that is closed' kill -HUP "$launcher"
ends 5
check "ends them with code 5 (got $code)" test "$code" = 5
check 'with a checkpoint' test -f "$dir/run/latest/manifest.json"
check 'it says so once' test "$(grep -c 'got SIGHUP: the run stops after the current step, with a checkpoint' "$dir/out")" = 1

interrupt() {
	wait_for "$dir/run.jsonl" '"event": "start"' && kill -INT "$launcher" && wait_for "$dir/out" 'a second interrupt'
}
# again CODE: what comes soon after the first counts as the same one, so it is repeated until the run has ended, with that code
again() {
	(while kill -INT "$launcher" 2>/dev/null; do sleep 0.1; done) &
	ends "$1"
}
rm -r "$dir/run" "$dir/run.jsonl" "$dir/out"
start --data "$dir/many" --batch 400
check 'ranks that are in a long step are interrupted' interrupt
again 130
check "once more, and end (code $code)" test "$code" = 130
check 'in that step' test "$(count step)" = 0
check 'without a checkpoint' test ! -e "$dir/run/latest"
rm "$dir/run.jsonl" "$dir/out"
# shellcheck disable=SC2086
env --default-signal=INT "$gannet" train --data "$dir/many" $options --batch 800 --device ref --log "$dir/run.jsonl" >"$dir/out" 2>&1 &
launcher=$!
check 'so is a run of one rank' interrupt
again 130
check "it ends by the signal (code $code)" test "$code" = 130
check 'in that step' test "$(count step)" = 0
finish
