# What bench/parallel/pipelines and rates have in common: a virtual cluster with slow links, and what its links count. Sourced with NAME BUILD
# [OUT]; gives here, top, build, out, python, gannet, work, and functions. The folder $work and the cluster end with the shell.
# shellcheck shell=bash
name=$1
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$(cd "$2" && pwd)
out=${3:-$build/parallel}
# shellcheck disable=SC2034 # used by those that source this
python=${GN_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/gannet/peers/venv}/bin/python gannet=$build/gannet
cluster=/tmp/gannet-$name-$$
export UCX_WARN_UNUSED_ENV_VARS=n GANNET_LOG=info GANNET_WAIT=sleep OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 CUDA_VISIBLE_DEVICES=''
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/gannet-$name.XXXXXX")
vc() { "$top/slurm/vcluster" "$1" --dir "$cluster" "${@:2}"; }
trap 'if [[ -d $cluster ]]; then vc down --purge >/dev/null 2>&1; fi; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
say() { printf '%s: %4d s  %s\n' "$name" "$SECONDS" "$*" >&2; }
up() { # NODES RATE
	vc up --nodes "$1" --rate "$2" --cpus-per-node 2 2>"$work/up" || { tail -n 3 "$work/up" >&2; exit 1; }
}
on_nodes() { # SECONDS NODES COMMAND...
	timeout -k 5 "$1" "$top/slurm/vcluster" run --dir "$cluster" -- srun -N"$2" -n"$2" --mpi=pmix --kill-on-bad-exit=1 "${@:3}"
}
# What each node's link counts at the lines of rank 0's log, in LOG.link.RANK: bytes and packets; outside of Slurm nothing.
# shellcheck disable=SC2317 # it is exported
watched() { # LOG COMMAND...: on each rank
	local log=$1 counters
	shift
	if [[ ! ${SLURM_PROCID:-} ]]; then
		"$@"
		return
	fi
	tail -n +1 -F -s 0.02 --pid=$$ "$log" 2>/dev/null | while read -r line; do
		if [[ $line == *'"event": "step"'* ]]; then # at once: without a program
			while read -r -a counters; do [[ ${counters[0]} != eth0: ]] || echo "${counters[9]} ${counters[10]}"; done </proc/self/net/dev
		fi
		[[ $line != *'"event": "end"'* && $line != *'"event": "failed"'* ]] || break
	done >"$log.link.$SLURM_PROCID" &
	"$@" && wait
}
export -f watched
