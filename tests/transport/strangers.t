#!/bin/bash
# Strangers at every port that ranks listen on, before and while they run: silent ones, garbage, half a handshake, false proofs,
# other secrets, a hundred at once. The job goes on and comes to the right results.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
# shellcheck disable=SC2034
unset UCX_TLS

stranger() { timeout -k 5 300 "$GN_SOURCE/tests/transport/stranger" "$@"; }
start() { # RANK SIZE PORT TRANSPORT [MODE]
	RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$3 timeout -k 5 300 "$probe" "${@:4}" \
		>"$scratch/out.$1" 2>"$scratch/err.$1" &
}
listening() { # PORT
	until_true grep -q "$(printf ':%04X' "$1") .* 0A" /proc/net/tcp /proc/net/tcp6
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
	for kind in silent garbage truncated forged; do await_line 1 '^done' "$scratch/$kind" || return 1; done
	for r in 1 2; do start $r 3 "$port" tcp; pids+=($!); done
	for r in "${pids[@]}"; do wait "$r" || code=1; done
	kill "${watchers[@]}"
	cat "$scratch"/err.*
	[[ $code == 0 && $(cat "$scratch"/out.[0-2] | grep -c "of 3 on 1 nodes by environment: 0 wrong") == 3 ]] &&
		grep -q "refused a connection from 127.0.0.1 to the rendezvous, port [0-9]*: .*; the job goes on" "$scratch/err.0" &&
		(($(grep -c "refused a connection" "$scratch/err.0") <= 8))
}
check "400 strangers at the meeting point: the ranks meet all the same" at_start

# While ranks compute, strangers come to every port of every rank: the watch, and UCX's own.
while_running() { # KIND
	local pid pids all
	# the last one's words would be taken for this one's until the shell in the background has opened them
	rm -f "$scratch/run.out" "$scratch/run.err" "$scratch/strange"
	timeout -k 5 300 "$gannet" launch -n 3 -- "$probe" tcp forever >"$scratch/run.out" 2>"$scratch/run.err" &
	pid=$!
	await_line 3 '^ready' "$scratch/run.out" || { kill -9 $pid; return 1; }
	all=$(awk '{ print $3 }' "$scratch/run.out" | paste -sd,)
	stranger "$all" "$1" 30 >"$scratch/strange" 2>&1 &
	await_line 1 '^done' "$scratch/strange" || { cat "$scratch/strange"; kill -9 $pid; return 1; }
	await_line 1 'refused a connection .* to the heartbeat, port [1-9]' "$scratch/run.err" || echo "nobody was refused"
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

# Ranks of one node that share memory have no use for a network: neither UCX nor, but for rank 0's watch, which knows whom it lets
# in, anything else of theirs listens, and not on an address of a network. Whoever is at the ports that there are does no harm.
one_node() { # HOW
	local pid r pids
	rm -f "$scratch/run.out" "$scratch/run.err" "$scratch/strange"
	if [[ $1 == launch ]]; then
		timeout -k 5 300 "$gannet" launch -n 3 -- "$probe" auto forever >"$scratch/run.out" 2>"$scratch/run.err" &
	else
		# shellcheck disable=SC2016 # for the shell in there
		timeout -k 5 300 env WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT="$(free_port)" bash -c '
			for r in 0 1 2; do RANK=$r LOCAL_RANK=$r "$0" auto forever & done; wait' "$probe" >"$scratch/run.out" 2>"$scratch/run.err" &
	fi
	pid=$!
	await_line 3 '^ready' "$scratch/run.out" || { kill -9 $pid; return 1; }
	# shellcheck disable=SC2046
	set -- $(sort -k2n "$scratch/run.out" | awk '/^ready/ { print $3 }')
	stranger "$(IFS=,; echo "$*")" ucx 5 >"$scratch/strange" 2>&1 &
	await_line 1 '^done' "$scratch/strange" || { kill -9 $pid; return 1; }
	kill %%
	private "$@" || { kill -9 "$@"; return 1; }
	kill -0 "$@" || return 1
	for r; do ss -ltnpH | grep "pid=$r,"; done >"$scratch/listen"
	cat "$scratch/listen" "$scratch/run.err"
	pids=$(pgrep -P $pid)
	# shellcheck disable=SC2086
	kill -TERM "$@" $pids
	wait $pid
	# one line a port; rank 0 alone has one, and it is loopback's
	[[ $(grep -c ': 5 answered' "$scratch/strange") == 1 && $(wc -l <"$scratch/listen") == 1 ]] &&
		grep -q "127.0.0.1:[0-9]* .*pid=$1," "$scratch/listen"
}
# Nothing that the ranks share can be attached or opened by another user, be it one of the same group.
private() { # PID...
	local pid seen=0 other file
	other=(setpriv --reuid 65534 --regid "$(id -g)" --clear-groups)
	# shellcheck disable=SC2016 # for perl
	for pid; do
		if ipcs -mp | awk -v p="$pid" '$3 == p' | grep .; then echo "SysV memory of $pid"; return 1; fi
		while read -r file; do
			seen=$((seen + 1))
			[[ $(stat -Lc %a "$file") == 600 ]] || { echo "$file has mode $(stat -Lc %a "$file")"; return 1; }
			((UID)) || ! "${other[@]}" perl -e 'open my $f, "<", shift or exit 1' "$file" || { echo "opened $file"; return 1; }
		done < <(find "/proc/$pid/fd" \( -lname '/memfd:*' -o -lname '/dev/shm/*' -o -lname '/SYSV*' \) 2>/dev/null)
	done
	((seen >= $#)) || { echo "no shared memory was found"; return 1; }
}
# Two hosts, for which two names will do: UCX listens on one address, of the network that carries the messages, not on all.
two_nodes() {
	local port r pids=() address
	rm -f "$scratch"/out.*
	port=$(free_port)
	# shellcheck disable=SC2016 # for the shell in there
	for r in 0 1; do
		RANK=$r WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -k 5 300 unshare --uts --kill-child --fork \
			sh -c 'hostname "$0"; exec "$@"' "n$r" "$probe" auto forever >"$scratch/out.$r" 2>"$scratch/err.$r" &
		pids+=($!)
	done
	await_line 1 '^ready' "$scratch/out.0" && await_line 1 '^ready' "$scratch/out.1" || return 1
	for r in 0 1; do ss -ltnpH | grep "pid=$(awk '{ print $3 }' "$scratch/out.$r"),"; done | awk '{ print $4 }' | tee "$scratch/listen"
	kill "${pids[@]}"
	wait "${pids[@]}"
	address=$(grep -v '^127\.' "$scratch/listen" | sed 's/:[0-9]*$//' | sort -u)
	# of each rank one, and rank 0's watch
	[[ $(wc -l <"$scratch/listen") == 3 && $(grep -c '^127' "$scratch/listen") == 1 ]] &&
		ip -o addr show up scope global | grep -F " $address/"
}
if command -v ss >/dev/null; then
	if ((UID == 0)) && [[ ! -d /sys/class/infiniband && $(ip -o addr show up scope global) ]]; then
		check "between nodes UCX listens on the network that it uses alone" two_nodes
	else
		skip "what UCX listens on between nodes" "it takes root, a network and no RDMA"
	fi
	check "one node's ranks listen on no network, and share with nobody else" one_node launch
	check "nor do those that meet over MASTER_ADDR" one_node environment
else
	skip "what one node's ranks listen on" "ss (iproute2) is not installed"
fi

# UCX 1.13 believes whoever begins as it does, and gives up the rank that it serves. The others have to say so, of their own, as
# the rank's connections close.
speaks_ucx() {
	local pid victim
	# the last one's words would be taken for this one's until the shell in the background has opened them
	rm -f "$scratch/run.out" "$scratch/run.err" "$scratch/strange"
	timeout -k 5 300 "$gannet" launch -n 3 --grace 250 -- "$probe" tcp forever >"$scratch/run.out" 2>"$scratch/run.err" &
	pid=$!
	await_line 3 '^ready' "$scratch/run.out" || { kill -9 $pid; return 1; }
	victim=$(awk '$2 == 1 { print $3 }' "$scratch/run.out")
	stranger "$victim" ucx 5 >"$scratch/strange" 2>&1 &
	await_line 1 '^done' "$scratch/strange" || { kill -9 $pid; return 1; }
	kill %%
	if kill -0 "$victim" 2>/dev/null; then
		# this UCX is wiser
		kill -TERM "$(pgrep -P $pid)"
		wait $pid
		return 0
	fi
	wait $pid
	[[ $? == 4 ]] && ! grep "terminating the remaining" "$scratch/run.err" && grep -v '^\[\|^=\|^ *[0-9]* *[/(]' "$scratch/run.err" &&
		[[ $(grep -c "rank 1 on .* is lost: its connection closed unexpectedly" "$scratch/run.err") == 2 ]]
}
check "a stranger who speaks UCX's protocol: the job ends and says which rank is lost" speaks_ucx

# Ranks of another job, or with a file of their own: the job waits for who belongs to it.
other_secret() {
	local port a b
	(umask 077 && head -c 32 /dev/urandom >"$scratch/other")
	port=$(free_port)
	start 0 2 "$port" tcp; a=$!
	listening "$port" || return 1
	PROBE_TIMEOUT_MS=3000 GANNET_SECRET_FILE=$scratch/other start 1 2 "$port" tcp; b=$!
	wait $b
	[[ $? == 2 ]] || return 1
	cat "$scratch"/err.[01]
	grep -q "WARN.* refuses this rank: .*; retrying" "$scratch/err.1" &&
		grep -q "rank 0 at .* refuses this rank: .*GANNET_SECRET_FILE" "$scratch/err.1" &&
		grep -q "refused a connection from 127.0.0.1 to the rendezvous, port [0-9]*: it does not know this job's secret" "$scratch/err.0" || return 1
	start 1 2 "$port" tcp; b=$!
	wait $b && wait $a
}
check "a rank with another secret is refused and told, and the one that belongs there still joins" other_secret
readable() {
	cp "$scratch/secret" "$scratch/open" && chmod 644 "$scratch/open"
	GANNET_SECRET_FILE=$scratch/open RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) timeout -k 5 300 "$probe" tcp
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

# The port of launch's PMIx, which some of these bytes crash, and others make print a line each time: those of other users do not reach it.
pmix_port() {
	local pid code
	mkfifo "$scratch/goes"
	# shellcheck disable=SC2016
	timeout -k 5 300 "$gannet" launch -n 2 -- sh -c 'env | sed -n "s|^PMIX_SERVER_URI.*tcp4://127.0.0.1:\([0-9]*\).*|port \1|p" && read -r line <"$0"' \
		"$scratch/goes" >"$scratch/launch.out" 2>"$scratch/launch.err" &
	pid=$!
	await_line 2 '^port [0-9]' "$scratch/launch.out" || { cat "$scratch/launch.out" "$scratch/launch.err"; kill $pid; return 1; }
	# shellcheck disable=SC2016 # for perl
	timeout -k 5 300 setpriv --reuid 65534 --clear-groups perl -MIO::Socket::INET -e '
		for my $turn (1 .. 60) {
			my $s = IO::Socket::INET->new("127.0.0.1:$ARGV[0]") or die "turn $turn: $!\n";
			$s->send($turn % 3 == 0 ? "\xff" x 64 : $turn % 3 == 1 ? "\0" x 100 : pack("lLQ", -1, 0, 40) . "native\0" . "\0" x 33, 0);
			next if $turn > 30; # gone before anybody looks
			my $answer;
			vec(my $ready = "", fileno $s, 1) = 1;
			select $ready, undef, undef, 5 and sysread $s, $answer, 10;
		}' "$(awk '/^port/ { print $2; exit }' "$scratch/launch.out")" 2>&1
	code=$?
	printf 'go\ngo\n' >"$scratch/goes"
	wait $pid || code=1
	cat "$scratch/launch.err"
	[[ $code == 0 ]] && ! grep -q 'PMIX ERROR' "$scratch/launch.err" &&
		[[ $(grep -c "launch: warning: refused a connection to PMIx's port [0-9]* from a process .*; the job goes on" "$scratch/launch.err") == 1 ]]
}
if ((UID)) || ! command -v setpriv >/dev/null; then
	skip "another user's bytes at the port of launch's PMIx" "it takes root and setpriv"
else
	check "another user's bytes at the port of launch's PMIx" pmix_port
fi
finish
