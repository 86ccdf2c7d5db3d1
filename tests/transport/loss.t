#!/bin/bash
# Ranks that are lost in the middle, while the others go on: operations of their groups end with an error that names rank, host,
# reason and group, long before a limit of time; those of other groups complete and are right. Random faults over such groups are of
# tests/train/faults.t.
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
finish
