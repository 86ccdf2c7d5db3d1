#!/bin/bash
# Parameter servers and ranks that are killed, under gannet launch: async and ssp go on without a worker, a server's loss ends the run.
set -u
# shellcheck source=tests/train/elastic.sh
. "$GN_SOURCE/tests/train/elastic.sh"
train+=(--log-every 5)

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
step_of() { "$jsonl" "$scratch/$1.jsonl" step step | tail -1; }
# kills NAME RANKS VICTIM SIGNAL OPTION...: sent when the log has 3 lines. A run does not end by itself, so that the signal never comes too late; one
# that goes on is asked to stop.
kills() {
	begin "$1" "$2" 3 --steps 1000000 "${@:5}" || return 1
	send "$4" "$1" "$3"
	until_true over_or_without_it "$1" || return 1
	! kill -0 "$launcher" 2>/dev/null || { more_steps "$1" 3 && send TERM "$1" 0; }
	wait "$launcher"
	true
}
over_or_without_it() { ! kill -0 "$launcher" || grep -q '"event": "worker_lost"' "$scratch/$1.jsonl"; }
code_of() { cat "$scratch/$1.$2.code"; }
goes_on() { # NAME VICTIM: the first worker went on until it was asked to stop, and the log names who was lost
	[[ $(code_of "$1" 0) = 5 && $("$jsonl" "$scratch/$1.jsonl" stop step) -gt 15 && $("$jsonl" "$scratch/$1.jsonl" worker_lost rank) = "$2" ]] &&
		[[ $("$jsonl" "$scratch/$1.jsonl" worker_lost host) = "$(uname -n)" ]] &&
		grep -q "a worker is lost: rank $2 on $(uname -n) is lost: .*; the run goes on with 2 of 3" "$scratch/$1.err"
}

images() { # NAME: of a step of the first and the last line
	python3 -c 'import json, sys; s = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "step"]
print(*(round(e["images_per_s"] * e["time_ms"]["step"] / 1e3) for e in (s[0], s[-1])))' "$scratch/$1.jsonl"
}

for update in async ssp:2; do
	check "$update, and a worker is killed" kills "$update" 4 1 KILL --update "$update" --servers 1
	check 'the others go on until they are stopped' goes_on "$update" 1
	check 'images a second are those of the workers that are left' test "$(images "$update")" = '48 32'
	check 'the server ends well' test "$(code_of "$update" 3)" = 0
done
check 'a report is drawn' "$gannet" report "$scratch/async.jsonl" --out "$scratch/report"
check 'with staleness, and the lost worker' grep -q 'Worker 1 was lost at step ' "$scratch/report/report.html"
check 'async, and a server is killed' kills server 4 3 KILL --update async --servers 2 \
	--checkpoint "$scratch/server" --checkpoint-every 10
check 'ends the first worker with code 4' test "$(code_of server 0)" = 4
check 'the other worker' test "$(code_of server 1)" = 4
check 'and the other server' test "$(code_of server 2)" = 4
check 'which names it' grep -q 'parameter server: rank 3 on ' "$scratch/server.err"
check 'the last checkpoint stands' "$gannet" info "$scratch/server"
# A worker that has done its steps is told that the run went well when the first one, which saves, has ended well. The first one stands still
# while the other comes to its last step: in fifty looks in a row it uses no processor then, or is gone.
has_rested() {
	local before=$used
	used=$(cut -d ' ' -f 14,15 "/proc/$1/stat" 2>/dev/null)
	[[ ! $used || $used == "$before" ]] && ((++rests)) || rests=0
	((rests > 50))
}
early() {
	local used='' rests=0
	GANNET_HEARTBEAT_TIMEOUT=60 begin early 3 3 --steps 200 --update async --servers 1 --checkpoint "$scratch/early" || return 1
	send STOP early 0
	until_true has_rested "$(cat "$scratch/early.1.pid")"
	send KILL early 2
	send CONT early 0
	! wait "$launcher"
}
check 'a server is killed when one worker has done its steps' early
check 'the first worker ends with 4' test "$(code_of early 0)" = 4
check 'and the one that was done' test "$(code_of early 1)" = 4
for update in async ssp:2; do
	check "$update, and a worker that serves is killed" kills "shared-$update" 3 1 KILL --update "$update" --servers shared
	check 'ends the first worker with code 4' test "$(code_of "shared-$update" 0)" = 4
	check 'and the other one' test "$(code_of "shared-$update" 2)" = 4
	check 'which says why' grep -q 'the run cannot go on, for with --servers shared every rank holds a part of the parameters: rank 1 on .* is lost' \
		"$scratch/shared-$update.err"
done
check 'sync, and a worker is killed' kills sync 3 1 KILL --update sync --servers 1
check 'ends the first worker with code 4' test "$(code_of sync 0)" = 4
check 'and the server' test "$(code_of sync 2)" = 4
check 'ssp, and one worker is asked to stop' kills stop 4 2 TERM --update ssp:1 --servers 1 --checkpoint "$scratch/stop"
check 'the first one stops as well' test "$(code_of stop 0)" = 5
check 'with a checkpoint' "$gannet" info "$scratch/stop"
finish
