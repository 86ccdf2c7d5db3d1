#!/bin/bash
# Traces parse, nest, have all ranks and steps, on one clock, also where hosts have clocks of their own.
set -u
# shellcheck source=tests/train/common.sh
. "$GN_SOURCE/tests/train/common.sh"
look=$GN_SOURCE/tests/train/trace_check

check 'digits are packed' pack_digits
check 'two ranks, the last 5 steps of 12' lenet 2 16 --steps 12 --trace "$dir/last.json" --trace-steps 5 --prefetch 0
expect 0 ' 1 sums a step, 2 decoding' 'are 8 to 12' "$look" "$dir/last.json" 2 8 12
check 'three ranks, steps 3 to 6 of 12, small buckets' lenet 3 8 --steps 12 --trace "$dir/some.json" --trace-steps 3:6 \
	--bucket 64K --transport tcp --accumulate 2 --val "$dir/val" --checkpoint "$dir/run" --checkpoint-every 4 --prefetch 0
expect 0 ' [2-9] sums a step' 'are 3 to 6' "$look" "$dir/some.json" 3 3 6
check 'with the checkpoint between them' grep -q '"name": "checkpoint", .*"step": 4' "$dir/some.json"
check 'one rank' lenet 1 16 --steps 3 --trace "$dir/one.json"
check 'has a trace, too' "$look" "$dir/one.json" 1 1 3
check 'a checker that can fail' sh -c '! "$1" "$2" 2 1 3' sh "$look" "$dir/one.json"
check 'no temporary file is left' test -z "$(find "$dir" -name '*.tmp')"

expect 1 'cannot write .*/none/t.json' 'a folder that is not there, at once' lenet 2 16 --steps 2 --trace "$dir/none/t.json"
mkfifo "$dir/fifo"
expect 1 "fifo exists and is not a regular file" "a FIFO is not replaced" lenet 1 16 --steps 1 --trace "$dir/fifo"
expect 2 "give A:B" 'steps that make no sense' lenet 1 16 --steps 2 --trace "$dir/t.json" --trace-steps 5:4
expect 2 "give A:B" 'or none' lenet 1 16 --steps 2 --trace "$dir/t.json" --trace-steps 0
check 'stop by signal' sh -c '
	"$1" train --data "$2/train" --model lenet --lr 0.01 --threads 1 --epochs 1000 --trace "$2/stopped.json" --trace-steps 4 \
		--log "$2/stopped.jsonl" --log-every 1 & pid=$!
	timeout -k 5 300 tail -n +1 -F "$2/stopped.jsonl" 2>/dev/null | grep -q -m 1 "\"step\": 10,"
	kill -TERM $pid; wait $pid; test $? = 5 && grep -q "\"name\": \"log\"" "$2/stopped.json"' sh "$gannet" "$dir"

full() {
	mkdir "$dir/small"
	GANNET_LOG=warn unshare --mount sh -c 'mount -t tmpfs -o size=16k none "$1" && shift && exec "$@"' sh "$dir/small" \
		timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --threads 1 \
		--loader-threads 1 --steps 25 --trace "$dir/small/t.json" --log "$dir/full.jsonl"
}
if unshare --mount true 2>/dev/null; then
	expect 0 'there is no trace: .*No space left' 'a full disk costs the trace, not the run' full
	check 'which ends as it should' grep -q '"event": "end"' "$dir/full.jsonl"
else
	skip 'a full disk' 'mounting needs root'
fi

# Rank 1 of three is killed in the middle, as a node that fails would be: the others leave what they have.
# The launcher itself must let them: it ends those that are left after its grace.
killed() {
	timeout -k 5 300 "$gannet" launch -n 3 -- sh -c 'echo $$ >"$1/pid.$PMIX_RANK" && shift && exec "$@"' sh "$dir" \
		"$gannet" train --data "$dir/train" --model lenet --lr 0.01 --threads 1 --loader-threads 1 --batch 8 --epochs 1000 \
		--transport tcp --trace "$dir/killed.json" --trace-steps 4 --log "$dir/killed.jsonl" --log-every 1 &
	local launch=$!
	timeout -k 5 300 tail -n +1 -F "$dir/killed.jsonl" 2>/dev/null | grep -q -m 1 '"step": 10,'
	kill -KILL "$(cat "$dir/pid.1")"
	wait $launch
}
expect 4 'rank 1 ' 'a rank that is killed' killed
check 'the others leave their parts' "$look" --parts "$dir/killed.json.rank0.json" "$dir/killed.json.rank2.json"
check 'and nothing that looks whole' test ! -e "$dir/killed.json"
diverges() { lenet 2 8 --steps 40 --lr 1000000 --warmup-epochs 0 --trace "$dir/bad.json" --trace-steps 3; }
expect 1 'not finite' 'a run that fails by itself' diverges
check 'leaves its parts, too' "$look" --parts "$dir/bad.json.rank0.json" "$dir/bad.json.rank1.json"

# Two hosts with two ranks each; the clock of the second is 1000 seconds ahead of the first's, for real.
hosts() {
	local r host pids=() failed=0
	export GANNET_SECRET_FILE=$dir/secret
	(umask 077; head -c 32 /dev/urandom >"$GANNET_SECRET_FILE")
	for r in 0 1 2 3; do
		host=()
		((r < 2)) || host=(unshare --uts --time --monotonic 1000 --boottime 1000 --fork --kill-child sh -c
			'hostname other && exec "$@"' sh)
		RANK=$r WORLD_SIZE=4 LOCAL_RANK=$((r % 2)) MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -k 5 300 "${host[@]}" \
			"$gannet" train --data "$dir/train" --model lenet --batch 8 --threads 1 --loader-threads 1 --steps 10 --lr 0.01 \
			--transport tcp --trace "$dir/hosts.json" --prefetch 0 &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || failed=1; done
	return $failed
}
if unshare --uts --time --monotonic 1000 true 2>/dev/null; then
	port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
	check 'two hosts of two ranks, whose clocks differ by 1000 s' hosts
	check 'are on one clock, by what is known of it' "$look" "$dir/hosts.json" 4 1 10 1000000000
else
	skip 'hosts with clocks of their own' 'time namespaces need root and Linux 5.6'
fi
finish
