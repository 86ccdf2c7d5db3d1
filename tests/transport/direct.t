#!/bin/bash
# Allreduces in memory that is not the host's and works late: the bits of the host's, whatever the algorithm, and no hang when something breaks.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
probe=$GN_BUILD/tests/transport/direct_probe
rounds=30
[[ ! ${GN_SANITIZED:-} ]] || rounds=8

same_bits() { # N TRANSPORT SEED
	launch "$1" "$probe" "$2" "$3" "$rounds" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	# a rank alone has nothing to add up; all others have had work there
	[[ $(grep -c 'the same bits$' "$scratch/out") == "$1" ]] && { (($1 == 1)) || ! grep ' 0 works' "$scratch/out"; }
}
for n in 1 2 3 4; do
	check "$n ranks" same_bits "$n" auto "$n"
done
check "3 ranks over tcp" same_bits 3 tcp 5
PROBE_PROGRESS=thread check "2 ranks, progress by a thread" same_bits 2 auto 6

# broken FAULT RANK CODES PATTERN: each rank's exit code, and the others name RANK
broken() {
	local codes
	: >"$scratch/codes"
	# shellcheck disable=SC2016 # for the ranks' shell
	launch 3 sh -c '"$@" 2>"$0/err.$PMIX_RANK"; echo "$PMIX_RANK $?" >>"$0/codes"' "$scratch" \
		"$probe" auto 11 50 "$1" "$2" 3 >"$scratch/out" 2>&1
	codes=$(sort "$scratch/codes" | tr '\n' ' ')
	cat "$scratch"/err.* && echo "codes $codes"
	[[ $codes == "$3" ]] && ! grep -q WRONG "$scratch"/err.* && [[ $(grep -l "rank $2 on" "$scratch"/err.* | wc -l) == 2 ]]
}
check "a rank that dies in the middle: the others end and name it" broken exit 1 "0 4 1 0 2 4 "
check "work that fails there: its rank says so, the others name it" broken work 2 "0 4 1 4 2 1 "
finish
