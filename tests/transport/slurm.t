#!/bin/bash
# Ranks under real Slurm: PMIx across nodes, the network proved by counters, a lost rank, steps without PMIx.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
gannet=$GN_BUILD/gannet
probe=$GN_BUILD/tests/transport/rank_probe
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2

all_right() {
	on srun -N2 -n4 --mpi=pmix "$probe" "$1" >"$cluster/out" 2>"$cluster/err" || { cat "$cluster/out" "$cluster/err"; return 1; }
	[[ $(grep -c "of 4 on 2 nodes by pmix: 0 wrong" "$cluster/out") == 4 ]]
}
check "2 nodes x 2 ranks: collectives are right" all_right auto
every_way() { # TRANSPORT [PROGRESS]: all collectives by all algorithms
	on srun -N2 -n4 --mpi=pmix "$GN_BUILD/tests/transport/coll_probe" "$@" >"$cluster/out" 2>"$cluster/err" || { cat "$cluster/out" "$cluster/err"; return 1; }
	[[ $(grep -c "of 4 on 2 nodes: 0 wrong" "$cluster/out") == 4 ]]
}
check "2 nodes x 2 ranks: each collective by each algorithm" every_way auto
check "with progress by a thread, too" every_way auto thread
expect 0 "on 2 nodes by pmix, transport tcp: using eth0" "over tcp, and the line at start says so" \
	on srun -N2 -n4 --mpi=pmix "$probe" tcp brief
meeting() {
	# shellcheck disable=SC2016
	on srun -N2 -n4 --mpi=none sh -c 'RANK=$SLURM_PROCID WORLD_SIZE=4 MASTER_ADDR=n1 MASTER_PORT=29517 exec "$0" tcp brief' "$probe" \
		>"$cluster/out" 2>"$cluster/err" || { cat "$cluster/err"; return 1; }
	[[ $(grep -c "of 4 on 2 nodes by environment: 0 wrong" "$cluster/out") == 4 ]]
}
check "RANK, WORLD_SIZE and MASTER_ADDR across nodes" meeting
# shellcheck disable=SC2016
in_turn() {
	on srun -N2 -n4 --mpi=pmix sh -c '"$0" auto brief && "$0" tcp brief && exec "$0" auto brief' "$probe" >"$cluster/out" 2>"$cluster/err" ||
		{ cat "$cluster/err"; return 1; }
	[[ $(grep -c "of 4 on 2 nodes by pmix: 0 wrong" "$cluster/out") == 12 ]]
}
check "three programs one after the other in one step" in_turn
rows() {
	on srun -N2 -n4 --mpi=pmix "$gannet" bench allreduce --transport tcp --json --iters 5 --min-bytes 64K --max-bytes 4M \
		--factor 8 >"$cluster/out" 2>"$cluster/err" || { cat "$cluster/err"; return 1; }
	[[ $(grep -c '"transport": "tcp", "ranks": 4, "nodes": 2,' "$cluster/out") == 3 && $(grep -c '"wrong": 0}, .*"wrong": 0}' "$cluster/out") == 3 ]]
}
check "bench: the nodes' own counters bear tcp out" rows
expect 1 "no allowed transport reaches it" "shared memory does not reach another node" \
	on srun -N2 -n2 --mpi=pmix "$gannet" bench allreduce --transport shm --max-bytes 1K
expect 2 "SLURM_STEP_NUM_TASKS=4 but there is no PMIx" "a step without --mpi=pmix is refused" \
	on srun -N2 -n4 --mpi=none "$gannet" bench allreduce --max-bytes 1K
expect 2 "PMIx says there are 4 ranks but WORLD_SIZE=2" "WORLD_SIZE that disagrees with the step" \
	on srun -N2 -n4 --mpi=pmix sh -c "RANK=\$PMIX_RANK WORLD_SIZE=2 exec '$gannet' bench allreduce --max-bytes 1K"
expect 2 'rank 3 on n2: GANNET_SOCKET_IFNAME, --socket-ifname: no interface of .* matches .=nope' \
	"an interface that no node has ends every rank at once" \
	on srun -N2 -n4 --mpi=pmix "$gannet" bench allreduce --max-bytes 1K --socket-ifname =nope
# One rank cannot begin: nobody waits for it, and its reason and code are the step's. The limits are longer than anybody waits here.
one_fails() {
	# shellcheck disable=SC2016
	on env GANNET_JOIN_TIMEOUT=900 srun -N2 -n4 --mpi=pmix sh -c '[ "$PMIX_RANK" != 3 ] || set -- "$@" --no-such-option; exec "$@"' sh \
		"$gannet" bench allreduce --max-bytes 1K >"$cluster/out" 2>"$cluster/err"
	local code=$?
	cat "$cluster/err"
	[[ $code == 2 && $(grep -c 'unknown option' "$cluster/err") == 2 ]] && grep -q '^gannet bench: rank 3 on n2: unknown option' "$cluster/err" &&
		grep -q '^gannet bench: rank 3 failed: unknown option' "$cluster/err"
}
check "a wrong option of one rank ends all, and is told by it and by rank 0" one_fails
# Rank 0 has not come: the others end the step, whose task would hang for ever.
no_first() {
	# shellcheck disable=SC2016
	on env GANNET_JOIN_TIMEOUT=3 srun -N2 -n2 --mpi=pmix sh -c '[ "$PMIX_RANK" != 0 ] || exec sleep 1000; exec "$@"' sh "$gannet" bench allreduce \
		>"$cluster/out" 2>"$cluster/err"
	local code=$?
	cat "$cluster/err"
	[[ $code == 4 ]] && grep -q 'rank 1 has waited for rank 0 for 3 s, which has not come: are all 2 ranks started' "$cluster/err"
}
check "a rank 0 that never starts gannet is named, and the step ends" no_first
# A firewall between the nodes: connections of the program get no answer, those of srun and PMIx do.
cat >"$cluster/blocks.c" <<'CODE'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t len)
{
	Dl_info from = {0};

	dladdr(__builtin_return_address(0), &from);
	if (to.__sockaddr__->sa_family == AF_UNIX || !from.dli_fname || !strstr(from.dli_fname, "gannet"))
		return (int)syscall(SYS_connect, fd, to.__sockaddr__, len);
	errno = ETIMEDOUT;
	return -1;
}
CODE
blocked() {
	# shellcheck disable=SC2016
	on env GANNET_JOIN_TIMEOUT=900 GANNET_HEARTBEAT_TIMEOUT=1 srun -N2 -n2 --mpi=pmix sh -c '[ "$PMIX_RANK" = 0 ] || export LD_PRELOAD=$0; exec "$@"' \
		"$cluster/blocks.so" "$gannet" bench allreduce >"$cluster/out" 2>"$cluster/err"
	local code=$?
	cat "$cluster/err"
	[[ $code == 4 ]] && grep -qE 'rank 1 could not connect to its heartbeat .*: cannot connect to [0-9.]+ port [0-9]+: .*; a firewall' "$cluster/err" &&
		! grep -qE 'cannot connect to (127[.]|::1)' "$cluster/err"
}
if [[ ${GN_SANITIZED:-} ]] || ! cc -shared -fPIC -o "$cluster/blocks.so" "$cluster/blocks.c"; then
	skip "ports that a firewall blocks are named, and the step ends" "no compiler, or a sanitizer that comes first"
else
	check "ports that a firewall blocks are named, and the step ends" blocked
fi
# Slurm would wait for a stopped task for ever: the others end the step once they have told why.
stopped_step() { # RANK
	local code
	rm -f "$cluster/err"
	# shellcheck disable=SC2016
	on env GANNET_HEARTBEAT_TIMEOUT=3 GANNET_STALL_TIMEOUT=600 STOPS="$1" ERR="$cluster/err" srun -N2 -n4 --mpi=pmix sh -c '
		if [ "$PMIX_RANK" = "$STOPS" ]; then (until grep -q "transport tcp: using" "$ERR"; do sleep 0.02; done; kill -STOP $$) & fi
		exec "$@"' sh "$gannet" bench allreduce --transport tcp --iters 1000000 --min-bytes 1M --max-bytes 1M >"$cluster/out" 2>"$cluster/err"
	code=$?
	cat "$cluster/err"
	[[ $code == 4 ]] && grep -q "rank $1 on n[12] is lost: no heartbeat from it for 3.0 s" "$cluster/err"
}
check "a stopped rank ends the step, by rank 0" stopped_step 3
check "also when rank 0 is stopped, by the others" stopped_step 0
batch() {
	printf '#!/bin/sh\nexec %s bench allreduce --max-bytes 1K --iters 2\n' "$gannet" >"$cluster/job"
	on sbatch --wait -n4 --output="$cluster/job.log" "$cluster/job" && grep -q "1 rank on 1 node" "$cluster/job.log"
}
check "a batch script by itself is a world of one" batch

# Nobody may come to these limits, which are longer than anybody waits here.
unneeded=(GANNET_HEARTBEAT_TIMEOUT=600 GANNET_STALL_TIMEOUT=600)
# Three columns and three rows of ranks on two nodes; rank 4 dies: the groups without it go on, also those of its node.
survivors() {
	on env "${unneeded[@]}" srun -N2 -n9 --overcommit --mpi=pmix --kill-on-bad-exit=0 --wait=0 \
		"$GN_BUILD/tests/transport/loss_probe" auto kill 4 100 >"$cluster/out" 2>"$cluster/err"
	local code=$?
	cat "$cluster/out" "$cluster/err"
	[[ $code == 137 && $(grep -cE '^rank [1357]: [0-9]{3} operations after the loss, 1 groups lost, 1 kept' "$cluster/out") == 4 &&
		$(grep -cE '^rank [0268]: [0-9]{3} operations after the loss, 0 groups lost, 2 kept' "$cluster/out") == 4 ]] || return 1
	grep -q 'task 4: Killed' "$cluster/err"
}
check "a rank is killed, and groups without it go on" survivors

# process_of RANK: the probe's process on this machine that Slurm counts as RANK
process_of() {
	local p
	for p in $(pgrep -x rank_probe); do
		tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -cxF -e "SLURM_PROCID=$1" -e "SLURM_CONF=$cluster/vc/conf/slurm.conf" | grep -qx 2 && echo "$p"
	done
}
ready() { [[ $(grep -c ^ready "$cluster/out") == 4 ]]; }
lost() { [[ $(grep -cE "rank $1 on $2 is lost: $3" "$cluster/err") == 3 ]]; }
kill_one() { # RANK NODE SIGNAL REASON [VARIABLE=VALUE]...: the three others name it and end with code 4
	local pid
	rm -f "$cluster/out" "$cluster/err"
	on env "${@:5}" srun -N2 -n4 --mpi=pmix "$probe" tcp forever >"$cluster/out" 2>"$cluster/err" &
	pid=$!
	until_true ready || { cat "$cluster/err"; kill $pid; return 1; }
	kill -"$3" "$(process_of "$1")"
	until_true lost "$1" "$2" "$4" || { cat "$cluster/err"; kill $pid; return 1; }
	[[ $3 == KILL ]] || kill -KILL "$(process_of "$1")"
	wait $pid
	cat "$cluster/err"
	grep -q "Exited with exit code 4" "$cluster/err"
}
broke="(its connection closed unexpectedly|the connection to it)"
check "kill -9 of a rank on the other node" kill_one 2 n2 KILL "$broke" "${unneeded[@]}"
check "kill -9 of rank 0" kill_one 0 n1 KILL "$broke" "${unneeded[@]}"
silent=(GANNET_HEARTBEAT_TIMEOUT=3 GANNET_STALL_TIMEOUT=600)
check "a stopped rank" kill_one 3 n2 STOP "no heartbeat from it for 3.0 s" "${silent[@]}"

# Rank 3 has not begun when rank 1, which has come, stops: the others, on both nodes, do not wait for rank 3 to know.
watched() { cat /proc/"$(process_of "$1")"/task/*/comm 2>/dev/null | grep -qx gannet-heartbt; }
stopped_early() {
	local pid r
	rm -f "$cluster/out" "$cluster/err"
	# shellcheck disable=SC2016
	on env "${silent[@]}" srun -N2 -n4 --mpi=pmix sh -c '[ "$PMIX_RANK" != 3 ] || sleep 300; exec "$0" tcp forever' "$probe" >"$cluster/out" 2>"$cluster/err" &
	pid=$!
	for r in 0 1 2; do until_true watched $r || { cat "$cluster/err"; kill $pid; return 1; }; done
	kill -STOP "$(process_of 1)"
	await_line 2 "rank 1 is lost: no heartbeat from it for 3.0 s" "$cluster/err" || { cat "$cluster/err"; kill $pid; return 1; }
	kill -KILL "$(process_of 1)"
	kill $pid
	wait $pid
	cat "$cluster/err"
}
check "a rank that stops while another has not begun" stopped_early
finish
