# shellcheck shell=bash
# For tests that need a cluster: source it, then cluster_begin. Leaves cluster (a scratch directory) and vc (slurm/vcluster on it).
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
PATH=$PATH:/usr/sbin:/sbin

cluster_begin() {
	local why=
	((UID == 0)) || why="namespaces need root"
	command -v slurmctld slurmd srun munged >/dev/null || why="Slurm is not installed"
	if [[ ! $why ]] && ! unshare --mount --net --ipc --uts --pid --fork true 2>/dev/null; then
		why="this machine lets nobody make namespaces"
	fi
	if [[ $why ]]; then
		echo "1..0 # SKIP $why"
		exit 0
	fi
	cluster=$(mktemp -d /tmp/gn-cluster.XXXXXX)
	chmod 755 "$cluster"
	trap cluster_end EXIT
	trap 'exit 1' INT TERM
}

cluster_end() {
	vc down --purge
	rm -rf "$cluster"
}

vc() { "$GN_SOURCE/slurm/vcluster" "$1" --dir "$cluster/vc" "${@:2}"; }
# Runs a command against the cluster under a watchdog: on COMMAND...
on() { timeout -k 5 300 "$GN_SOURCE/slurm/vcluster" run --dir "$cluster/vc" -- "$@"; }

gannet=$GN_BUILD/gannet
# The last step that a log tells of; 0 when there is none yet.
last_step() { sed -n 's/^{"event": "step".* "step": \([0-9]*\), "epoch.*/\1/p' "$1" 2>/dev/null | tail -n 1 | grep . || echo 0; }
reached() { (($(last_step "$1") >= $2)); }
# Packs the bundled digits into $cluster/train and $cluster/val.
cluster_digits() {
	"$gannet" pack --out "$cluster/train" "$GN_SOURCE/data/digits/digits-train.tar.xz" &&
		"$gannet" pack --out "$cluster/val" "$GN_SOURCE/data/digits/digits-val.tar.xz"
}
# The value of a field in the last line of a log with an event: field FILE EVENT NAME
field() {
	python3 -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
print([line for line in lines if line["event"] == sys.argv[2]][-1][sys.argv[3]])' "$@"
}
# Tells all ranks of the run with that log to stop: stop_ranks LOG
stop_ranks() {
	local pid
	for pid in $(pgrep -f -- "--log $1"); do
		[[ $(cat "/proc/$pid/comm" 2>/dev/null) != gannet ]] || kill -TERM "$pid"
	done
}
# The process of a rank of the one run on the cluster, seen from outside of its node: pid_of_rank RANK
pid_of_rank() { # RANK
	local pid
	for pid in $(pgrep -x gannet); do
		if tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -cxF -e "PMIX_RANK=$1" -e "SLURM_CONF=$cluster/vc/conf/slurm.conf" |
			grep -qx 2; then
			echo "$pid"
		fi
	done
}
