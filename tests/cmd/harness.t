#!/bin/bash
# tests/harness counts, and runs what failed once more only when it is told to.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
write() { # FILE LINE...
	printf '%s\n' '#!/bin/bash' "${@:2}" >"$dir/$1"
	chmod +x "$dir/$1"
}
write good.t 'echo "ok 1 - a"' 'echo "ok 2 - b # SKIP no"' 'echo 1..2'
write bad.t 'echo "not ok 1 - a"' 'echo "ok 2 - b"' 'echo 1..2'
write dead.t 'echo "ok 1 - a"' 'exit 3'
write once.t "[ -e '$dir/seen' ] || printf 'not '" 'echo "ok 1 - a"' 'echo 1..1' "touch '$dir/seen'"

harness() { # AGAIN FILE...
	rm -f "$dir/seen"
	GN_AGAIN=$1 GN_VERBOSE='' perl "$GN_SOURCE/tests/harness" --source "$dir" "${@:2}"
}
expect 0 '^1 passed, 0 failed, 1 skipped$' "what holds, and what is skipped" harness 0 good.t
expect 1 '^2 passed, 1 failed, 1 skipped$' "a point that fails" harness 0 good.t bad.t
expect 1 '^2 passed, 1 failed, 1 skipped$' "a file that dies is a failure, whatever it has printed" harness 0 good.t dead.t
expect 1 '^1 passed, 1 failed, 1 skipped$' "nothing is run twice unless asked for" harness 0 good.t once.t
expect 0 '^2 passed, 0 failed, 1 skipped$' "what fails once and then holds has passed" harness 2 good.t once.t
expect 0 '^UNSTABLE: .*once\.t failed, and then held$' "and is named" harness 2 good.t once.t
expect 1 '^2 passed, 1 failed, 0 skipped$' "what fails twice has failed" harness 2 once.t bad.t
expect 1 '^1 passed, 2 failed, 0 skipped$' "more files than allowed are not run again" harness 1 once.t bad.t
finish
