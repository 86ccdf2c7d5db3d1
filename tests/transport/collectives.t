#!/bin/bash
# Every collective by every algorithm, all types and reductions, in place and not, on memory of the node's and ordinary memory.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
probe=$GN_BUILD/tests/transport/coll_probe

all_right() { # N TRANSPORT [PROGRESS]
	launch "$1" "$probe" "${@:2}" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	[[ $(grep -c "of $1 on 1 nodes: 0 wrong" "$scratch/out") == "$1" ]]
}
# All types once; how a type is reduced depends neither on the transport nor on who makes progress. ranks.t has all of it for all.
check "3 ranks that share memory: all collectives of all types are right" all_right 3 auto
types() { PROBE_TYPES=$1 all_right "${@:2}"; }
for n in 1 2 4; do
	check "$n ranks that share memory: those of float and double" types 2 "$n" auto
done
check "3 ranks over tcp" types 1 3 tcp
check "4 ranks, progress by a thread: also while nobody calls" types 1 4 auto thread
check "2 ranks over tcp, progress by a thread" types 1 2 tcp thread
check "2 ranks whose transport is shared memory, progress by a thread" types 1 2 shm thread

# what UCX has not given to the socket when the sum is done leaves without another call
leaves() { UCX_TCP_SNDBUF=32k UCX_TCP_RCVBUF=256k launch 2 "$GN_BUILD/tests/transport/tail_probe"; }
check "2 ranks over tcp, progress by a thread: nothing stays behind while nobody calls" leaves

foreign=$GN_BUILD/tests/transport/foreign_probe
same_bits() { # N
	launch "$1" "$foreign" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	[[ $(grep -c "of $1: 0 wrong" "$scratch/out") == "$1" ]]
}
for n in 3 4; do
	check "$n ranks, ordinary memory: the bits of reducing one after the other" same_bits "$n"
done
# The last rank dies in the middle of a long sum.
dies() {
	local n=$1
	timeout -k 5 300 "$gannet" launch -n "$n" --grace 250 -- "$foreign" die >"$scratch/out" 2>"$scratch/err"
	cat "$scratch/err"
	! grep -q wrong "$scratch/out" && (($(grep -c "rank $((n - 1)) .* is lost" "$scratch/err") >= n - 1))
}
for n in 2 4; do
	check "$n ranks, ordinary memory: a rank that is killed is named by the others" dies "$n"
done
finish
