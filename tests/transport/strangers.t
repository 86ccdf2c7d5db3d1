#!/bin/bash
# Strangers at every port that ranks listen on, before and while they run: silent ones, garbage, half a handshake, false proofs,
# other secrets, a hundred at once. The job goes on and comes to the right results.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
# shellcheck disable=SC2034
unset UCX_TLS

stranger() { timeout 90 "$GN_SOURCE/tests/transport/stranger" "$@"; }
start() { # RANK SIZE PORT TRANSPORT [MODE]
	RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$3 timeout -k 5 90 "$probe" "${@:4}" \
		>"$scratch/out.$1" 2>"$scratch/err.$1" &
}
listening() { # PORT
	local end=$((SECONDS + 20)) hex
	hex=$(printf ':%04X' "$1")
	until grep -q "$hex .* 0A" /proc/net/tcp /proc/net/tcp6; do ((SECONDS < end)) || return 1; sleep 0.05; done
}

# A hundred of each kind hold the meeting point before the ranks come; all ranks meet, compute, and leave.
at_start() {
	local port pids=() watchers=() kind r code=0
	port=$(free_port)
	start 0 3 "$port" tcp; pids+=($!)
	listening "$port" || return 1
	for kind in silent garbage truncated forged; do
		stranger ":$port" "$kind" 100 >"$scratch/$kind" 2>&1 & watchers+=($!)
	done
	for kind in silent garbage truncated forged; do await_line 30 1 '^done' "$scratch/$kind" || return 1; done
	for r in 1 2; do start $r 3 "$port" tcp; pids+=($!); done
	for r in "${pids[@]}"; do wait "$r" || code=1; done
	kill "${watchers[@]}"
	cat "$scratch"/err.*
	[[ $code == 0 && $(cat "$scratch"/out.[0-2] | grep -c "of 3 on 1 nodes by environment: 0 wrong") == 3 ]] &&
		grep -q "refused a connection from 127.0.0.1 to the meeting point: .*; the job goes on" "$scratch/err.0" &&
		(($(grep -c "refused a connection" "$scratch/err.0") <= 8))
}
check "400 strangers at the meeting point: the ranks meet all the same" at_start

# While ranks compute, strangers come to every port of every rank: the watch, and UCX's own.
while_running() { # KIND
	local pid pids all
	# the last one's words would be taken for this one's until the shell in the background has opened them
	rm -f "$scratch/run.out" "$scratch/run.err" "$scratch/strange"
	timeout -k 5 100 "$gannet" launch -n 3 -- "$probe" tcp forever >"$scratch/run.out" 2>"$scratch/run.err" &
	pid=$!
	await_line 60 3 '^ready' "$scratch/run.out" || { kill -9 $pid; return 1; }
	all=$(awk '{ print $3 }' "$scratch/run.out" | paste -sd,)
	stranger "$all" "$1" 30 >"$scratch/strange" 2>&1 &
	await_line 40 1 '^done' "$scratch/strange" || { cat "$scratch/strange"; kill -9 $pid; return 1; }
	await_line 10 1 'refused a connection .* to the watch' "$scratch/run.err" || echo "nobody was refused"
	kill %%
	cat "$scratch/run.err" "$scratch/strange"
	# all of them are still there, and at work
	# shellcheck disable=SC2086
	kill -0 ${all//,/ } || return 1
	pids=$(pgrep -P $pid)
	kill -TERM "$pids"
	wait $pid
	(($(grep -c ': 30 answered' "$scratch/strange") >= 4)) && grep -q "refused a connection" "$scratch/run.err" &&
		! grep -qE "lost|Assertion|signal (6|7|8|11)" "$scratch/run.err"
}
for kind in silent garbage truncated forged; do
	check "strangers at every port of a running job: $kind" while_running $kind
done

# UCX 1.13 believes whoever begins as it does, and gives up the rank that it serves. The others have to say so, soon.
speaks_ucx() {
	local pid victim start
	# the last one's words would be taken for this one's until the shell in the background has opened them
	rm -f "$scratch/run.out" "$scratch/run.err" "$scratch/strange"
	timeout -k 5 100 "$gannet" launch -n 3 -- "$probe" tcp forever >"$scratch/run.out" 2>"$scratch/run.err" &
	pid=$!
	await_line 60 3 '^ready' "$scratch/run.out" || { kill -9 $pid; return 1; }
	victim=$(awk '$2 == 1 { print $3 }' "$scratch/run.out")
	start=$SECONDS
	stranger "$victim" ucx 5 >"$scratch/strange" 2>&1 &
	await_line 40 1 '^done' "$scratch/strange" || { kill -9 $pid; return 1; }
	kill %%
	if kill -0 "$victim" 2>/dev/null; then
		# this UCX is wiser
		kill -TERM "$(pgrep -P $pid)"
		wait $pid
		return 0
	fi
	wait $pid
	[[ $? == 4 ]] && ((SECONDS - start < 20)) && grep -v '^\[\|^=\|^ *[0-9]* *[/(]' "$scratch/run.err" &&
		[[ $(grep -c "rank 1 on .* is lost" "$scratch/run.err") == 2 ]]
}
check "a stranger who speaks UCX's protocol: the job ends and says which rank is lost" speaks_ucx

# Ranks of another job, or with a file of their own.
other_secret() {
	local port a b
	(umask 077 && head -c 32 /dev/urandom >"$scratch/other")
	port=$(free_port)
	PROBE_TIMEOUT_MS=3000 start 0 2 "$port" tcp; a=$!
	listening "$port" || return 1
	GANNET_SECRET_FILE=$scratch/other start 1 2 "$port" tcp; b=$!
	wait $b
	[[ $? == 2 ]] || return 1
	wait $a
	[[ $? == 4 ]] || return 1
	cat "$scratch"/err.[01]
	grep -q "refuses this rank: .*GANNET_SECRET_FILE" "$scratch/err.1" &&
		grep -q "refused a connection from 127.0.0.1 to the meeting point: it does not know this job's secret" "$scratch/err.0"
}
check "a rank with another secret is refused and told" other_secret
readable() {
	cp "$scratch/secret" "$scratch/open" && chmod 644 "$scratch/open"
	GANNET_SECRET_FILE=$scratch/open RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) timeout 60 "$probe" tcp
}
expect 2 "open has mode 0644, so others may know it" "a secret that others can read is none" readable

# Without a file: one in the home directory, made by whoever comes first.
by_home() {
	local port r pids=()
	mkdir "$scratch/home"
	port=$(free_port)
	for r in 0 1 2; do
		GANNET_SECRET_FILE='' HOME=$scratch/home start $r 3 "$port" tcp
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || { cat "$scratch"/err.*; return 1; }; done
	[[ $(stat -c %a "$scratch/home/.gannet-secret") == 600 && $(ls -A "$scratch/home") == .gannet-secret ]] &&
		grep -q "GANNET_SECRET_FILE is not set" "$scratch/err.0" && ! grep -q "GANNET_SECRET_FILE" "$scratch/err.1"
}
check "without GANNET_SECRET_FILE a file in the home directory serves" by_home
# The secret is in no environment, no argument and no log.
hidden() {
	local secret
	secret=$(od -An -tx1 "$scratch/secret" | tr -d ' \n')
	# shellcheck disable=SC2016
	launch 2 sh -c 'tr "\0" "\n" </proc/self/environ; od -An -v -tx1 "$GANNET_SECRET_FILE" | tr -d " \n"; stat -c %a "$GANNET_SECRET_FILE"' \
		>"$scratch/seen"
	[[ $(grep -c '^GANNET_SECRET_FILE=/' "$scratch/seen") == 2 && $(grep -c '600$' "$scratch/seen") == 2 ]] &&
		! grep -q "$secret" "$scratch/seen" && ! grep -rqF "$secret" "$scratch"/err.* "$scratch"/out.*
}
check "launch gives its ranks a file of their own, not the secret" hidden
finish
