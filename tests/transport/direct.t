#!/bin/bash
# Allreduces in memory that is not the host's and works late: the bits of the host's, whatever the algorithm, and no hang when something breaks.
set -u
# shellcheck source=tests/transport/bits.sh
. "$GN_SOURCE/tests/transport/bits.sh"
probe=$GN_BUILD/tests/transport/device_probe
export PROBE_HOW=direct
rounds=30
[[ ! ${GN_SANITIZED:-} ]] || rounds=8

# a rank alone has nothing to add up; all others have had work there
by_it() { same_bits "$@" && { (($1 == 1)) || ! grep ' 0 works' "$scratch/out"; }; }
for n in 1 2 3 4; do
	check "$n ranks" by_it "$n" auto "$n"
done
check "3 ranks over tcp" by_it 3 tcp 5
PROBE_PROGRESS=thread check "2 ranks, progress by a thread" by_it 2 auto 6

check "a rank that dies in the middle: the others end and name it" broken exit 1 "0 4 1 0 2 4 " "rank 1 on"
check "work that fails there: its rank says so, the others name it" broken work 2 "0 4 1 4 2 1 " "rank 2 on"
finish
