# shellcheck shell=bash disable=SC2154 # dir, nodes, id and the rest are set in slurm/vcluster
# A node's share of the machine's processors (--cpu-share): by a control group's quota where one may be made, else by stopping all
# processes of the node for a part of the time.

# The folder to make groups with a quota in: of version 2, else of version 1. Fails when there is none.
cgroup_of_processors() {
	local path
	path=/sys/fs/cgroup
	if [[ " $(cat $path/cgroup.subtree_control 2>/dev/null) " == *" cpu "* && -w $path/cgroup.procs ]]; then
		echo $path
		return
	fi
	path=$(awk '$3 == "cgroup" && ("," $4 ",") ~ /,cpu,/ { print $2; exit }' /proc/mounts)
	[[ $path && -w $path/cgroup.procs ]] && echo "$path"
}

share_of() { # NODE: prints its PERCENT or PERCENT,duty, if it has one
	local word
	for word in $cpu_shares; do [[ $word != "$1="* ]] || echo "${word#*=}"; done | tail -n 1
}

# Microseconds of 20 ms that the node may use: of its own processors, or of its part of the machine's while all nodes are busy.
quota_us() { # PERCENT
	awk -v percent="$1" -v own="$cpus" -v part="$(nproc --all)" -v nodes="$nodes" 'BEGIN {
		part /= nodes; us = (own < part ? own : part) * percent / 100 * 20000; printf "%d", us < 1000 ? 1000 : us }'
}

# Makes the node's group; prints its folder, or duty=PERCENT when the node's first process has to see to it.
share_up() { # NODE
	local share group quota
	share=$(share_of "$1")
	[[ $share ]] || return 0
	quota=$(quota_us "${share%,duty}")
	if [[ $share == *,duty ]] || ! group=$(cgroup_of_processors) || ! mkdir -p "$group/gn$id-$1" 2>/dev/null; then
		echo "duty=${share%,duty}"
		return
	fi
	group+=/gn$id-$1
	if [[ -e $group/cpu.max ]]; then
		echo "$quota 20000" >"$group/cpu.max"
	else
		echo 20000 >"$group/cpu.cfs_period_us"
		echo "$quota" >"$group/cpu.cfs_quota_us"
	fi
	echo "$group"
}

# Once their processes have ended.
shares_down() {
	local group
	group=$(cgroup_of_processors) || return 0
	for group in "$group/gn$id-n"[1-8]; do
		[[ ! -d $group ]] || within 20 rmdir "$group" || say "$group is left: it has processes still"
	done
}
