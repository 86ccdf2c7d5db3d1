#!/bin/bash
# Gradients summed in buckets: of the host's memory and of a device's, with and without overlap.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
probe=$GN_BUILD/tests/train/exchange_probe

right() { # N
	launch "$1" "$probe" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/err"; return 1; }
	[[ $(grep -c 'buckets are right$' "$scratch/out") == $((4 * $1)) ]]
}
for n in 1 2 3; do
	check "$n ranks" right "$n"
done
finish
