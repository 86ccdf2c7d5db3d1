#!/bin/bash
# Ranks that have come and then break while others are still missing: who is there knows by the closed connection or by the
# silence, and not only when the time to start is over, which is longer here than anybody waits.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
fault=$GN_BUILD/tests/transport/fault_probe
export PROBE_TIMEOUT_MS=600000

# come RANK SIZE PORT: in the background; leaves pid[RANK]
come() {
	RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$3 "$fault" shm 1 0 2>"$scratch/err.$1" >/dev/null &
	pid[$1]=$!
}
# Whoever has joined has a watch of its own.
is_watched() { # PID
	until_true has_thread "$1" gannet-heartbt || { echo "process $1 did not join"; return 1; }
}
has_thread() { cat /proc/"$1"/task/*/comm 2>/dev/null | grep -qx "$2"; }
# ends RANK PATTERN: with code 4, saying so
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

# broken SILENT_MS SIGNAL RANK PATTERN: ranks 0, 1 and 2 of 4 are there; that one gets the signal, the others say so
broken() {
	local pid=() port r code=0
	export PROBE_SILENT_MS=$1
	shift
	port=$(free_port)
	for r in 0 1 2; do come $r 4 "$port"; done
	for r in 0 1 2; do is_watched "${pid[r]}" || code=1; done
	kill "-$1" "${pid[$2]}"
	for r in 0 1 2; do
		((r == $2)) || ends $r "$3" || code=1
	done
	let_go
	return $code
}
# Rank 3 stays away until the fault is there; so it is with whatever starts ranks through PMIx.
late() { # COUNT LAUNCHER...: so many say that rank 1, which is stopped, is lost
	local launcher r p=() code=0
	export PROBE_SILENT_MS=2500
	rm -f "$scratch"/pid.*
	# shellcheck disable=SC2016
	"${@:2}" sh -c 'if [ "$PMIX_RANK" = 3 ]; then sleep 300; fi; echo $$ >"$1.$PMIX_RANK"; exec "$0" shm 1 0' \
		"$fault" "$scratch/pid" >"$scratch/out" 2>"$scratch/err" &
	launcher=$!
	for r in 0 1 2; do
		until_true test -s "$scratch/pid.$r"
		p[r]=$(cat "$scratch/pid.$r")
		is_watched "${p[r]}" || code=1
	done
	kill -STOP "${p[1]}"
	await_line "$1" "rank 1 is lost: no heartbeat from it for 2.5 s" "$scratch/err" || code=1
	cat "$scratch/err"
	kill -9 "${p[@]}" 2>/dev/null
	kill $launcher 2>/dev/null
	wait $launcher
	return $code
}
# Most of these wait for a time to pass, and do so beside each other.
# beside NAME COMMAND...: in a folder of its own; leaves out.NAME and code.NAME
beside() {
	(
		mkdir "$scratch/$1" && scratch=$scratch/$1
		"${@:2}" >"$scratch/../out.$1" 2>&1
		echo $? >"$scratch/../code.$1"
	) &
}
outcome() { # NAME
	until_true test -s "$scratch/code.$1"
	cat "$scratch/out.$1"
	return "$(cat "$scratch/code.$1")"
}
# Who has waited for half of the time to start goes on without a watch until all are there.
# shellcheck disable=SC2016
PROBE_TIMEOUT_MS=12000 beside zero timeout -k 5 300 "$gannet" launch -n 3 -- \
	sh -c 'if [ "$PMIX_RANK" = 0 ]; then sleep 6.5; fi; exec "$0" shm 1 20' "$fault"
beside stopped broken 2500 STOP 2 "rank 2 is lost: no heartbeat from it for 2.5 s \(connected from [0-9a-f.:]+\)"
beside zero-stopped broken 2500 STOP 0 "rank 0 is lost: no heartbeat from it for 2.5 s"
check "killed while another is missing" broken 600000 KILL 1 "rank 1 is lost: its connection closed unexpectedly"
check "rank 0 killed while another is missing" broken 600000 KILL 0 "rank 0 is lost: its connection closed"
beside launched late 2 timeout -k 5 300 "$gannet" launch -n 4 --grace 1 --
# it ends the others as soon as one has said so
command -v mpirun >/dev/null && beside mpirun late 1 timeout -k 5 300 mpirun --oversubscribe --allow-run-as-root -n 4
check "stopped while another is missing" outcome stopped
check "rank 0 stopped while another is missing" outcome zero-stopped
# shellcheck disable=SC2016
PROBE_TIMEOUT_MS=3000 beside missing timeout -k 5 300 "$gannet" launch -n 5 --grace 1 -- \
	sh -c 'if [ "$PMIX_RANK" -gt 2 ]; then sleep 300; fi; exec "$0" shm 1 0' "$fault"
check "under gannet launch: stopped while another is missing" outcome launched
if command -v mpirun >/dev/null; then
	check "under mpirun: stopped while another is missing" outcome mpirun
else
	skip "under mpirun" "Open MPI (openmpi-bin) is not installed"
fi
check "rank 0 comes last, and late" outcome zero
expect 4 "rank 3 is lost: it did not join within [0-9]+.[0-9] s; neither did 4: are all 5 ranks started" "ranks that do not come are named under PMIx, too" \
	outcome missing
finish
