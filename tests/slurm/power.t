#!/bin/bash
# SuspendProgram and ResumeProgram of slurm/power on a cluster whose nodes can be turned off: idle nodes go away, a job wakes what it
# needs, a node that cannot be turned on is replaced by another one.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
expect 2 "--power-save must be a whole number from 5" "a time that is too short" vc up --power-save 1
expect 2 "does not go together with --cpu-share" "and what does not go together" vc up --power-save 20 --cpu-share n1=50
for script in suspend resume; do
	fails() { ! "$GN_SOURCE/slurm/power/$script" 2>"$cluster/said" && grep "usage: $script NODES" "$cluster/said"; }
	check "$script without nodes fails" fails
done
check "four nodes come up" vc up --nodes 4 --cpus-per-node 2 --power-save 5 --requeue-delay 5

state() { on sinfo -h -N -p main -o '%N %t'; }
are() { # STATE NODE...
	local wanted=$1 node
	for node in "${@:2}"; do state | grep -qE "^$node $wanted\$" || return 1; done
}
processes() { pgrep -f "slurmd -D -f $cluster/vc/conf/slurm.conf -N $1( |$)"; }
gone() { local node; for node; do ! processes "$node" || return 1; done; }
logs() { state; cat "$cluster/vc/log/power.out" 2>/dev/null; tail -n 20 "$cluster/vc/log/slurmctld.log"; return 1; }
true_or_logs() { until_true "$@" || logs; }
check "idle nodes are turned off" true_or_logs gone n1 n2 n3 n4
check "Slurm knows it" true_or_logs are 'idle~' n1 n2 n3 n4
check "the cluster is well" vc status

expect 0 "^n2$" "a job wakes the node that it needs" on srun -w n2 hostname
check "and no other" gone n1 n3 n4
train() {
	cluster_digits && on srun -w n1,n2 -N2 --ntasks-per-node=1 --mpi=pmix "$gannet" train --data "$cluster/train" --model lenet --steps 20 --batch 32 --threads 1
}
expect 0 "2 ranks on 2 nodes by pmix" "a run of two nodes trains on one that wakes" train

# A node without power: its switch fails.
cat >"$cluster/power" <<POWER
#!/bin/bash
[[ "\$*" != "on n3" ]] || { echo "no answer from the BMC"; exit 1; }
exec "$cluster/vc/conf/power" "\$@"
POWER
chmod 755 "$cluster/power"
sed -i "s|^export GANNET_POWER=[^ ]*|export GANNET_POWER=$cluster/power|" "$cluster/vc/conf/power-resume"
replaced() {
	local job
	job=$(on sbatch --parsable -N1 --exclude=n1,n2 --output="$cluster/job.out" --wrap hostname) || return 1
	# shellcheck disable=SC2317 # until_true calls it
	over() { [[ ! $(on squeue -h -j "$job" 2>/dev/null) && -s $cluster/job.out ]]; }
	until_true over || logs
	cat "$cluster/job.out"
}
expect 0 "^n4$" "a job whose node cannot be turned on gets another one" replaced
reason() { on sinfo -h -R -o '%N %E'; }
expect 0 "^n3 power on: no answer from the BMC" "and the reason is kept" reason

# suspend asks before it turns off
busy() {
	local step code
	on srun -w n4 --job-name=busy sleep 1000.$$ &
	step=$!
	until_true pgrep -fx "(/[a-z/]*)?sleep 1000[.]$$" || logs
	GANNET_POWER=/bin/false on "$GN_SOURCE/slurm/power/suspend" n4
	code=$?
	on scancel --name=busy
	wait $step
	return $code
}
expect 1 "n4 was not turned off: it has jobs: [0-9]+" "a node with a job stays on" busy
check "all are turned off again" true_or_logs gone n1 n2 n3 n4
finish
