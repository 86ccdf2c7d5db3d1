#!/bin/bash
# tests/harness counts, names what was not built, tells how far it is, and runs nothing twice; tests/run configures again when what
# configure saw has changed; tests/long draws by a commit.
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

harness() { # FILE...
	rm -f "$dir/seen"
	GN_VERBOSE='' perl "$GN_SOURCE/tests/harness" --source "$dir" "$@"
}
expect 0 '^1 passed, 0 failed, 1 skipped$' "what holds, and what is skipped" harness good.t
expect 1 '^2 passed, 1 failed, 1 skipped$' "a point that fails" harness good.t bad.t
expect 1 '^2 passed, 1 failed, 1 skipped$' "a file that dies is a failure, whatever it has printed" harness good.t dead.t
expect 1 '^1 passed, 1 failed, 1 skipped$' "what fails has failed, and is not run again" harness good.t once.t

unbuilt() { # FILE...: as without cmocka and CUDA
	harness --unbuilt 'tests/=no cmocka' --unbuilt 'tests/gpu/=no CUDA' "$@"
}
expect 0 '^1 passed, 0 failed, 3 skipped$' "test programs that were not built are counted as skipped" unbuilt tests/a/test_b tests/gpu/test_c good.t
expect 0 'tests/a/test_b # SKIP not built: no cmocka' "and named, with the reason" unbuilt tests/a/test_b good.t
expect 0 'tests/gpu/test_c # SKIP not built: no CUDA' "which is that of the longest prefix" unbuilt tests/gpu/test_c good.t
expect 1 '^1 passed, 1 failed, 1 skipped$' "one without a reason is a failure" harness tests/a/test_b good.t
expect 1 'tests/a/test_b is not there' "that names it" harness tests/a/test_b good.t
for copy in two three; do cp "$dir/good.t" "$dir/$copy.t"; done
expect 0 '^file 1 of 3, about [0-9]+ s left$' "it tells how far it is" harness good.t two.t three.t
expect 0 '^file 3 of 3$' "up to the last" harness good.t two.t three.t
# Programs keep their order; the last is known to take an hour, the others a millisecond.
known() {
	printf '%s\n' "0.001 one" "0.001 other" "3600 hour" >"$dir/times"
	harness --jobs 1 --times "$dir/times" one other hour
}
for name in one other hour; do write $name 'echo "ok 1 - a"' 'echo 1..1'; done
expect 0 '^file 2 of 3, about (59|[6-9][0-9]|[0-9]{3,}) min left$' "the estimate knows what files took" known
check "and what they take is kept" grep -q "^0\.[0-9]* hour$" "$dir/times"
# A test tells its place in the order.
for name in tests/slow tests/quick tests/usual; do
	mkdir -p "$dir/tests"
	write $name.t "echo $name >>'$dir/order'" 'echo "ok 1 - a"' 'echo 1..1'
done
longest_first() {
	printf '| tests/%s.t | %s | a test |\n' slow 50 quick 0.1 >"$dir/tests/README.md"
	rm -f "$dir/order"
	harness --jobs 1 tests/quick.t tests/usual.t tests/slow.t
	[[ $(tr '\n' ' ' <"$dir/order") == 'tests/slow tests/usual tests/quick ' ]]
}
check "the longest run first, by the table in README.md" longest_first

# What a program says of a failure follows it, with its name.
write said.t 'echo "not ok 1 - a"' 'echo "# said.c:26: error"' 'echo 1..1'
expect 1 '^# .*said\.t: # said\.c:26: error$' "the reason of a failure is told, and whose it is" harness said.t
write quiet.t 'echo "ok 1 - a"' 'echo "# a word"' 'echo 1..1'
silent() { ! harness quiet.t | grep 'a word'; }
check "comments of what holds are not" silent

# What a commit draws.
draw() { (cd "$GN_SOURCE" && bash tests/long draw "$@"); }
files=(tests/train/{stop,elastic,shard,tensor,resume,bad}.t)
same_again() { [[ $(draw abc 30 "${files[@]}") == "$(draw abc 30 "${files[@]}")" ]]; }
check "a name draws the same again" same_again
all_have_turns() { [[ $(for name in {1..40}; do draw "$name" 1 "${files[@]}"; done | sort -u | wc -l) == "${#files[@]}" ]]; }
check "and every file has its turn" all_have_turns
enough() { [[ $(draw abc 0 "${files[@]}" | wc -l) == 1 && $(draw abc 100000 "${files[@]}" | wc -l) == "${#files[@]}" ]]; }
check "one at least, and no more than there is time for" enough
expect 2 "'sixty' is no number of seconds" "seconds are a number" draw abc sixty tests/train/stop.t
expect 2 'there is no commit nosuch' "drawn wants a commit" bash "$GN_SOURCE/tests/long" drawn nosuch

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
