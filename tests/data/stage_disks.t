#!/bin/bash
# gannet stage with a node whose disk fails or is full, or that cannot read the source: it fails alone, says which file and why, has no
# copy under the final name and is complete after the next run; a node that cannot read gets all from the others.
set -u
tree_mb=20 tree_files=100
# shellcheck source=tests/data/tree.sh
. "$GN_SOURCE/tests/data/tree.sh"
# shellcheck disable=SC2154 # tree.sh sets work and gannet
shim=$work/disk.so
if [ "${GN_SANITIZED-}" ] || [ "$(id -u)" -ne 0 ] || ! unshare --uts true 2>/dev/null; then
	skip 'a faulty disk' 'host names of their own need root, and a preloaded library a build without sanitizers'
	finish
	exit
fi
if ! ${CC:-cc} -shared -fPIC -o "$shim" "$GN_SOURCE/tests/data/faulty_disk.c" -ldl 2>"$work/cc.err"; then
	cat "$work/cc.err"
	skip 'a faulty disk' 'the library of failures cannot be compiled'
	finish
	exit
fi
# nodes RANK FOLDER FAILURE FROM TO [RANKS [OPTION...]]: on three nodes of one rank each; FOLDER of RANK fails
nodes() {
	# shellcheck disable=SC2016 # for the rank's shell
	GN_FAIL_RANK=$1 GN_FAIL_BELOW=$2 GN_FAIL=$3 timeout -k 5 300 "$gannet" launch -n "${6:-3}" --keep-going -- unshare --uts sh -c \
		'hostname node$PMIX_RANK && echo $$ >pid.$PMIX_RANK && shim=$1 to=$2 && shift 2 && exec env LD_PRELOAD="$shim" "$@" --to "$to/n$PMIX_RANK"' \
		sh "$shim" "$5" "$gannet" stage --json --from "$4" "${@:7}" 2>&1
}
text_of() { perl -e '$! = shift; print "$!"' "$1"; }
eio=5 enospc=28 estale=116 tried=

for failure in "pwrite64 $eio 3" "pwrite $eio 3" "pwrite64 $enospc 20" "ftruncate $enospc 1" "mkdir $enospc 4" "write $eio 2" "syncfs $eio 0" "rename $eio 0" "fsync $eio 0"; do
	read -r call code _ <<<"$failure"
	at=$work/$call-$code below=$work/$call-$code/n1
	# of the folder around the copy, once that has its name
	[ "$call" != fsync ] || below=$at
	nodes 1 "$below" "$failure" src "$at" >out
	rc=$?
	# of two names of one call, libc uses one
	if [ "$rc" -eq 0 ] && [ "${call#pwrite}" != "$call" ]; then continue; fi
	tried+=" $call"
	failed() {
		cat out
		[ "$rc" -ne 0 ] && grep -q "node1: not staged: .*/n1.*: $(text_of "$code")" out && grep -q '"failed_nodes": 1' out
	}
	check "$call fails ($(text_of "$code")): the node says so" failed
	[ "$call" = fsync ] || check 'has no copy under that name' test ! -e "$at/n1"
	check 'the others are complete' alike "$at/n0" "$at/n2"
	expect 0 '"failed_nodes": 0' 'and the next run completes it' nodes none none none src "$at"
	check 'rightly' alike "$at/n1"
	rm -rf "$at"
done
check 'of both names of pwrite one is used' grep pwrite <<<"$tried"
for code in $eio $estale; do
	at=$work/read-$code
	for call in pread pread64; do nodes 1 "$work/src" "$call $code 0" src "$at" >"out.$call"; rm -rf "$work/once"; mv "$at" "$work/once"; grep -q "$(text_of "$code")" "out.$call" && break; done
	told() { cat out.pread*; grep -q "$(text_of "$code"); gets everything from other nodes" out.pread*; }
	check "a node cannot read the source ($(text_of "$code"))" told
	check 'and gets all from the others' alike once/n0 once/n1 once/n2
	rm -f out.pread*
done

# A node dies while rank 0 has a chunk of it in hand, which no node but rank 0 can read then. Five writes wait: one at least is of a chunk
# that was sent, as rank 0 reads four itself.
lost_meanwhile() {
	local job code
	rm -f go stalled
	nodes 0 "$work/lost/n0" 'stall 5 0' src lost 2 --threads 16 >out &
	job=$!
	until_true test -e stalled && kill -KILL "$(cat pid.1)" && until_true grep -q 'node1: not staged: its leader was lost' out && touch go
	wait $job
	code=$?
	cat out
	((code != 124 && code != 137)) && grep -q '"nodes": 2, "failed_nodes": 1' out && alike lost/n0
}
check 'a node is lost while its chunk is written elsewhere: the other completes' lost_meanwhile

# Who begins to read an earlier copy does not wait for the disk to take the new one, which may take longer than a reader waits.
cp -a src newer && touch newer/big
read_meanwhile() {
	local job code held
	rm -f go stalled
	nodes none none none src again 1 >out || return 1
	nodes 0 "$work/again/n0" 'stall-syncfs 1 0' newer again 1 >out &
	job=$!
	until_true test -e stalled && flock --shared --nonblock again/n0 true
	held=$?
	touch go
	wait $job
	code=$?
	cat out
	((code == 0 && held == 0)) && test ! again/n0/big -ot newer/big
}
check 'an earlier copy can be read while the disk takes the new one' read_meanwhile

# The sync that is under way when all is there is told that the disk failed, and that of the end is not.
mkdir many && head -c 20000000 /dev/urandom | split -b 250000 - many/
failed_beside() {
	nodes 0 "$work/beside/n0" "late-syncfs $eio 20000000" many beside 1 --threads 4 >out
	local code=$?
	cat out
	((code != 0)) && grep -q "cannot sync .*: $(text_of "$eio")" out && test ! -e beside/n0
}
check 'a sync that fails beside the end: no copy under that name' failed_beside
expect 0 '"failed_nodes": 0' 'and the next run completes it' nodes none none none many beside 1
check 'rightly' diff -r many beside/n0

# a disk that gets full: the space is there at first, the inodes are not
if unshare --mount true 2>/dev/null; then
	full() { # MOUNT-OPTIONS
		# shellcheck disable=SC2016 # for the inner shell
		timeout -k 5 300 unshare --mount sh -c 'mount -t tmpfs -o "$1" none small && shift && { "$@"; code=$?; ls small >listing; exit $code; }' sh "$1" \
			"$gannet" stage --from src --to small/copy
	}
	mkdir small
	expect 1 'no space left for .*needed' 'no space' full size=20m
	expect 1 'No space left on device' 'no inodes' full size=100m,nr_inodes=60
	check 'nothing under the final name' test -s listing -a -z "$(grep -x copy listing)"
else
	skip 'a full disk' 'mounting needs root'
fi
finish
