# shellcheck shell=bash disable=SC2154 # dir, nodes, net and the rest are set in slurm/vcluster
# Directories and configuration of the virtual cluster.

make_dirs() {
	local i name
	# Others pass, to munged's socket, slurm.conf and the shared folders (munged and jobs run as other users), and see no more.
	chmod 711 "$dir"
	mkdir -p "$dir"/{conf,log,munge,node,nvme,run,shared,spool,state,tmp}
	chmod 700 "$dir"/{log,state}
	# munged refuses a key that others can read and a socket directory that others cannot enter.
	install -d -m 700 -o munge -g munge "$dir/munge/private"
	chown munge:munge "$dir/munge"
	chmod 755 "$dir/munge"
	for ((i = 1; i <= nodes; i++)); do
		name=n$i
		mkdir -p "$dir/node/$name"/{tmp,nvme} "$dir/spool/$name"
		chmod 1777 "$dir/node/$name"/{tmp,nvme}
	done
	chmod 1777 "$dir/shared" "$dir/tmp"
	echo "Each node has its own directory mounted here. From outside they are ../node/*/nvme." >"$dir/nvme/README"
}

write_conf() {
	local i
	cat >"$dir/conf/slurm.conf" <<CONF
ClusterName=gannet-$id
SlurmctldHost=$(hostname -s)($net.254)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# cred_expire is also how long a requeued job has to wait.
AuthInfo=socket=$dir/munge/socket,cred_expire=$requeue_delay
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SrunPortRange=$((port + 2000))-$((port + 2999))
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
# Each node has its own directory mounted there: Slurm's PMIx plugin fails when two nodes share it.
TmpFS=$dir/tmp
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
JobRequeue=1
KillWait=$kill_wait
SlurmdTimeout=60
# The machine's own limits would reach the tasks otherwise, and RDMA wants to lock memory.
PropagateResourceLimitsExcept=MEMLOCK
CONF
	for ((i = 1; i <= nodes; i++)); do
		echo "NodeName=n$i NodeAddr=$net.$i CPUs=$cpus RealMemory=$(free_mib) State=UNKNOWN"
	done >>"$dir/conf/slurm.conf"
	echo "PartitionName=main Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE State=UP" >>"$dir/conf/slurm.conf"
	if [[ $accounting ]]; then
		printf '%s\n' JobAcctGatherType=jobacct_gather/linux JobAcctGatherFrequency=task=2 AccountingStorageType=accounting_storage/slurmdbd \
			"AccountingStorageHost=$net.254" "AccountingStoragePort=$((port + 2))" "AccountingStoragePass=$dir/munge/socket"
	else
		printf '%s\n' JobAcctGatherType=jobacct_gather/none AccountingStorageType=accounting_storage/none
	fi >>"$dir/conf/slurm.conf"
	[[ ! $power_save ]] || power_conf
	# slurmd gives them no variables of its own; jobs have this one
	for word in ${prolog:+Prolog} ${epilog:+Epilog}; do
		name=${word,}
		printf '#!/bin/sh\nexport GANNET_LOCAL="${GANNET_LOCAL-%s}"\nexec %s "$@"\n' "$dir/nvme" "${!name}" >"$dir/conf/$name"
		chmod 755 "$dir/conf/$name"
		echo "$word=$dir/conf/$name" >>"$dir/conf/slurm.conf"
	done
	[[ ! $preempt ]] || cat >>"$dir/conf/slurm.conf" <<CONF
PartitionName=urgent Nodes=n[1-$nodes] PriorityTier=10 MaxTime=INFINITE State=UP
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
CONF
	{
		echo "127.0.0.1 localhost"
		echo "$net.254 $(hostname -s)"
		for ((i = 1; i <= nodes; i++)); do echo "$net.$i n$i"; done
	} >"$dir/conf/hosts"
}

free_mib() { awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo; }

# What srun and friends need; a job that this was started from must not leak in.
client_env() {
	local name
	for name in "${!SLURM_@}" "${!PMIX_@}"; do unset "$name"; done
	export SLURM_CONF=$dir/conf/slurm.conf GANNET_LOCAL=$dir/nvme GANNET_SHARED=$dir/shared
}
