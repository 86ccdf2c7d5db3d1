#!/bin/sh
# What people read: help texts of one form, counts in words, names from outside that cannot steer a terminal.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

commands() { "$gannet" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p'; }
examples() { # every line is indented
	for c in $(commands); do
		"$gannet" "$c" --help | sed -n '/^Examples:/,$p' | sed 1d | grep -v '^  ' | sed "s/^/$c: /"
	done | (! grep .)
}
check 'examples are indented in every command' examples
values() { # an option that chooses or has a default says what it takes
	for c in $(commands); do
		COLUMNS=1000 "$gannet" "$c" --help | sed -n '/^Options:/,/^$/p' | grep -E '; one of|\(default [^)]*\)$' |
			grep -Ev -e '--[a-z0-9-]+ [^ ]' | sed "s/^/$c: /"
	done | (! grep .)
}
check 'options that take a value name it in every command' values
twice() {
	for c in $(commands); do
		COLUMNS=1000 "$gannet" "$c" --help | sed -n '/^Options:/,/^$/s/^  \(-.,\|   \) --\([a-z0-9-]*\).*/\2/p' | sort | uniq -d | sed "s/^/$c: /"
	done | (! grep .)
}
check 'no option is in the list twice' twice

wide() { # COLUMNS: longer lines, but for words of the synopsis, and for examples, which are copied whole
	{
		"$gannet" --help
		for c in $(commands); do "$gannet" "$c" --help | sed -n '2,$p' | sed '/^Examples:/,$d'; done
	} | awk -v columns="$1" 'length > columns' | (! grep .)
}
expect 0 '6 a node or fabric failed its check' 'man pages name all exit codes' "$gannet" --man preflight
unset COLUMNS
check 'help has 80 columns in a pipe, too' wide 80
for columns in 40 60 100; do
	narrow() { (export COLUMNS=$columns && wide $columns); }
	check "or COLUMNS, $columns" narrow
done
broad() { COLUMNS=110 "$gannet" --help | awk 'length > 100 { long = 1 } END { exit !long }'; }
check 'and uses them' broad
cat >terminal.py <<'PY'
import fcntl, os, pty, struct, subprocess, sys, termios
os.environ.pop("COLUMNS", None)
for columns in (64, 110):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([sys.argv[1], "--help"], stdout=slave)
    os.close(slave)
    text = b""
    try:
        while part := os.read(master, 65536):
            text += part
    except OSError: # the other side is closed
        pass
    assert process.wait(280) == 0
    longest = max(len(line) for line in text.decode().splitlines())
    assert columns - 12 < longest <= columns, (columns, longest)
PY
check 'in a terminal its width' timeout -k 5 300 python3 terminal.py "$gannet"
whole() { # of 80 columns, in a man page, too, which indents them by 7
	for c in $(commands); do
		"$gannet" "$c" --help | awk 'length > 80 || (examples && length > 73); /^Examples:/ { examples = 1 }'
	done | (! grep .)
}
check 'with synopsis and examples' whole
expect 2 "no command 'trian'; did you mean gannet train[?]$" 'a misspelt command is told the nearest' "$gannet" trian
expect 2 "no command 'frobnicate'; see gannet --help$" 'if there is one' "$gannet" frobnicate
expect 0 '^Usage: gannet preflight' 'help COMMAND is COMMAND --help' "$gannet" help preflight
expect 2 "no command 'preflite'; did you mean gannet preflight[?]$" 'of commands that there are' "$gannet" help preflite
for pair in batch_size:batch learning-rate:lr wd:weight-decay workers:loader-threads num_workers:loader-threads arch:model; do
	expect 2 "did you mean --${pair#*:}[?]$" "--${pair%:*} of other programs" "$gannet" train "--${pair%:*}" 1
done
expect 2 'did you mean resnet18[?]$' 'a misspelt network' "$gannet" train --data d --model resnet-18
expect 2 'did you mean resnet[0-9]*[?]$' 'the beginning of one' "$gannet" train --data d --model resnet
export COLUMNS=1000
expect 0 'SOCKET_IFNAME the' 'help names the variable of the interfaces' "$gannet" --help
expect 0 'interfaces of the exchange at start and of heartbeats' 'and all that uses them' "$gannet" --help
unset COLUMNS

check 'one image' "$gannet" pack --out one --synthetic 1 --classes 1 --size 8x8
rm -r one
expect 0 '1 image of 1 class in 1 shard, ' 'pack counts one of each' "$gannet" pack --out one --synthetic 1 --classes 1 --size 8x8
expect 0 '1 sample in 1 shard checked' 'verify does' "$gannet" verify one
expect 0 '1 shard copied .* 0 were there' 'stage does' "$gannet" stage --from one --to staged
expect 0 '0 shards copied .* 1 was there' 'and of what was there' "$gannet" stage --from one --to staged
check 'one rank trains' timeout -k 5 300 "$gannet" train --data one --model lenet --batch 1 --steps 1 --checkpoint run
expect 0 'by 1 rank,' 'info counts one rank' "$gannet" info run

# A class with a line break and an escape sequence in its name; a folder with more.
evil=$(printf 'a\nb\033[2Jc')
mkdir -p "in/$evil" "$evil"
"$gannet" pack --out two --synthetic 2 --classes 2 --size 8x8 2>/dev/null
cp "$GN_SOURCE/data/digits/digits-val.tar.xz" digits.tar.xz && tar -xf digits.tar.xz
find . -name '1_00700.jpg' -exec cp {} "in/$evil/" \;
plain() { # COMMAND...: what it prints holds no control character but line feeds
	! "$@" 2>&1 | LC_ALL=C grep -q '[[:cntrl:]]'
}
check 'pack to and from such names' "$gannet" pack --out "$evil/out" in
printf 'x' >"in/$evil/bad.jpg"
for run in "info $dir/$evil/out" "verify $dir/$evil/out" "pack --out $dir/$evil/other in" "info $dir/$evil/none" \
	"$evil" "pack --$evil" "selftest --golden $evil" "bench $evil" "launch -n 1 -- $evil" "train --data $evil --model $evil"; do
	# Words are cut at the blank, which no name here has.
	old=$IFS
	IFS=' '
	set -f
	# shellcheck disable=SC2086
	set -- $run
	set +f
	IFS=$old
	check "printed plainly: $(printf '%s' "$run" | tr -cd 'a-z/ -' | sed 's,/tmp/[^/]*,,')" plain timeout -k 5 300 "$gannet" "$@"
done
expect 0 '0  a\\x0ab\\x1b\[2Jc  1' 'and legibly' "$gannet" info "$evil/out"
# Names and phrases that must not come back into the product's sources, its man pages and the README: identifiers that were renamed
# (gn_NAME and gn_NAME_...), and phrases that a manual of the field would not use. Extended regular expressions, whole words.
old_names='
gn_(arena_create|arena_take|patch|patches|op_link|cuda_fastest|cuda_ways|cuda_link|renderer|filler|stamp|stage_stamp|library_open|library_find|turn)
gn_(told|meet|meeting|introduce|door|guest|stranger|watch|hub|spoke|invitation|inquiry|crowd|bell|letter|mail|mailbox|card|proof)
gn_(carrier|copier|algo_direct|direct|choose|detect|announce|verdict|turns|fabric|neighbour|neighbours|keeper|engine|machine)
gn_(arrange|growth|trial|split|exchange|form|resident|reside|gpu_sums|ledger|storage|manner|score|runlog|clocks|plan_fold|plan_watch)
'
old_phrases='
mates
winners?
signs disagree
earlier, worse life
at first touch
goes? the long way
put aside
going on without
tells about
nobody asks
who waits sleeps
earlier, worse life
made-up
to and fro
makes no sense
stays for now
'
forbidden() { # FILE...: prints where they stand; fails when there is none
	printf '%s' "$old_names" | sed '/^$/d; s/$/(_[a-z0-9_]*)?/' >"$dir/forbidden"
	printf '%s' "$old_phrases" | sed '/^$/d' >>"$dir/forbidden"
	grep -nwE -f "$dir/forbidden" "$@"
}
product() {
	(cd "$GN_SOURCE" && find src kernels transport data README.md -type f \( -name '*.[chS]' -o -name '*.cu' -o -name '*.cuh' -o \
		-name '*.md' -o -name '*.1' \) -exec sh -c 'printf "%s\n" "$@"' sh {} +)
}
no_old_words() {
	product >"$dir/files" && [ "$(wc -l <"$dir/files")" -gt 300 ] || return
	# shellcheck disable=SC2046 # file names without blanks
	! (cd "$GN_SOURCE" && forbidden $(cat "$dir/files"))
}
check 'names and phrases that were replaced stay away' no_old_words
for planted in 'struct gn_runlog *log;' 'int gn_fabric_open(void);' '/* zeroed at first touch */' '"%s: going on without it"'; do
	printf '%s\n' "$planted" >planted.c
	check "a planted one is found: $planted" forbidden planted.c
done
printf '%s\n' 'int winner_takes; struct gn_format f; gn_exchanged();' >planted.c
fine() { ! forbidden planted.c; }
check 'a longer word is another' fine
finish
