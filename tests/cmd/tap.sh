# TAP for shell tests. Source it, call check, expect or skip once for each point, end with finish.
# What a failed point has to say goes to standard error, which the harness passes on.
tap_points=0

tap_point() { # "ok"|"not ok" NAME
	tap_points=$((tap_points + 1))
	printf '%s %d - %s\n' "$1" "$tap_points" "$2"
}

# tap_say WHAT: that, and what the command printed; where that is TAP itself, what failed in it comes last, so that a log which is
# cut still has it.
tap_say() {
	{
		printf '%s\n' "${0##*/}, point $tap_points: $1" "$tap_output"
		printf '%s\n' "$tap_output" | grep -A2 '^not ok'
	} | sed 's/^/# /' >&2
}

# check NAME COMMAND...: the command succeeds. Its output is shown only when it does not.
check() {
	tap_name=$1
	shift
	if tap_output=$("$@" 2>&1); then
		tap_point ok "$tap_name"
	else
		tap_code=$?
		tap_point 'not ok' "$tap_name"
		tap_say "exit code $tap_code of: $*"
	fi
}

# expect CODE PATTERN NAME COMMAND...: the command ends with CODE and something it prints matches PATTERN (grep -E).
expect() {
	tap_wanted=$1 tap_pattern=$2 tap_name=$3
	shift 3
	tap_output=$("$@" 2>&1)
	tap_code=$?
	if [ "$tap_code" -eq "$tap_wanted" ] && printf '%s\n' "$tap_output" | grep -Eq -e "$tap_pattern"; then
		tap_point ok "$tap_name"
	else
		tap_point 'not ok' "$tap_name"
		tap_say "exit code $tap_code, wanted $tap_wanted and '$tap_pattern' from: $*"
	fi
}

skip() { # NAME REASON
	tap_points=$((tap_points + 1))
	printf 'ok %d - %s # SKIP %s\n' "$tap_points" "$1" "$2"
}

# A test waits for a condition, never for a time; this limit, and the one behind timeout, are only there against what hangs.
tap_limit=300

# until_true COMMAND...: until it succeeds
until_true() {
	tap_end=$(($(date +%s) + tap_limit))
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt "$tap_end" ] || return 1
		sleep 0.02
	done
}

# await_line COUNT PATTERN FILE: until COUNT lines match
await_line() { until_true lines_match "$@"; }
lines_match() { [ "$(grep -c -e "$2" "$3" 2>/dev/null)" -ge "$1" ]; }

finish() {
	printf '1..%d\n' "$tap_points"
}
