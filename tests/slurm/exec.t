#!/bin/bash
# gannet exec under Slurm: four nodes, right worlds for each framework, wrong ones refused, signals, failures and lost nodes.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
prober=$GN_SOURCE/tests/jobs/exec_probe
check "four nodes come up" vc up --nodes 4 --cpus-per-node 2
export GANNET_LOG=warn
unset CUDA_VISIBLE_DEVICES UCX_NET_DEVICES NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME TF_CONFIG MASTER_ADDR MASTER_PORT

srun() { on srun --mpi=pmix "$@"; }
right() { # FRAMEWORK
	srun -N4 --ntasks-per-node=2 "$gannet" exec --as "$1" "$prober" "$1" >"$cluster/out" 2>"$cluster/err" || { cat "$cluster/out" "$cluster/err"; return 1; }
	[[ $(grep -c "probe $1: rank [0-7] of 8 on 4 nodes is right" "$cluster/out") == 8 ]]
}
for framework in torch tf horovod deepspeed mpi lightning; do
	check "4 nodes x 2 tasks of $framework find each other" right $framework
done
servers() {
	srun -N4 -n4 "$gannet" exec --ps 1 "$prober" tf >"$cluster/out" 2>&1 || { cat "$cluster/out"; return 1; }
	[[ $(grep -c "of 4 on 4 nodes is right" "$cluster/out") == 4 ]]
}
check "so do a chief, two workers and a parameter server" servers
uneven() {
	srun -w n1,n2 -N2 -n3 "$gannet" exec "$prober" torch >"$cluster/out" 2>&1 || { cat "$cluster/out"; return 1; }
	[[ $(grep -c "of 3 on 2 nodes is right" "$cluster/out") == 3 ]]
}
check "and three tasks on two nodes" uneven
# shellcheck disable=SC2016
launchers() {
	srun -N4 --ntasks-per-node=2 "$gannet" exec --per-node sh -c 'echo "$PET_NODE_RANK/$PET_NNODES $PET_NPROC_PER_NODE $(hostname) ${PMIX_RANK-none}"' \
		2>"$cluster/err" | sort >"$cluster/out"
	diff - "$cluster/out" <<-'LIST'
		0/4 2 n1 none
		1/4 2 n2 none
		2/4 2 n3 none
		3/4 2 n4 none
	LIST
}
check "--per-node starts one launcher a node" launchers
expect 0 "^export GLOO_SOCKET_IFNAME=eth0$" "the interface is that of the network between the nodes" \
	srun -w n1,n2 -N2 "$gannet" exec --dry-run --as torch false
expect 0 "^export UCX_NET_DEVICES=eth0$" "so is UCX's one device" srun -w n1,n2 -N2 "$gannet" exec --dry-run --as torch false
both() { # at once, on the same nodes
	local pids=() i
	for i in 1 2 3; do
		srun -N4 -n4 --overcommit --overlap "$gannet" exec "$prober" torch >"$cluster/out$i" 2>&1 &
		pids+=($!)
	done
	wait "${pids[@]}"
	cat "$cluster"/out[1-3]
	[[ $(cat "$cluster"/out[1-3] | grep -c "of 4 on 4 nodes is right") == 12 ]]
}
check "three programs at once on the same nodes" both

# --- wrong worlds ---
expect 2 "MASTER_ADDR=localhost is each node's own, and there are 2 nodes" "localhost as master of two nodes" \
	env MASTER_ADDR=localhost MASTER_PORT=29500 bash -c '"$@"' x "$GN_SOURCE/slurm/vcluster" run --dir "$cluster/vc" -- \
	timeout -k 5 300 srun -w n1,n2 -N2 --mpi=pmix "$gannet" exec touch "$cluster/started"
elsewhere() { MASTER_ADDR=$1 MASTER_PORT=29517 srun -w n1,n2 -N2 "$gannet" exec touch "$cluster/started"; }
expect 2 "rank 0 on n1 is not reached at MASTER_ADDR: rank 1 on n2: n2 port 29517: " "a master that is another node" elsewhere n2
expect 2 "rank 1 on n2: nohost port 29517: cannot find the address of 'nohost'" "a name that the others cannot resolve" elsewhere nohost
expect 0 "" "a right one is kept" env MASTER_ADDR=n1 bash -c '"$@"' x "$GN_SOURCE/slurm/vcluster" run --dir "$cluster/vc" -- \
	timeout -k 5 300 srun -w n1,n2 -N2 --mpi=pmix "$gannet" exec "$prober" torch
cp "$prober" "$cluster/vc/node/n1/nvme/probe"
expect 2 "rank 1 on n2: .*/nvme/probe is no program that can be run here" "a program that one node lacks" \
	srun -w n1,n2 -N2 "$gannet" exec "$cluster/vc/nvme/probe" torch
expect 2 "SLURM_STEP_NUM_TASKS=4 but there is no PMIx" "a step without --mpi=pmix" \
	on srun -w n1,n2 -N2 -n4 --mpi=none "$gannet" exec touch "$cluster/started"
batch() {
	printf '#!/bin/sh\nexec %s exec touch %s/started\n' "$gannet" "$cluster" >"$cluster/job"
	on sbatch --wait -n4 --output="$cluster/job.log" "$cluster/job"
	cat "$cluster/job.log"
	return 2
}
expect 2 "SLURM_NTASKS=4, but this is one process outside of a job step" "a batch script that forgets srun" batch
check "none of them started the program" test ! -e "$cluster/started"

# --- failures ---
expect 7 "gannet exec: rank 2 on n2 failed first, after [0-9.]* s: exit code 7; its last lines:" "the rank that fails, and its host" \
	srun -w n1,n2 -N2 -n4 "$gannet" exec "$prober" torch 2 7
expect 137 "gannet exec: rank 3 on n2 failed first, .*killed by signal 9 \(Killed\)" "one that is killed" \
	srun -w n1,n2 -N2 -n4 "$gannet" exec "$prober" torch 3 -9
lost() {
	local step
	# shellcheck disable=SC2016
	on srun -w n1,n2 -N2 --mpi=pmix sh -c 'echo $$ >"$0/pid.$SLURM_PROCID"; exec "$@"' "$cluster" "$gannet" exec sh -c 'touch "$0.$RANK"; exec sleep "$1"' \
		"$cluster/up" "9876.$$" >"$cluster/out" 2>"$cluster/err" &
	step=$!
	until_true test -e "$cluster/up.0" -a -e "$cluster/up.1" || return 1
	kill -9 "$(pid_of_rank 1)"
	wait $step
	cat "$cluster/err"
	! pgrep -fx "sleep 9876[.]$$"
}
expect 0 "gannet exec: rank 1 on n2 is lost: its connection closed unexpectedly" "an exec that is killed" lost
# Once, although slurmstepd signals every process of the step. A program that failed would have exec end the other one.
signals() {
	# shellcheck disable=SC2016
	on srun -w n1,n2 -N2 --mpi=pmix "$gannet" exec sh -c 'trap "echo got USR1" USR1; trap "echo got TERM; exit 0" TERM; touch "$0.$RANK"
		while :; do sleep 0.1; done' "$cluster/trap" >"$cluster/out" 2>&1 &
	local step=$!
	until_true test -e "$cluster/trap.0" -a -e "$cluster/trap.1" || return 1
	local id
	id=$(on squeue -h -s -o %i | grep '\.0$')
	on scancel --signal=USR1 "$id"
	until_true sh -c "[ \$(grep -c 'got USR1' '$cluster/out') -ge 2 ]" || { cat "$cluster/out"; return 1; }
	on scancel --signal=TERM "$id"
	wait $step
	cat "$cluster/out"
	[[ $(grep -c "got USR1" "$cluster/out") == 2 && $(grep -c "got TERM" "$cluster/out") == 2 ]]
}
check "signals that Slurm sends reach the program once" signals
finish
