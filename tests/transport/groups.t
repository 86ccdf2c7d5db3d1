#!/bin/bash
# Groups of ranks (gn_comm_split): random splits, nested and overlapping, several in flight at once, each rank in an order of its own;
# every result is checked. Ranks of a node share memory in every group.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
probe=$GN_BUILD/tests/transport/group_probe
export OMP_NUM_THREADS=1
stalled=$(mktemp)
trap 'rm -f "$stalled"' EXIT
seed=${GN_SEED:-$((RANDOM + 1))}
echo "# GN_SEED=$seed"
# run RANKS TRANSPORT ROUNDS
run() { timeout -k 5 300 "$GN_BUILD/gannet" launch -n "$1" -- "$probe" "$2" "$3" "$seed"; }
# run_on HOST-EXPRESSION RANKS TRANSPORT ROUNDS: hosts by the rank's number, in namespaces for names of their own
run_on() {
	# shellcheck disable=SC2016 # for the shell of each rank
	timeout -k 5 300 "$GN_BUILD/gannet" launch -n "$2" -- unshare --uts bash -c 'hostname "node$(('"$1"'))" && exec "$0" "$@"' \
		"$probe" "$3" "$4" "$seed"
}

# It takes 5 s until a stall is told, in which the other points run.
timeout -k 5 300 "$GN_BUILD/gannet" launch -n 4 -- "$probe" auto stall >"$stalled" 2>&1 &
stall=$!

# a computation of minutes with sanitizers
more=(12) tcp=(4)
[[ ! ${GN_SANITIZED:-} ]] || more=() tcp=(4)
for ranks in 2 3 5 "${more[@]}"; do
	expect 0 '^in [0-9]+ groups, [1-9][0-9]* times' "$ranks ranks that share memory" run $ranks auto $((20 / ranks + 3))
done
for ranks in "${tcp[@]}"; do expect 0 '^in [0-9]+ groups' "$ranks ranks over tcp" run $ranks tcp 6; done
expect 0 '^64 of 66 groups share memory, then 2 of 2' "more groups than may share memory" \
	timeout -k 5 300 "$GN_BUILD/gannet" launch -n 2 -- "$probe" auto many
wait $stall
code=$?
expect 1 'barrier .shared. in half.1..*(waiting for rank 3|rank 3 .*never started it)' 'a rank that does not come to its group is named' \
	sh -c 'cat "$0"; exit "$1"' "$stalled" $code
PROBE_PROGRESS=thread expect 0 '^in [0-9]+ groups, [1-9][0-9]* times' "with progress threads" run 4 auto 8
if ((UID == 0)) && unshare --uts true 2>/dev/null; then
	expect 0 '^in [0-9]+ groups' "two ranks a node over tcp" run_on 'PMIX_RANK / 2' 6 tcp 6
	expect 0 '^in [0-9]+ groups, [1-9][0-9]* times' "uneven nodes" run_on 'PMIX_RANK * PMIX_RANK / 9' 7 auto 6
	expect 0 '^in [0-9]+ groups' "uneven nodes over tcp" run_on 'PMIX_RANK * PMIX_RANK / 9' 7 tcp 6
	expect 0 '^in [0-9]+ groups, [1-9][0-9]* times' "ranks of a node that are no neighbours" run_on 'PMIX_RANK % 3' 8 auto 5
else
	skip "nodes" "host names of their own need root"
fi
finish
