#!/bin/bash
# gannet stage with a node that damages what it sends: found by the receivers, named, asked no more; all nodes get right copies.
set -u
tree_mb=20 tree_files=100
# shellcheck source=tests/data/tree.sh
. "$GN_SOURCE/tests/data/tree.sh"
sanitized=${GN_SANITIZED-}
# shellcheck disable=SC2154 # tree.sh sets work and gannet
shim=$work/faulty.so
if [ "$sanitized" ] || [ "$(id -u)" -ne 0 ] || ! unshare --uts true 2>/dev/null; then
	skip 'a faulty node' 'host names of their own need root, and a preloaded library a build without sanitizers'
	finish
	exit
fi
if ! ${CC:-cc} -shared -fPIC -o "$shim" "$GN_SOURCE/tests/data/faulty_sender.c" -ldl -lcrypto 2>"$work/cc.err"; then
	cat "$work/cc.err"
	skip 'a faulty node' 'the library that damages messages cannot be compiled'
	finish
	exit
fi
# Each rank is a node with a name of its own; one of them is faulty.
nodes() { # TO RANKS FAULTY HOW
	# shellcheck disable=SC2016,SC2154 # for the rank's shell
	TO=$1 GN_FAULTY_RANK=$3 GN_FAULTY=$4 timeout -k 5 300 "$gannet" launch -n "$2" --keep-going -- unshare --uts sh -c \
		'hostname node$PMIX_RANK && exec env LD_PRELOAD="$1" "$2" stage --json --from src --to "$TO/n$PMIX_RANK"' sh "$shim" "$gannet" 2>"$work/err"
	local code=$?
	cat "$work/err"
	return $code
}
all_alike() { # TO RANKS
	local n
	for ((n = 0; n < $2; n++)); do alike "$1/n$n" || return 1; done
}
for how in plain believed; do
	expect 0 '"nodes": 4, "failed_nodes": 0,.*"wrong_chunks": [1-9]' "a node that damages what it sends ($how)" nodes "$how" 4 2 $how
	check 'is named, once' test "$(grep -c 'node2 (rank 2) sent a wrong chunk' "$work/err")" = 1
	check 'and all have right copies' all_alike "$how" 4
done
expect 0 '"failed_nodes": 0,.*"wrong_chunks": [1-9]' 'rank 0 may be it' nodes zero 3 0 believed
check 'which is named' grep -q 'node0 (rank 0) sent a wrong chunk' "$work/err"
check 'and all have right copies' all_alike zero 3
expect 0 '"nodes": 4, "failed_nodes": 1,' 'a node is lost before it sends the listing on' nodes listing 4 1 lost
check 'and before it begins' test ! -e listing/n1.gannet-part
check 'and the others get it of rank 0' alike listing/n0 listing/n2 listing/n3
rm -rf zero/n1 zero/n1.*
expect 0 '"wrong_chunks": [1-9]' 'a wrong chunk of a copy on disk' nodes zero 2 0 plain
check 'is read from the source instead' all_alike zero 2
finish
