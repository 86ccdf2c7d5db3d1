#!/bin/bash
# What ends a job although all of it is alive, with the limits that users get: a rank that never calls, calls that do not match,
# a link that is cut between two ranks which both still reach rank 0; a slow one that says so goes on. Then random faults.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
fault=$GN_BUILD/tests/transport/fault_probe
host=$(hostname)

# faulty SIZE TRANSPORT FAULT RANK: under launch; took: seconds. Ends those that are left 3 s after the others.
faulty() {
	local pid end
	rm -f "$scratch/out"
	timeout -k 5 300 "$gannet" launch -n "$1" --grace 4 -- "$fault" "$2" 7 60000 "$3" "$4" 300 >"$scratch/out" 2>"$scratch/err" &
	pid=$!
	await_line "$1" '^ready' "$scratch/out" || { kill -9 $pid; cat "$scratch/err"; return 1; }
	end=$SECONDS
	wait $pid
	code=$?
	took=$((SECONDS - end))
	cat "$scratch/err"
}
said() { # COUNT PATTERN: so many ranks say so
	(($(grep -cE "$2" "$scratch/err") == $1))
}
# Five seconds to notice, and the launcher's four until it ends the one that hangs. That one may be through with its own part of
# what the others still wait in.
never() { # TRANSPORT RANK
	faulty 3 "$1" never "$2" && [[ $code == 4 ]] && ((took <= 14)) && grep -q "launch: terminating the remaining ranks" "$scratch/err" &&
		said 2 "has stalled; rank $2 on $host (never started it|has completed it): it is alive, but in no collective, after operation number [0-9]+, for 5\.[0-9] s; ranks? .* waits? in it, for 5\.[0-9] s \(rank [0-9] for rank [0-9].*; rank [0-9] on $host was in operation number [0-9]+, .* waiting for rank"
}
check "a rank that never calls, over tcp: the others say which, where, in what, since when" never tcp 2
# Each takes ten seconds: under sanitizers two of them will do.
[[ ${GN_SANITIZED:-} ]] || check "a rank that never calls, over shared memory" never shm 1
export PROBE_PROGRESS=thread
check "a rank that never calls, with progress by a thread" never auto 1
unset PROBE_PROGRESS
[[ ${GN_SANITIZED:-} ]] || check "rank 0 never calls" never auto 0

differs() { # FAULT TRANSPORT PATTERN
	faulty 3 "$2" "$1" 1 && [[ $code == 2 || $code == 4 ]] && ((took <= 12)) &&
		said 3 "the ranks disagree about operation number [0-9]+: rank 1 on $host started $3.*, ranks 0, 2 started "
}
for transport in tcp shm; do
	check "one element less, over $transport: named by all ranks" differs size $transport "allreduce of [0-9]+ (B|KiB)"
	check "another type of the same size, over $transport" differs type $transport "allreduce of .* [fi]32, sum"
	check "another order, over $transport" differs order $transport "barrier"
	check "another algorithm, over $transport" differs mixed $transport "allreduce of .* halving-doubling"
done
busy() {
	PROBE_BUSY_MS=7000 timeout -k 5 300 "$gannet" launch -n 3 -- "$fault" auto 7 3000 busy 1 300
}
check "a rank that has said that it is reading data for 7 s is waited for" busy
# As one that opens a GPU does, on a cold node for longer than a collective may stand still.
opens() { # TRANSPORT
	PROBE_STALL_MS=600 PROBE_BUSY_MS=2500 timeout -k 5 300 "$gannet" launch -n 3 -- "$fault" "$1" 7 300 opens 1 0
}
for transport in tcp shm; do
	check "a rank that starts slower than collectives may stand still is waited for, over $transport" opens $transport
done

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
between() { # CUT: what to run once all are ready. Leaves err.N, codes, and took: ms until the last rank has said what it has
	# to say. How long a process takes to end, on a busy machine and under sanitizers, is another matter.
	local r pids=() start last
	rm -f "$scratch"/out.*
	for r in 2 1 0; do
		RANK=$r WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=10.99.7.10 MASTER_PORT=29555 \
			on_machine $r timeout -k 5 300 "$fault" tcp 9 60000 >"$scratch/out.$r" 2>"$scratch/err.$r" &
		pids[r]=$!
	done
	for r in 0 1 2; do await_line 1 '^ready' "$scratch/out.$r" || { kill "${pids[@]}"; cat "$scratch"/err.*; return 1; }; done
	"$1"
	start=$(date +%s%3N)
	codes=
	for r in 0 1 2; do wait "${pids[r]}"; codes+="$? "; done
	last=$(stat -c %.3Y "$scratch"/err.[012] | tr -dc '0-9\n' | sort -n | tail -n 1)
	took=$((last - start))
	cat "$scratch"/err.*
	echo "codes $codes, said after $took ms"
}
# Both ends drop what they have for each other.
one_link() { ip -n ${cluster}1 route add blackhole 10.99.7.12/32; ip -n ${cluster}2 route add blackhole 10.99.7.11/32; }
cut_link() {
	between one_link && [[ $codes == "4 4 4 " ]] && ((took <= 8000)) || return 1
	for r in 0 1 2; do
		grep -qE "operation number [0-9]+, .* has stalled; .*(rank 1 for rank 2|rank 2 for rank 1|; rank ([12]) on m[12] never started it: .*, waiting for rank [12];)" "$scratch/err.$r" ||
			return 1
	done
}
lose_machine() { ip -n ${cluster}s link set up2 down; }
cut_machine() {
	between lose_machine && [[ $codes == "4 4 4 " ]] && ((took <= 8000)) &&
		grep -q "rank 2 on m2 is lost: no heartbeat from it for 5.0 s" "$scratch/err.0" &&
		grep -q "rank 2 on m2 is lost: no heartbeat from it for 5.0 s" "$scratch/err.1" &&
		grep -q "rank 0 on m0 is lost: no heartbeat from it for 5.0 s" "$scratch/err.2"
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

# More of them: see the file's head.
few=${GN_SANITIZED:+yes}
check "random faults" timeout -k 5 300 "$GN_SOURCE/tests/transport/faults" --count "$((${#few} ? 15 : 40))" --jobs 4
printf '%s\n' "${tap_output:-}" | grep '^#'
check "random faults with progress by a thread" env PROBE_PROGRESS=thread timeout -k 5 300 \
	"$GN_SOURCE/tests/transport/faults" --count "$((${#few} ? 9 : 24))" --jobs 4
printf '%s\n' "${tap_output:-}" | grep '^#'
# Rounds of UCX's keepalive that are more frequent than the limit for stalls must not pass for progress.
over_two_links() {
	UCX_KEEPALIVE_INTERVAL=1s timeout -k 5 300 "$GN_SOURCE/tests/transport/faults" --rails --count "$((${#few} ? 6 : 12))" --jobs 4 \
		--kinds cut,flap,kill,cut,flap,pause
}
if ((UID)) || ! ip netns add ${cluster}s 2>/dev/null; then
	skip "random faults over two links" "no network namespaces here"
else
	cut_off
	check "random faults over two links, the links' own among them" over_two_links
	printf '%s\n' "${tap_output:-}" | grep '^#'
fi
finish
