# shellcheck shell=bash disable=SC2154 # dir, nodes, id and the rest are set in slurm/vcluster
# The processes of the virtual cluster, and how they end.

# A process number may belong to somebody else by now; together with its start time it cannot.
started_at() { # PID
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	stat=${stat##*) }
	awk '{ if ($1 == "Z") exit 1; print $20 }' <<<"$stat"
}

state_get() { awk -v k="$1" '$1 == k { $1 = ""; print substr($0, 2); exit }' "$dir/vcluster.state" 2>/dev/null; }

record() { # NAME PID
	echo "$1 $2 $(started_at "$2")" >>"$dir/vcluster.state"
}

recorded_alive() { # NAME: prints the pid
	local pid start
	read -r pid start < <(state_get "$1") || return 1
	[[ $(started_at "$pid") == "$start" ]] || return 1
	echo "$pid"
}

daemons_alive() { recorded_alive munged >/dev/null && recorded_alive slurmctld >/dev/null; }

# Polls COMMAND until it succeeds, for at most SECONDS.
within() { # SECONDS COMMAND...
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}

start_daemon() { # NAME COMMAND...
	local name=$1
	shift
	# The locks must not live on in the daemon.
	setsid "$@" </dev/null >>"$dir/log/$name.out" 2>&1 7>&- 8>&- &
	record "$name" $!
	disown # or this shell tells of its end
}

start_munged() {
	local key=$dir/munge/private/key
	(umask 077 && head -c 128 /dev/urandom >"$key")
	chown munge:munge "$key"
	start_daemon munged setpriv --reuid munge --regid munge --clear-groups munged --foreground --force \
		--key-file "$key" --socket "$dir/munge/socket" --pid-file "$dir/munge/pid" \
		--log-file "$dir/munge/log" --seed-file "$dir/munge/private/seed"
	within 20 munge -n -S "$dir/munge/socket"
}

start_slurmctld() {
	start_daemon slurmctld env SLURM_CONF="$dir/conf/slurm.conf" slurmctld -D -f "$dir/conf/slurm.conf"
	within 30 env SLURM_CONF="$dir/conf/slurm.conf" scontrol ping
}

# Not by ip netns exec: it mounts /sys anew, and slurmd wants the control groups. The process and IPC namespaces keep UCX from
# taking shared memory between nodes, and end with their first process.
start_node() { # NAME [boot: slurmctld waits for a node that says it has booted]
	local share
	share=$(share_up "$1")
	[[ ! $share ]] || echo "share-$1 $share" >>"$dir/vcluster.state"
	# shellcheck disable=SC2016 # for the shell that enters the group
	start_daemon "$1" bash -c '[[ $0 != /* ]] || echo $$ >"$0/cgroup.procs"; exec "$@"' "$share" nsenter --net="/run/netns/gn$id-$1" unshare --mount --uts --ipc --pid --fork --kill-child --mount-proc \
		bash "$here/vcluster.d/node" "$dir" "$1" "$share" "${2:-}"
}

all_idle() {
	SLURM_CONF=$dir/conf/slurm.conf sinfo -h -N -p main -o '%t' |
		awk -v n="$nodes" '/^(idle|mix|alloc|comp|drain|drng)[~#%!]?$/ { ok++ } END { exit ok != n }'
}

nodes_idle_within() { # SECONDS
	local end=$((SECONDS + $1)) i
	until all_idle; do
		((SECONDS < end)) || return 1
		for ((i = 1; i <= nodes; i++)); do
			recorded_alive "n$i" >/dev/null || { say "node n$i has ended"; return 1; }
		done
		sleep 0.1
	done
}

show_logs() {
	local log
	for log in "$dir"/log/* "$dir/munge/log"; do
		[[ -s $log ]] && { printf '%s\n' "-- $log"; tail -n 5 "$log"; } >&2
	done
	return 0
}

kill_pids() { # "PID PID ..."
	[[ ${1// /} ]] || return 0
	# shellcheck disable=SC2086 # a list
	kill -KILL $1 2>/dev/null || true
	# shellcheck disable=SC2086
	within 20 pids_gone $1 || die 1 "processes $1 do not end"
}

pids_gone() {
	local pid
	for pid; do ! started_at "$pid" || return 1; done
}

# Processes outside of the namespaces that say themselves that they are this cluster's: daemons by an argument (should the
# record be lost), and srun and salloc, which would wait for ever for a cluster that is gone, by their environment.
stray_pids() {
	local pid
	for pid in $(pgrep -x 'slurmctld|slurmdbd|mariadbd|munged|srun|salloc|sattach'); do
		if { tr '\0' '\n' <"/proc/$pid/cmdline"; tr '\0' '\n' <"/proc/$pid/environ"; } |
			grep -xF -e "$dir/conf/slurm.conf" -e "SLURM_CONF=$dir/conf/slurm.conf" -e "$dir/munge/socket" -e "--socket=$dir/db/socket" >/dev/null; then
			echo "$pid"
		fi
	done 2>/dev/null
	return 0
}

# What an earlier cluster in this directory left, in whatever state; the user's files and the logs stay.
remove_all() {
	local name
	for name in slurmctld slurmdbd mariadbd munged n1 n2 n3 n4 n5 n6 n7 n8; do
		kill_pids "$(recorded_alive "$name" || true)"
	done
	net_down
	shares_down
	kill_pids "$(stray_pids | tr '\n' ' ')"
	rm -rf "$dir"/{conf,db,munge,node,nvme,run,spool,state,tmp,vcluster.state}
}
