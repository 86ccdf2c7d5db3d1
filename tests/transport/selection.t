#!/bin/bash
# The algorithms that the cost model selects are the fastest by the simulator, within 5 %: every collective on 2 to 16 ranks, even,
# uneven and cyclic nodes, guessed costs of InfiniBand and TCP, 64 B to 16 MiB. tests/long has more.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
grid() { timeout -k 5 300 "$GN_BUILD/tests/transport/selection_grid" "$@" >"$scratch/grid"; }

timeout -k 5 300 "$GN_BUILD/tests/transport/selection_grid" --placement 8x1 --list >"$scratch/itself"
grid
code=$?
grep '^#' "$scratch/grid"
((code == 0)) || awk -F'\t' '!/^#/ && $NF > 1.05 { print "# slower: " $0 }' "$scratch/grid"
check "the fastest are selected" test "$code" = 0
check "and what is selected is not slower than itself" grid --placement 8x1 --choices "$scratch/itself"
grid --placement 8x1 --algo ring
check "a ring for everything is found to be slower" test $? = 1
finish
