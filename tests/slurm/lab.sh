# shellcheck shell=bash
# For tests that need a cluster: source it, then lab_begin. Leaves lab (a scratch directory) and vc (slurm/vcluster on it).
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
PATH=$PATH:/usr/sbin:/sbin

lab_begin() {
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
	lab=$(mktemp -d /tmp/gn-lab.XXXXXX)
	chmod 755 "$lab"
	trap lab_end EXIT
	trap 'exit 1' INT TERM
}

lab_end() {
	vc down --purge
	rm -rf "$lab"
}

vc() { "$GN_SOURCE/slurm/vcluster" "$1" --dir "$lab/vc" "${@:2}"; }
# Runs a command against the cluster under a watchdog: on SECONDS COMMAND...
on() { timeout -k 5 "$1" "$GN_SOURCE/slurm/vcluster" run --dir "$lab/vc" -- "${@:2}"; }

# Polls until the command succeeds: until_within SECONDS COMMAND...
until_within() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}
