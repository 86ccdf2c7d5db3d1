#!/bin/bash
# Allreduces staged through the host's memory: the bits of the direct ones, whatever the sizes, and no hang when something breaks.
set -u
# shellcheck source=tests/transport/bits.sh
. "$GN_SOURCE/tests/transport/bits.sh"
probe=$GN_BUILD/tests/transport/device_probe
export PROBE_HOW=staged

for n in 1 2 3 4; do
	check "$n ranks that share memory" same_bits "$n" auto "$n"
done
check "3 ranks over tcp" same_bits 3 tcp 5
PROBE_PROGRESS=thread check "2 ranks, progress by a thread" same_bits 2 auto 6

# faster SLOW NAME: all ranks take the other of two ways, NAME, and rank 0 says what it measured
faster() {
	launch 2 "$probe" auto choose "$1" >"$scratch/out" 2>&1
	cat "$scratch/out"
	[[ $(grep -c "takes $2$" "$scratch/out") == 2 ]] &&
		[[ $(grep -c "allreduce of GPU memory by $2, the fastest of: library 64 KiB in .* ms; ucx 64 KiB in" "$scratch/out") == 1 ]]
}
check "the second of two ways is slow on one rank: all take the first" faster 1 library
check "the first is" faster 0 ucx

check "a rank that dies in the middle: the others end and name it" broken exit 1 "0 4 1 0 2 4 " "rank 1 on"
check "a copy that fails: its rank says so, the others name it" broken work 2 "0 4 1 4 2 1 " "rank 2 on"
check "an operation freed in flight ends the run, not the program's memory" broken free 0 "0 1 1 4 2 4 " "rank 0 on"
finish
