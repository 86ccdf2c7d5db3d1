#!/bin/bash
# How long ranks wait for each other is the user's to say, by options, variables and the site's file; rank 0's word counts for all.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
fault=$GN_BUILD/tests/transport/fault_probe
export GANNET_CONF=
unset GANNET_JOIN_TIMEOUT GANNET_HEARTBEAT_TIMEOUT GANNET_STALL_TIMEOUT

# come RANK SIZE PORT [VARIABLE=VALUE]...: in the background; leaves pid[RANK]
come() {
	env RANK="$1" WORLD_SIZE="$2" LOCAL_RANK="$1" MASTER_ADDR=127.0.0.1 MASTER_PORT="$3" "${@:4}" "$fault" shm 1 0 \
		>"$scratch/out.$1" 2>"$scratch/err.$1" &
	pid[$1]=$!
}
# ends RANK PATTERN: with code 4, saying so. Limits of 600 s, more than is waited here, end nobody.
ends() {
	local code
	if ! timeout $tap_limit tail --pid="${pid[$1]}" -s 0.05 -f /dev/null; then
		echo "rank $1 is still there"
		return 1
	fi
	wait "${pid[$1]}"
	code=$?
	cat "$scratch/err.$1"
	[[ $code == 4 ]] && grep -qE "$2" "$scratch/err.$1"
}
let_go() {
	kill -9 "${pid[@]}" 2>/dev/null
	wait "${pid[@]}" 2>/dev/null
}
# hurt SIGNAL RANK OTHER PATTERN VARIABLE-OF-RANK-0 VARIABLE-OF-RANK-1
hurt() {
	local pid=() port code=0
	port=$(free_port)
	come 0 2 "$port" "$5"
	come 1 2 "$port" "$6"
	await_line 1 ^ready "$scratch/out.0" && await_line 1 ^ready "$scratch/out.1" || code=1
	kill "-$1" "${pid[$2]}"
	ends "$3" "$4" || code=1
	let_go
	return $code
}
# Both wait for silence, and do so beside each other.
(
	mkdir "$scratch/one" && scratch=$scratch/one
	hurt STOP 1 0 "rank 1 .*is lost: no heartbeat from it for 2.5 s" GANNET_HEARTBEAT_TIMEOUT=2.5 GANNET_HEARTBEAT_TIMEOUT=2.5 >"$scratch/out" 2>&1
	echo $? >"$scratch/code"
) &
check "rank 0's GANNET_HEARTBEAT_TIMEOUT counts for rank 1, which was told another" hurt STOP 0 1 \
	"rank 0 .*is lost: no heartbeat from it for 2.5 s" GANNET_HEARTBEAT_TIMEOUT=2.5 GANNET_HEARTBEAT_TIMEOUT=600
outcome() {
	until_true test -s "$scratch/one/code"
	cat "$scratch/one/out"
	return "$(cat "$scratch/one/code")"
}
check "GANNET_HEARTBEAT_TIMEOUT: 2.5 s" outcome
check "and rank 1 has warned of it" grep "WARN.* rank 1 is configured with limits of 60.12 s to join, 600 s without a heartbeat and 600 s in a stall; rank 0's apply to all ranks: 60.12, 2.5 and 5 s" \
	"$scratch/err.1"
check "a connection that closes is a loss at once, however long heartbeats are awaited" hurt KILL 1 0 \
	"rank 1 .*is lost: its connection closed unexpectedly" GANNET_HEARTBEAT_TIMEOUT=600 GANNET_HEARTBEAT_TIMEOUT=600

stalls() {
	GANNET_STALL_TIMEOUT=2 GANNET_HEARTBEAT_TIMEOUT=600 timeout -k 5 300 "$gannet" launch -n 3 --grace 1 -- "$fault" tcp 7 0 never 2 20
	(($? == 4))
}
check "GANNET_STALL_TIMEOUT: 2 s, where heartbeats may be missing for 600" stalls
check "and that is said" grep -qE 'has stalled; .* for ([2-9]|[1-9][0-9]+)\.[0-9] s' <<<"$tap_output"
alone() { # VARIABLE...: rank 0 of 2 waits for rank 1
	env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$(free_port)" "$@"
}
expect 4 'rank 1 is lost: it did not join within [0-9]+[.][0-9] s' "GANNET_JOIN_TIMEOUT: 1 s" alone GANNET_JOIN_TIMEOUT=1 timeout -k 5 300 "$fault" shm 1 1
bench=("$gannet" bench allreduce --min-bytes 8 --max-bytes 8)
expect 4 'rank 1 is lost: it did not join within [0-9]+[.][0-9] s' "--join-timeout goes before it" alone GANNET_JOIN_TIMEOUT=1000 timeout -k 5 300 \
	"${bench[@]}" --join-timeout 1

expect 0 'limits: 60.12 s to join, 5 s without a heartbeat, 5 s in a stall' "the line at start names the defaults" launch 2 "${bench[@]}"
expect 0 'limits: 120 s to join, 30 s without a heartbeat, 20 s in a stall' "and what options say" launch 2 "${bench[@]}" \
	--join-timeout 120 --heartbeat-timeout 30 --stall-timeout 20
expect 2 "GANNET_HEARTBEAT_TIMEOUT: '5m' is not a number of seconds from 1 to 86400" "a variable that is no number" \
	env GANNET_HEARTBEAT_TIMEOUT=5m "${bench[@]}"
expect 2 'stall-timeout' "an option out of bounds" "${bench[@]}" --stall-timeout 0
for command in train eval bench tune; do
	expect 0 '^ *--heartbeat-timeout S .*GANNET_HEARTBEAT_TIMEOUT' "gannet $command --help names them" env COLUMNS=1000 "$gannet" $command --help
	expect 0 '^ *--socket-ifname LIST .*GANNET_SOCKET_IFNAME' "and the interfaces" env COLUMNS=1000 "$gannet" $command --help
done

# Where MASTER_ADDR is no loopback address the ranks may be anywhere, so rank 0 listens for heartbeats on the network.
two() { # what is set for rank 0, and for rank 1
	local port code
	port=$(free_port)
	env RANK=1 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT="$port" "$2" timeout -k 5 300 "${bench[@]}" 2>"$scratch/err.1" &
	env RANK=0 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT="$port" "$1" timeout -k 5 300 "${bench[@]}"
	code=$?
	wait
	return $code
}
expect 0 'heartbeats to 127.0.0.1 port [0-9]+$' "GANNET_SOCKET_IFNAME: one interface" two GANNET_SOCKET_IFNAME==lo GANNET_LOG=warn
expect 0 'heartbeats to 127.0.0.1 port [0-9]+$' "by its prefix, and rank 1 has no say" two GANNET_SOCKET_IFNAME=l GANNET_SOCKET_IFNAME=eth77
none() { env RANK=0 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT="$(free_port)" timeout -k 5 300 "${bench[@]}" "$@"; }
expect 2 "GANNET_SOCKET_IFNAME, --socket-ifname: no interface of .* matches '=eth77'; there are: .*lo \(127.0.0.1\)" "none of that name is an error, and lists them" none --socket-ifname =eth77
expect 0 'heartbeats to 127.0.0.1 port' "on one machine it is loopback, whatever the list says" launch 2 "${bench[@]}" --socket-ifname =eth77
printf '%s\n' 'join_timeout = 90' 'heartbeat_timeout = 8' 'stall_timeout = a.minute' 'socket_ifname = =ib0' >"$scratch/conf"
chmod 644 "$scratch/conf"
expect 0 'limits: 90 s to join, 8 s without a heartbeat, 8 s in a stall' "the site's configuration" \
	env GANNET_CONF="$scratch/conf" timeout -k 5 300 "$gannet" launch -n 2 -- "${bench[@]}"
expect 0 'limits: 90 s to join, 7 s without' "is of lower rank than a variable" \
	env GANNET_CONF="$scratch/conf" GANNET_HEARTBEAT_TIMEOUT=7 timeout -k 5 300 "$gannet" launch -n 2 -- "${bench[@]}"
expect 0 "conf:3: stall_timeout: 'a.minute' is not a number of seconds" "and warns of what is no number" env GANNET_CONF="$scratch/conf" "$gannet" --version
expect 0 '^timeouts  *join 90 s, heartbeat 8 s$' "gannet --version shows them" env GANNET_CONF="$scratch/conf" "$gannet" --version
expect 0 '^heartbeats  *=ib0$' "and the interfaces of heartbeats" env GANNET_CONF="$scratch/conf" "$gannet" --version
finish
