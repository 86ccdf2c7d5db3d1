#!/bin/bash
# Ranks that find each other through RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and through mpirun.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"

# ranks SIZE TRANSPORT PORT MODE: starts them all, rank 0 last; prints nothing, leaves out.N, err.N; fails when one does.
ranks() {
	local r failed=0 pids=()
	for ((r = $1 - 1; r >= 0; r--)); do
		RANK=$r WORLD_SIZE=$1 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$3 timeout -k 5 300 "$probe" "$2" \
			>"$scratch/out.$r" 2>"$scratch/err.$r" &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || failed=1; done
	return $failed
}
right() {
	ranks "$1" "$2" "$(free_port)" || { cat "$scratch"/err.*; return 1; }
	[[ $(cat "$scratch"/out.* | grep -c "of $1 on 1 nodes by environment: 0 wrong") == "$1" ]]
}
check "1 rank" right 1 auto
check "2 ranks over shm" right 2 shm
check "3 ranks over tcp" right 3 tcp

# one_of TEXT RANK=.. WORLD_SIZE=.. ...: starts a rank in the background with these variables
start() { # NAME VARIABLE...
	env MASTER_ADDR=127.0.0.1 "${@:2}" timeout -k 5 300 "$probe" shm >"$scratch/out.$1" 2>"$scratch/err.$1" &
}
ended() { # CODE NAME PID
	local code
	wait "$3"
	code=$?
	((code == $1)) || { echo "$2 ended with code $code:"; cat "$scratch/err.$2"; return 1; }
}
differ() {
	local port a b
	port=$(free_port)
	start a RANK=0 WORLD_SIZE=3 MASTER_PORT="$port"; a=$!
	start b RANK=1 WORLD_SIZE=2 MASTER_PORT="$port"; b=$!
	ended 2 a $a && ended 2 b $b || return 1
	grep -q "WORLD_SIZE=2 but rank 0 has WORLD_SIZE=3" "$scratch/err.a" && grep -q "WORLD_SIZE=2" "$scratch/err.b"
}
check "ranks that disagree about WORLD_SIZE are told" differ
twice() {
	local port a b c
	port=$(free_port)
	start a RANK=0 WORLD_SIZE=3 MASTER_PORT="$port"; a=$!
	start b RANK=1 WORLD_SIZE=3 MASTER_PORT="$port"; b=$!
	start c RANK=1 WORLD_SIZE=3 MASTER_PORT="$port"; c=$!
	ended 2 a $a && ended 2 b $b && ended 2 c $c || return 1
	grep -q "two processes have RANK=1" "$scratch/err.a"
}
check "a rank that is there twice is told" twice
# What the variables say of the host, and where Azure Batch puts what others say in MASTER_ADDR.
local_rank() {
	local port a b
	port=$(free_port)
	start a RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT="$port"; a=$!
	start b RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT="$port"; b=$!
	wait $b; [[ $? == 2 ]] || return 1
	wait $a; [[ $? == 4 ]] || return 1
	grep "LOCAL_RANK=0 but rank 1 has local rank 1 of 2 on $(hostname)" "$scratch/err.b" &&
		grep "rank 1 on $(hostname) failed: LOCAL_RANK=0 but" "$scratch/err.a"
}
check "a LOCAL_RANK that is another's is refused" local_rank
azure() {
	local port r pids=()
	port=$(free_port)
	for r in 0 1; do
		RANK=$r WORLD_SIZE=2 AZ_BATCH_MASTER_NODE=127.0.0.1:$port timeout -k 5 300 "$probe" shm >"$scratch/out.$r" 2>"$scratch/err.$r" &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || { cat "$scratch"/err.*; return 1; }; done
	[[ $(cat "$scratch"/out.[01] | grep -c "of 2 on 1 nodes by environment: 0 wrong") == 2 ]]
}
check "ranks meet at AZ_BATCH_MASTER_NODE" azure
missing() {
	PROBE_TIMEOUT_MS=700 RANK=0 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) timeout -k 5 300 "$probe" shm
}
expect 4 "rank 1 is lost: it did not join within [0-9.]+ s; neither did 2: are all 3 ranks started" "ranks that do not come are named" missing
no_master() {
	PROBE_TIMEOUT_MS=700 RANK=1 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) timeout -k 5 300 "$probe" shm
}
expect 4 "rank 0 is not reachable at MASTER_ADDR=127.0.0.1" "a master that is not there is named" no_master
taken() {
	perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 1, LocalAddr => "0.0.0.0") or die; $| = 1;
		print $s->sockport, "\n"; sleep 1000' >"$scratch/port" &
	local pid=$!
	await_line 1 . "$scratch/port"
	RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(cat "$scratch/port") timeout -k 5 300 "$probe" shm
	local code=$?
	kill $pid
	return $code
}
expect 1 "cannot listen on port" "a port that is taken is named" taken

listening() { grep -qi ":$(printf %04x "$1") .* 0A " /proc/net/tcp /proc/net/tcp6; } # PORT
# A signal to a rank that waits for the others ends it: nothing has begun.
early() { # SIGNAL CODE
	local port pid code
	port=$(free_port)
	env --default-signal=INT RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$gannet" train \
		--data "$scratch/none" --model lenet >"$scratch/out.early" 2>&1 &
	pid=$!
	until_true listening "$port" || return 1
	kill "-$1" "$pid"
	wait "$pid"
	code=$?
	[[ $code == "$2" ]] || { echo "code $code"; cat "$scratch/out.early"; return 1; }
	[[ $1 == INT ]] || grep -q "stopped before the run began" "$scratch/out.early"
}
check "SIGTERM ends a rank that waits for the others" early TERM 5
check "so does SIGUSR1" early USR1 5
check "so does SIGINT" early INT 130

script() { SLURM_JOB_ID=5 SLURM_NTASKS=2 SLURM_PROCID=0 SLURM_NNODES=2 timeout -k 5 300 "$gannet" train --data "$scratch/none" --model lenet; }
expect 3 "SLURM_NTASKS=2, but this is one process outside of a job step.*srun --mpi=pmix" "a job's script without srun is warned" script

# Strangers at the meeting point: silence, garbage, half a hello. The ranks meet all the same.
strangers() {
	until_true listening "$1" || return 1
	perl -MIO::Socket::INET -e '
		my $port = shift; my @kept;
		for (1 .. 40) {
			my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port) or die "no connection: $!";
			push @kept, $s;
			print $s pack("C*", map { int rand 256 } 1 .. 300) if @kept % 3 == 0;
			print $s "GNmeet1" if @kept % 3 == 1;
			$s->flush;
		}
		$| = 1; print "done\n"; sleep 1000' "$1" >"$scratch/strange" &
}
beset() {
	local port a b
	port=$(free_port)
	start a RANK=0 WORLD_SIZE=2 MASTER_PORT="$port"; a=$!
	strangers "$port" || return 1
	local c=$!
	await_line 1 "done" "$scratch/strange" || return 1
	start b RANK=1 WORLD_SIZE=2 MASTER_PORT="$port"; b=$!
	wait $a && wait $b
	local code=$?
	kill $c
	cat "$scratch/err.a" "$scratch/err.b"
	return $code
}
check "strangers at the meeting point do no harm" beset

if command -v mpirun >/dev/null; then
	under_mpirun() {
		timeout -k 5 300 mpirun --oversubscribe --allow-run-as-root -n 3 "$probe" shm >"$scratch/out" 2>"$scratch/err" ||
			{ cat "$scratch/err"; return 1; }
		[[ $(grep -c "of 3 on 1 nodes by pmix: 0 wrong" "$scratch/out") == 3 ]]
	}
	check "3 ranks under mpirun" under_mpirun
else
	skip "3 ranks under mpirun" "Open MPI (openmpi-bin) is not installed"
fi
finish
