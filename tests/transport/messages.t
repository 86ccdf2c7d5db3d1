#!/bin/bash
# Messages in any order: none lost, in order for each sender, memory bounded, answers, long data, a rank that is given up.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/gn-messages.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
probe=$GN_BUILD/tests/transport/message_probe
export OMP_NUM_THREADS=1
# run RANKS TRANSPORT MODE [COUNT]
run() { timeout -k 5 300 "$GN_BUILD/gannet" launch -n "$1" -- "$probe" "${@:2}"; }

expect 0 'received 349993 held at most [0-9]+ dropped 0' '350,000 messages from seven ranks to a slow one' run 8 shm flood 349999
bounded() { # less than 100 MB at rank 0, which was sent many times that in all if it were held
	run 4 tcp flood 150000 | tee "$scratch/out"
	local mb
	mb=$(sed -n 's/.* resident \([0-9]*\) MB.*/\1/p' "$scratch/out")
	# a sanitizer keeps freed memory for a while
	[[ $mb ]] && ((mb < ${GN_SANITIZED:+4}100))
}
check 'over tcp, in bounded memory' bounded
for transport in shm tcp; do
	expect 0 'answered 1500 ended 0 of 1500 dropped 0' "calls of all lengths between four ranks over $transport" run 4 $transport calls 1500
	expect 0 'ended 300 of 300' "over $transport a rank that is given up ends what concerns it and nothing else" run 4 $transport lost
done
# killed TRANSPORT: what went to the rank that died ended with it, also what the others sent later; all else was answered
killed() {
	timeout -k 5 300 "$GN_BUILD/gannet" launch -n 5 --keep-going -- "$probe" "$1" killed 3000 >"$scratch/out" 2>"$scratch/err"
	cat "$scratch/out" "$scratch/err"
	# shellcheck disable=SC2034 # words
	read -r _ answered _ ended _ <"$scratch/out"
	((answered >= 2900 && ended > 0)) && tail -n 1 "$scratch/err" | grep -q 'rank 4 was killed by signal 9 (Killed); 4 of 5 ranks succeeded'
}
for transport in shm tcp; do
	check "over $transport a rank that is killed ends what concerns it and nothing else" killed $transport
done
# amid TRANSPORT amid|answer: nothing is written into memory that data were to come into, or read from that of an answer
amid() {
	timeout -k 5 300 "$GN_BUILD/gannet" launch -n 2 --keep-going -- "$probe" "$1" "$2" >"$scratch/out" 2>&1
	cat "$scratch/out"
	grep -q 'left with 0 messages' "$scratch/out" && tail -n 1 "$scratch/out" | grep -q 'rank 1 was killed by signal 9 (Killed); 1 of 2 ranks succeeded'
}
for transport in shm tcp; do
	check "over $transport a rank leaves while long data come" amid $transport amid
	check "over $transport a rank leaves while its answer is fetched" amid $transport answer
done
check 'what does not come from this job, or breaks the protocol, is dropped' run 2 shm forged
export PROBE_PROGRESS=thread
expect 0 'answered 500 ended 0 of 500 dropped 0' 'with a progress thread' run 3 auto calls 500
finish
