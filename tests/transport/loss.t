#!/bin/bash
# Ranks that are lost in the middle, while the others go on: operations of their groups end with an error that names rank, host,
# reason and group, long before a limit of time; those of other groups complete and are right. Random faults: GN_FAULTS of them (4;
# 300 in tests/long), GN_SEED the first.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
probe=$GN_BUILD/tests/transport/loss_probe
export OMP_NUM_THREADS=1
# run RANKS ARG...: into $scratch/out and err; the launcher's code
run() { timeout -k 5 300 "$gannet" launch -n "$1" --keep-going --grace 8 -- "$probe" "${@:2}" >"$scratch/out" 2>"$scratch/err"; }
# Nobody may come to these, which are longer than anybody waits here: what is lost is known by its connection.
export GANNET_HEARTBEAT_TIMEOUT=600 GANNET_STALL_TIMEOUT=600

# Nine ranks in three columns and three rows; rank 4 dies. Ranks 1, 7 and 3, 5 lose a group each and keep the other.
killed() { # TRANSPORT [HOW]
	run 9 "$1" "${2:-kill}" 4 100
	local code=$?
	cat "$scratch/out" "$scratch/err"
	[[ $code == 0 && $(grep -cE '^rank [1357]: [0-9]{3} operations after the loss, 1 groups lost, 1 kept' "$scratch/out") == 4 &&
		$(grep -cE '^rank [0268]: [0-9]{3} operations after the loss, 0 groups lost, 2 kept' "$scratch/out") == 4 ]] || return 1
	[[ $(tail -n 1 "$scratch/err") == "gannet launch: rank 4 was killed by signal 9 (Killed); 8 of 9 ranks succeeded" ]]
}
for transport in auto shm tcp; do check "a rank is killed, over $transport" killed $transport; done
PROBE_PROGRESS=thread check "with progress threads" killed auto
# Connections that close are no cut links: rank 0 has to be given time to tell.
check "a rank is killed while rank 0 is asleep" killed tcp asleep

# A stall is diagnosed after a loss as before one: without the rank that is lost.
stalled() {
	GANNET_STALL_TIMEOUT=10 run 9 auto stall 4 100
	cat "$scratch/err"
	# Another group of the lost rank may wait for longer: for rank 1, which waits for rank 2, which waits for rank 8.
	grep '^rank 2: column.2.: .* has stalled; ' "$scratch/err" | grep 'rank 4 on .* is lost;' | grep -q 'waiting for rank 8'
}
check "a stall after a loss names who does not come" stalled

# A rank that is not killed ends: all is right, or it is told that it was lost itself (stopped for too long). A stall is wrong.
random_faults() { # SEED TRANSPORT
	local lost
	GANNET_HEARTBEAT_TIMEOUT=2.5 GANNET_STALL_TIMEOUT=60 run 8 "$2" random "$1"
	cat "$scratch/out" "$scratch/err"
	lost=$(grep -c 'was killed by signal 9 (Killed)$' "$scratch/err")
	! grep -E '^rank [0-9]+: [^0-9i]|ended with code' "$scratch/err" || return 1
	(($(grep -cE '^rank [0-9]+: ([0-9]|is lost)' "$scratch/out") + lost == 8))
}
seed=${GN_SEED:-$((RANDOM + 1))} count=${GN_FAULTS:-${GN_SANITIZED:+3}} count=${count:-4}
echo "# GN_SEED=$seed GN_FAULTS=$count"
for ((i = seed; i < seed + count; i++)); do
	transport=$( ((i % 2)) && echo tcp || echo auto)
	check "random faults over $transport, GN_SEED=$i GN_FAULTS=1" random_faults $i "$transport"
done
# The same on three nodes with two network devices: messages have fragments on both.
rails() { # SEED
	local lost
	# shellcheck disable=SC2016 # for the shell of each rank
	timeout -k 5 300 unshare --net --mount bash -c 'mount -t sysfs none /sys && ip link set lo up
		for i in 0 1; do
			ip link add r$i type veth peer name p$i && ip addr add 10.$i.0.1/24 dev r$i && ip link set r$i up && ip link set p$i up || exit
		done
		UCX_NET_DEVICES=r0,r1 GANNET_HEARTBEAT_TIMEOUT=2.5 GANNET_STALL_TIMEOUT=60 exec "$@"' bash "$gannet" launch -n 8 --keep-going --grace 8 -- \
		unshare --uts bash -c 'hostname "node$((PMIX_RANK % 3))" && exec "$0" "$@"' "$probe" tcp random "$1" >"$scratch/out" 2>"$scratch/err"
	cat "$scratch/out" "$scratch/err"
	lost=$(grep -c 'was killed by signal 9 (Killed)$' "$scratch/err")
	! grep -E '^rank [0-9]+: [^0-9i]|ended with code' "$scratch/err" || return 1
	(($(grep -cE '^rank [0-9]+: ([0-9]|is lost)' "$scratch/out") + lost == 8))
}
if ((UID == 0)) && unshare --net --mount --uts true 2>/dev/null && command -v ip >/dev/null; then
	check "random faults over two rails, seed $seed" rails "$seed"
else
	skip "two rails" "network namespaces need root"
fi
finish
