#!/bin/bash
# What ends a job although all of it is alive: a rank that never calls, calls that do not match, a link that is cut between two ranks
# which both still reach rank 0; a slow one that says so goes on. Then random faults.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
fault=$GN_BUILD/tests/transport/fault_probe
host=$(hostname)

# Who stalls is found after 3 s where PROBE_STALL_MS says so. Limits of 600 s are those that nobody may need.
export PROBE_SILENT_MS=600000 PROBE_STALL_MS=600000
# three NAME FAULT TRANSPORT RANK OPERATIONS [env's ARG...]: in the background; leaves err.NAME and code.NAME
three() {
	{
		env "${@:6}" timeout -k 5 300 "$gannet" launch -n 3 --grace 1 -- "$fault" "$3" 7 "$5" "$2" "$4" 20 >/dev/null 2>"$scratch/err.$1"
		echo $? >"$scratch/code.$1"
	} &
}
faulty() { three "${@:1:4}" 0 "${@:5}"; }
code_of() { # NAME
	until_true test -s "$scratch/code.$1"
	code=$(cat "$scratch/code.$1")
	cat "$scratch/err.$1"
}
said() { # NAME COUNT PATTERN: so many ranks say so
	(($(grep -cE "$3" "$scratch/err.$1") == $2))
}
# The others end by themselves and leave the one that hangs to the launcher. That one may be through with its own part of what
# the others still wait in.
never() { # NAME RANK
	code_of "$1"
	[[ $code == 4 ]] && grep -q "launch: terminating the remaining ranks" "$scratch/err.$1" &&
		said "$1" 2 "has stalled; rank $2 on $host (never started it|has completed it): it is alive, but in no collective, after operation number [0-9]+, for [0-9.]+ s; ranks? .* waits? in it, for [0-9.]+ s \(rank [0-9] for rank [0-9].*; rank [0-9] on $host was in operation number [0-9]+, .* waiting for rank"
}
faulty 0 never tcp 2 PROBE_STALL_MS=3000
faulty 1 never auto 1 PROBE_PROGRESS=thread PROBE_STALL_MS=3000
check "a rank that never calls, over tcp: the others say which, where, in what, since when" never 0 2
check "a rank that never calls, with progress by a thread" never 1 1
faulty 2 never auto 0 PROBE_STALL_MS=3000
# the limits that users get
faulty 3 never shm 1 -u PROBE_STALL_MS -u PROBE_SILENT_MS
check "rank 0 never calls" never 2 0
check "a rank that never calls, over shared memory" never 3 1
check "that is said after 5 s where no limit is given" said 3 2 "never started it|has completed it.* waits? in it, for ([5-9]|[1-9][0-9]+)\.[0-9] s"

# No limit of time is needed for these.
differs() { # NAME PATTERN
	code_of "$1"
	[[ $code == 2 || $code == 4 ]] && said "$1" 3 "the ranks disagree about operation number [0-9]+: rank 1 on $host started $2.*, ranks 0, 2 started "
}
n=4
for transport in tcp shm; do
	for what in size type order mixed; do faulty $((n++)) $what $transport 1; done
	check "one element less, over $transport: named by all ranks" differs $((n - 4)) "allreduce of [0-9]+ (B|KiB)"
	check "another type of the same size, over $transport" differs $((n - 3)) "allreduce of .* [fi]32, sum"
	check "another order, over $transport" differs $((n - 2)) "barrier"
	check "another algorithm, over $transport" differs $((n - 1)) "allreduce of .* halving-doubling"
done

# for longer than a collective may stand still; opens: as one that opens a GPU does on a cold node
away=(PROBE_STALL_MS=3000 PROBE_BUSY_MS=4500)
three 12 busy auto 1 40 "${away[@]}"
three 13 opens tcp 1 40 "${away[@]}"
three 14 opens shm 1 40 "${away[@]}"
waited() { # NAME
	code_of "$1"
	((code == 0))
}
check "a rank that has said that it is reading data is waited for" waited 12
check "a rank that starts slower than collectives may stand still is waited for, over tcp" waited 13
check "a rank that starts slower than collectives may stand still is waited for, over shm" waited 14

# --- three machines and a switch ---
cluster=gn$$
cut_off() {
	local n
	for n in 0 1 2 s; do ip netns del $cluster$n; done 2>/dev/null
}
machines() {
	local n
	ip netns add ${cluster}s && ip -n ${cluster}s link add sw type bridge && ip -n ${cluster}s link set sw up || return 1
	for n in 0 1 2; do
		ip netns add $cluster$n && ip -n $cluster$n link set lo up &&
			ip link add up$n netns ${cluster}s type veth peer name eth0 netns $cluster$n &&
			ip -n ${cluster}s link set up$n master sw up && ip -n $cluster$n addr add 10.99.7.1$n/24 dev eth0 &&
			ip -n $cluster$n link set eth0 up || return 1
	done
}
on_machine() { # N COMMAND...
	# shellcheck disable=SC2016
	ip netns exec "$cluster$1" unshare --uts sh -c 'hostname "m$0" && exec "$@"' "$@"
}
between() { # CUT VARIABLE=VALUE: what to run once all are ready. Leaves err.N and codes.
	local r pids=()
	rm -f "$scratch"/out.*
	for r in 2 1 0; do
		RANK=$r WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=10.99.7.10 MASTER_PORT=29555 \
			on_machine $r env "$2" timeout -k 5 300 "$fault" tcp 9 0 >"$scratch/out.$r" 2>"$scratch/err.$r" &
		pids[r]=$!
	done
	for r in 0 1 2; do await_line 1 '^ready' "$scratch/out.$r" || { kill "${pids[@]}"; cat "$scratch"/err.*; return 1; }; done
	"$1"
	codes=
	for r in 0 1 2; do wait "${pids[r]}"; codes+="$? "; done
	cat "$scratch"/err.[012]
	echo "codes $codes"
}
# Both ends drop what they have for each other.
one_link() { ip -n ${cluster}1 route add blackhole 10.99.7.12/32; ip -n ${cluster}2 route add blackhole 10.99.7.11/32; }
cut_link() {
	between one_link PROBE_STALL_MS=3000 && [[ $codes == "4 4 4 " ]] || return 1
	for r in 0 1 2; do
		grep -qE "operation number [0-9]+, .* has stalled; .*(rank 1 for rank 2|rank 2 for rank 1|; rank ([12]) on m[12] never started it: .*, waiting for rank [12];)" "$scratch/err.$r" ||
			return 1
	done
}
lose_machine() { ip -n ${cluster}s link set up2 down; }
cut_machine() {
	between lose_machine PROBE_SILENT_MS=3000 && [[ $codes == "4 4 4 " ]] &&
		grep -q "rank 2 on m2 is lost: no heartbeat from it for 3.0 s" "$scratch/err.0" &&
		grep -q "rank 2 on m2 is lost: no heartbeat from it for 3.0 s" "$scratch/err.1" &&
		grep -q "rank 0 on m0 is lost: no heartbeat from it for 3.0 s" "$scratch/err.2"
}
if ((UID)); then
	skip "a link that is cut" "namespaces need root"
elif ! machines 2>"$scratch/why"; then
	cut_off
	skip "a link that is cut" "no network namespaces here: $(tail -n 1 "$scratch/why")"
else
	check "a link cut between ranks 1 and 2, who both still reach rank 0: all three say who waits for whom" cut_link
	cut_off
	machines
	check "a machine cut off: the others name it, and it ends, too" cut_machine
	cut_off
fi

# Each kind once; random_faults.t has many of them.
faults() { timeout -k 5 300 "$GN_SOURCE/tests/transport/faults" --jobs 4 "$@"; }
check "random faults" faults --count 12
printf '%s\n' "${tap_output:-}" | grep '^#'
by_a_thread() { PROBE_PROGRESS=thread faults --count 6 --kinds kill,size,never,exit,stop,leave; }
check "random faults with progress by a thread" by_a_thread
printf '%s\n' "${tap_output:-}" | grep '^#'
# Rounds of UCX's keepalive that are more frequent than the limit for stalls must not pass for progress.
over_two_links() { UCX_KEEPALIVE_INTERVAL=1s faults --count 6 --rails --kinds cut,flap,kill,cut,flap,pause; }
if ((UID)) || ! ip netns add ${cluster}s 2>/dev/null; then
	skip "random faults over two links" "no network namespaces here"
else
	cut_off
	check "random faults over two links, the links' own among them" over_two_links
	printf '%s\n' "${tap_output:-}" | grep '^#'
fi
finish
