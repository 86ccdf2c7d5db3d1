#!/bin/bash
# gannet in Charliecloud's containers under Slurm: PMIx and the network work inside, one container a node shares memory between its
# ranks, one container a rank does not and says so.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
if ! command -v ch-run >/dev/null; then
	echo "1..0 # SKIP no ch-run: install charliecloud"
	exit 0
fi
cluster_begin
export USER=${USER:-root}
image=$cluster/image
check "an image is made of this machine's packages" "$GN_SOURCE/slurm/containers/make-root" --build "$GN_BUILD" --package python3 "$image"
check "without set-user-ID and set-group-ID" test -z "$(find "$image" ! -type d -perm /6000)"
expect 1 "no package nopackage is installed" "a package that is not installed" "$GN_SOURCE/slurm/containers/make-root" --build "$GN_BUILD" --package nopackage "$image.2"
check "leaves nothing" test ! -e "$image.2"
expect 1 "is there already" "and not over another" "$GN_SOURCE/slurm/containers/make-root" --build "$GN_BUILD" "$image"
if ! tap_output=$(ch-run "$image" -- true 2>&1); then
	skip "gannet in containers" "ch-run does not work here: $tap_output"
	finish
	exit 0
fi
expect 0 "^UCX " "gannet starts in it, with its libraries" ch-run "$image" -- gannet --version
# shellcheck disable=SC2016
check "from the image, not from this machine" ch-run "$image" -- sh -c '[ "$(command -v gannet)" = /usr/local/bin/gannet ] && [ ! -e /usr/bin/ch-run ]'
cluster_digits 2>"$cluster/err" || cat "$cluster/err"
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2

train() { # NAME COMMAND-BEFORE...: log of the run in NAME.jsonl, messages in NAME.err
	local name=$1
	shift
	on srun -N2 --ntasks-per-node=2 --mpi=pmix "$@" train --data "$cluster/train" --model lenet --epochs 1 --batch 32 --threads 1 \
		--log "$cluster/$name.jsonl" >"$cluster/$name.err" 2>&1 || { cat "$cluster/$name.err"; return 1; }
}
messages() { cat "$cluster/$1.err"; }
check "4 ranks train outside of containers" train bare "$gannet"
check "4 ranks train in a container a node" train joined ch-run --join "$image" -- gannet
expect 0 "4 ranks on 2 nodes by pmix, .*(posix|sysv)" "they meet by PMIx and share memory" messages joined
same_loss() {
	[[ $(last_step "$cluster/$1.jsonl") == "$(last_step "$cluster/bare.jsonl")" ]] || return 1
	printf '%s %s\n' "$(field "$cluster/bare.jsonl" step loss)" "$(field "$cluster/$1.jsonl" step loss)" | tee /dev/stderr |
		awk '{ d = $1 - $2; exit !(d < 0.01 * $1 && d > -0.01 * $1) }'
}
check "with the loss of those outside" same_loss joined
expect 1 "" "nothing is said of memory" grep "cannot share memory" "$cluster/joined.err"
check "4 ranks train in a container each" train apart ch-run "$image" -- gannet
expect 0 "WARN .*ranks of one node cannot share memory and use messages: .*ch-run --join" "rank 0 says what that costs" messages apart
warned_once() { [[ $(grep -c "cannot share memory" "$cluster/apart.err") == 1 ]]; }
check "once" warned_once
check "with the same loss" same_loss apart

cp "$GN_SOURCE/tests/jobs/exec_probe" "$cluster/probe"
worlds() {
	on srun -N2 --ntasks-per-node=2 --mpi=pmix ch-run --join "$image" -- gannet exec --as torch "$cluster/probe" torch >"$cluster/probe.out" 2>&1 ||
		{ cat "$cluster/probe.out"; return 1; }
	[[ $(grep -c "of 4 on 2 nodes is right" "$cluster/probe.out") == 4 ]]
}
check "gannet exec makes the right world in them" worlds

# as users do it; 65534 has no home and no right on this machine
nobody() {
	(cd / && exec timeout -k 5 300 setpriv --reuid 65534 --regid 65534 --clear-groups "$GN_SOURCE/slurm/vcluster" run --dir "$cluster/vc" -- \
		srun -N2 --ntasks-per-node=2 --mpi=pmix env USER=nobody ch-run --join "$image" -- gannet train --data "$cluster/train" --model lenet \
		--steps 20 --batch 32 --threads 1)
}
if readable=$(setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$GN_SOURCE/slurm/vcluster" 2>&1); then
	expect 0 "4 ranks on 2 nodes by pmix, .*(posix|sysv)" "so can a user without privileges" nobody
else
	skip "a user without privileges" "who cannot read $GN_SOURCE $readable"
fi
killed() { # a rank that dies in a container ends the others
	local step
	on srun -N2 --ntasks-per-node=2 --mpi=pmix --kill-on-bad-exit=0 ch-run --join "$image" -- gannet train --data "$cluster/train" --model lenet --epochs 500 --batch 32 \
		--threads 1 --log "$cluster/killed.jsonl" --log-every 5 >"$cluster/killed.err" 2>&1 &
	step=$!
	until_true reached "$cluster/killed.jsonl" 5 || { cat "$cluster/killed.err"; return 1; }
	kill -9 "$(pid_of_rank 3)"
	! wait $step || return 1
	cat "$cluster/killed.err"
}
expect 0 "rank 3 on n2" "the loss of one is noticed and named" killed
finish
