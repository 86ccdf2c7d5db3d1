#!/bin/bash
# Messages between two ranks: the right bytes whatever the order, sizes, groups and memory; and what is said when one never comes.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
probe=$GN_BUILD/tests/transport/p2p_probe
rounds=6
[[ ! ${GN_SANITIZED:-} ]] || rounds=3
# Both take 5 s until a stall is told, in which the other points run.
for kind in 0 1; do
	launch 2 "$probe" auto stall $kind >"$scratch/out.$kind" 2>"$scratch/err.$kind" &
	stalls[kind]=$!
done

right() { # N TRANSPORT SEED
	launch "$1" "$probe" "$2" "$3" "$rounds" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	[[ $(grep -c 'bytes are right$' "$scratch/out") == "$1" ]]
}
check "2 ranks that share memory" right 2 auto 1
check "4 ranks" right 4 auto 2
check "3 ranks over tcp" right 3 tcp 3
PROBE_HOW=direct check "3 ranks, from device memory itself" right 3 auto 4
PROBE_PROGRESS=thread check "3 ranks, progress by a thread" right 3 auto 5

lost() {
	launch 3 "$probe" auto 6 50 1 3 >"$scratch/out" 2>"$scratch/err" && return 1
	cat "$scratch/err"
	[[ $(grep -c '^rank 1 on .* is lost: its connection closed' "$scratch/err") == 2 ]]
}
check "a rank that dies in the middle: the others end and name it" lost
stalled() { # KIND PATTERN...
	cat "$scratch/err.$1"
	((codes[$1] > 0)) && grep -qE "$2" "$scratch/err.$1"
}
waits='rank %d on [^ ]* waits for a message of rank %d, tag %d \(receive of 64 B in pipe\[0\]\), for [0-9.]* s; rank %d on [^ ]*: it is in a message, receive of 64 B in pipe\[0\], tag %d, '
for kind in 0 1; do wait "${stalls[kind]}"; codes[kind]=$?; done
# shellcheck disable=SC2059 # patterns of one form
check "each waits for a message of the other: the report says tags and group" stalled 0 \
	"$(printf "$waits" 0 1 7 1 8)|$(printf "$waits" 1 0 8 0 7)"
check "one waits for a message, the other in a barrier" stalled 1 \
	'barrier \(shared\), has stalled; rank 0 on [^ ]* never started it: it is in a message, receive of 64 B in pipe\[0\], tag 7, .*waiting for rank 1|rank 0 on [^ ]* waits for a message of rank 1, tag 7 \(receive of 64 B in pipe\[0\]\), for .*: it is in operation number [0-9]*, barrier'
finish
