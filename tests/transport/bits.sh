# shellcheck shell=bash
# For tests of sums in memory that is not the host's: source it, and name the probe, which takes TRANSPORT SEED ROUNDS [FAULT RANK AFTER].
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
# shellcheck disable=SC2034
rounds=12
[[ ! ${GN_SANITIZED:-} ]] || rounds=4

same_bits() { # N TRANSPORT SEED: all ranks found the host's bits
	launch "$1" "$probe" "$2" "$3" "$rounds" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	[[ $(grep -c 'the same bits$' "$scratch/out") == "$1" ]]
}

# broken FAULT RANK CODES PATTERN: RANK does it, each rank ends with its code, and the two others say which it was
broken() {
	local codes
	: >"$scratch/codes"
	# shellcheck disable=SC2016 # for the ranks' shell
	launch 3 sh -c '"$@" 2>"$0/err.$PMIX_RANK"; echo "$PMIX_RANK $?" >>"$0/codes"' "$scratch" \
		"$probe" auto 11 50 "$1" "$2" 3 >"$scratch/out" 2>&1
	codes=$(sort "$scratch/codes" | tr '\n' ' ')
	cat "$scratch"/err.* && echo "codes $codes"
	[[ $codes == "$3" ]] && ! grep -q WRONG "$scratch"/err.* &&
		[[ $(grep -l "$4" "$scratch"/err.* | wc -l) == 2 ]]
}
