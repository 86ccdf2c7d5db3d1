#!/bin/bash
# tests/harness counts, names what was not built, tells how far it is, and runs what failed once more only when it is told to;
# tests/run configures again when what configure saw has changed.
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

unbuilt() { # FILE...: as without cmocka and CUDA
	harness 0 --unbuilt 'tests/=no cmocka' --unbuilt 'tests/gpu/=no CUDA' "$@"
}
expect 0 '^1 passed, 0 failed, 3 skipped$' "test programs that were not built are counted as skipped" unbuilt tests/a/test_b tests/gpu/test_c good.t
expect 0 'tests/a/test_b # SKIP not built: no cmocka' "and named, with the reason" unbuilt tests/a/test_b good.t
expect 0 'tests/gpu/test_c # SKIP not built: no CUDA' "which is that of the longest prefix" unbuilt tests/gpu/test_c good.t
expect 1 '^1 passed, 1 failed, 1 skipped$' "one without a reason is a failure" harness 0 tests/a/test_b good.t
expect 1 'tests/a/test_b is not there' "that names it" harness 0 tests/a/test_b good.t
for copy in two three; do cp "$dir/good.t" "$dir/$copy.t"; done
expect 0 '^file 1 of 3, about [0-9]+ s left$' "it tells how far it is" harness 0 good.t two.t three.t
expect 0 '^file 3 of 3$' "up to the last" harness 0 good.t two.t three.t
# The last file is known to take an hour, the others a millisecond.
known() {
	printf '%s\n' "0.001 $dir/good.t" "0.001 $dir/two.t" "3600 $dir/bad.t" >"$dir/times"
	harness 0 --times "$dir/times" good.t two.t bad.t
}
expect 1 '^file 2 of 3, about (59|6[0-9]) min left$' "the estimate knows what files took" known
check "and what they take is kept" grep -q "^0\.[0-9]* $dir/bad.t$" "$dir/times"

# A tree in which configure counts how often it runs and there is one test.
fake=$dir/fake
mkdir -p "$fake/tests" "$fake/slurm" "$fake/pc"
cp "$GN_SOURCE/tests/run" "$fake/tests/"
cat >"$fake/configure" <<'CONFIGURE'
#!/bin/bash
echo "$@" >>configured
printf '#!/bin/bash\n[[ $1 != --recheck ]] || echo "recheck" >>configured\n' >config.status
chmod +x config.status
printf 'check-programs:\ncheck-local:\n\t@echo 1 passed, 0 failed, 0 skipped\n' >Makefile
CONFIGURE
chmod +x "$fake/configure"
configured() { # TIMES OPTION...: after tests/run OPTION... configure has run TIMES times
	PKG_CONFIG_LIBDIR=$fake/pc timeout -k 5 300 bash "$fake/tests/run" --no-install "${@:2}" || return 1
	[[ $(wc -l <"$fake/build/configured") == "$1" ]]
}
check "tests/run configures" configured 1
check "once" configured 1
printf 'Name: cmocka\nVersion: 1.1\n' >"$fake/pc/cmocka.pc"
check "and again when a package came" configured 2
check "not twice" configured 2
sed -i 's/1.1/1.2/' "$fake/pc/cmocka.pc"
check "when it has another version" configured 3
rm "$fake/pc/cmocka.pc"
check "when it went" configured 4
rm "$fake"/build/.gn-*
check "and in a build that slurm/demo configured" configured 5
check "which keeps its options" grep -q recheck "$fake/build/configured"
check "with other options anew" configured 6 --enable-werror
expect 0 '^Usage: slurm/install-packages .*GROUP' "install-packages --help is no group" bash "$GN_SOURCE/slurm/install-packages" --help
expect 0 '^  tests/run  .*everything but for what tests/long runs' "tests/run says what it leaves out" bash "$GN_SOURCE/tests/run" --help
is_group() { bash "$GN_SOURCE/slurm/install-packages" --missing "$1"; (($? < 2)); }
check "what tests/long installs for trixie is a group" is_group distro
finish
