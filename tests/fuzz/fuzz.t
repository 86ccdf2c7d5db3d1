#!/bin/sh
# Runs each fuzzer for FUZZ_SECONDS (10) from a fresh corpus of good files. What breaks it is kept in the build folder.
# usage: make fuzz [FUZZ_SECONDS=N]
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR="$work" LSAN_OPTIONS="suppressions=$GN_SOURCE/tests/fuzz/lsan.supp:print_suppressions=0"

good() { # NAME
	find "$work/$1" -type f ! -name 'bad-*' -exec env FUZZ_GOOD=1 "$GN_BUILD/tests/fuzz/bin/fuzz_$1" {} +
}
fuzz() { # NAME
	"$GN_BUILD/tests/fuzz/bin/fuzz_$1" -max_total_time="${FUZZ_SECONDS:-10}" -timeout=20 -rss_limit_mb=2048 -max_len=65536 \
		-print_final_stats=1 -artifact_prefix="$GN_BUILD/tests/fuzz/$1-" "$work/$1" >"$work/$1.log" 2>&1
	code=$?
	[ $code -eq 0 ] || tail -60 "$work/$1.log"
	return $code
}

check 'a seed corpus' "$GN_SOURCE/tests/fuzz/seeds" "$work"
for fuzzer in $FUZZERS; do
	check "$fuzzer accepts good files" good "$fuzzer"
	check "$fuzzer withstands made-up bytes" fuzz "$fuzzer"
	sed -n 's/^stat::number_of_executed_units: */# inputs tried: /p' "$work/$fuzzer.log"
done
finish
