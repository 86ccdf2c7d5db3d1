#!/bin/bash
# Memory that ranks of one node share: it is taken when it is needed, and one that finds none says so and is not killed by SIGBUS.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
probe=$GN_BUILD/tests/transport/resident_probe

# few RANKS START AFTER: so many KiB of the node's shared memory, at most, are resident in each rank
few() {
	launch "$1" "$probe" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	cat "$scratch/out"
	awk -v n="$1" -v start="$2" -v after="$3" '
		{
			for (i = 1; i < NF; i++) {
				if ($i == "start" || $i == "after") when = $i
				if ($i == "gannet") has[when] = $(i + 1)
			}
			count++
			wrong += has["start"] > start || !has["after"] || has["after"] > after
		}
		END { exit count != n || wrong }' "$scratch/out"
}
# all of what a rank may share for collectives were 19 MB, of each rank in every other: 297 MB of 16 ranks
check "16 ranks: few of the pages that neighbours share are resident" few 16 4096 16384
check "4 ranks: no more than the stage from the start" few 4 12288 20480

# No memory is left for the K-th request of rank 1, or of all: it is named, whoever waits ends, and no rank dies of a signal. Ends at
# the first K that is never asked for.
runs_out() { # RANKS WHO
	local k code
	for ((k = 1; k < 40; k++)); do
		# shellcheck disable=SC2016 # for the shell in there
		COMMIT_FAILS=$k launch "$1" sh -c '[ "$1" = all ] || [ "$1" = "$PMIX_RANK" ] || unset COMMIT_FAILS; exec "$0"' \
			"$probe" "$2" >"$scratch/out" 2>"$scratch/err"
		code=$?
		[[ $code == 0 ]] && break
		if [[ $code != [14] ]] || ! grep -q 'cannot allocate [0-9]* bytes of shared memory: No space left' "$scratch/err" ||
			grep -q 'killed by signal' "$scratch/err"; then
			echo "request $k: code $code"
			cat "$scratch/err"
			return 1
		fi
	done
	echo "$((k - 1)) requests"
	((k > 4 && k < 40))
}
check "4 ranks, no memory for any request: an error each time" runs_out 4 all
check "6 ranks, no memory for one rank's: nobody hangs" runs_out 6 1

small_shm() { # SIZE
	unshare --mount bash -c 'mount -t tmpfs -o "size=$1" none /dev/shm && shift && exec "$@"' bash "$1" \
		timeout -k 5 300 "$gannet" launch -n 2 -- "$probe"
}
if ((UID)) || ! unshare --mount true 2>/dev/null; then
	skip "no room in /dev/shm" "mounting a small tmpfs needs root"
else
	expect 1 "UCX needs 4.4 MB of /dev/shm for each rank, and .* are free.*--shm-size" "no room in /dev/shm is an error that says so" small_shm 3m
fi
finish
