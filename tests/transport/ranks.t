#!/bin/bash
# What launch.t and collectives.t ask of a few numbers of ranks: 1 to 5 over each transport, every type with each way to make progress.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"

all_right() { # PROBE N TRANSPORT [PROGRESS]: every rank reports no wrong element
	launch "$2" "$GN_BUILD/tests/transport/$1" "${@:3}" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	[[ $(grep -c "of $2 on 1 nodes.*: 0 wrong" "$scratch/out") == "$2" ]]
}
for transport in shm tcp; do
	for n in 1 2 3 4 5; do check "$n ranks over $transport: collectives are right" all_right rank_probe "$n" "$transport"; done
done
asleep() { GANNET_WAIT='sleep' all_right "$@"; }
check "2 ranks over tcp that sleep while they wait" asleep rank_probe 2 tcp
# shellcheck disable=SC2016
in_turn() {
	launch 2 sh -c '"$0" shm && "$0" shm && "$0" shm && exec "$0" shm' "$probe" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/err"; return 1; }
	[[ $(grep -c "of 2 on 1 nodes by pmix: 0 wrong" "$scratch/out") == 8 ]]
}
check "four programs one after the other" in_turn
# shellcheck disable=SC2016
all_output() { # ranks that end together, and before the launcher first looks
	for _ in $(seq 40); do [[ $("$gannet" launch -n 8 -- echo x | wc -l) == 8 ]] || return 1; done
}
check "no output of short programs is lost" all_output
mismatch() { # whoever ends first gives the code, 2 or 4; no rank says that all is well
	launch 3 "$probe" shm mismatch 5000 >"$scratch/out" 2>&1
	[[ $? == [24] ]] && ! grep -q "0 wrong" "$scratch/out" && grep -q "disagree about operation number .* rank 1 on .* started allreduce of" "$scratch/out"
}
check "ranks that reduce 5000 and one less elements are told" mismatch

for n in 1 2 3 4; do check "$n ranks that share memory: all collectives, all types" all_right coll_probe "$n" auto; done
check "3 ranks over tcp: all types" all_right coll_probe 3 tcp
for n in 2 4; do
	for transport in auto tcp; do
		check "$n ranks over $transport, progress by a thread: all types" all_right coll_probe "$n" $transport thread
	done
done
check "2 ranks over shm, progress by a thread: all types" all_right coll_probe 2 shm thread
same_bits() { # N
	launch "$1" "$GN_BUILD/tests/transport/foreign_probe" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	[[ $(grep -c "of $1: 0 wrong" "$scratch/out") == "$1" ]]
}
for n in 2 3 4; do check "$n ranks, ordinary memory: the bits of reducing one after the other" same_bits "$n"; done

for type in double half bfloat16 int32 int64; do
	for redop in max min avg; do
		expect 0 "^{" "bench allreduce of $type, $redop" launch 3 "$gannet" bench allreduce --iters 3 --warmup 1 --type $type --redop $redop --json \
			--min-bytes 4 --max-bytes 32K --factor 128
	done
done
finish
