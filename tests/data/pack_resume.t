#!/bin/sh
# A pack that is killed or stopped keeps what is complete; the same command goes on with it and gives the same bytes.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir tree && tar -C tree --strip-components=1 -xf "$GN_SOURCE/data/digits/digits-train.tar.xz"
cp "$GN_SOURCE/data/digits/digits-train.tar.xz" train.tar.xz

# What is traced cannot look for leaks.
killer() { ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 "$GN_BUILD/tests/train/kill_at_call" "$@"; }
dies_at() { # CALLS COMMAND...: it is killed right before its call of that number which changes something below out.tmp-pack
	calls=$1
	shift
	killer "$work/out.tmp-pack" "$calls" "$@" >log 2>&1
	test $? -eq 9 || cat log
}
lists() { # DATASET COMMAND...: which makes it, and its calls in DATASET.calls
	whole=$1
	shift
	killer "$work/$whole.tmp-pack" 0 "$@" >"$whole.calls"
}
first() { # DATASET FILE: the number of the first call that opens it
	awk -v file="$2" '$2 == "openat" && $3 == file { print $1; exit }' "$1.calls"
}
stop_at() { # FILE BYTES COMMAND...: it gets SIGTERM once out.tmp-pack/FILE has that many bytes; its code
	file=out.tmp-pack/$1
	bytes=$2
	shift 2
	"$@" 2>log &
	pid=$!
	until_true sh -c '[ "$(stat -c %s "$1")" -ge "$2" ] || ! kill -0 $3' sh "$file" "$bytes" $pid
	kill -TERM $pid 2>/dev/null
	wait $pid 2>/dev/null
}
halted() { # the last one left something
	[ ! -e out ] && [ -s out.tmp-pack/journal ]
}
same() { # DATASET: out has its bytes, and nothing is left
	diff -r "$1" out && [ ! -e out.tmp-pack ] && rm -r out
}
flip() { # FILE OFFSET: inverts one bit
	perl -e 'open my $f, "+<:raw", $ARGV[0] or die; seek $f, $ARGV[1], 0; read $f, my $b, 1; seek $f, $ARGV[1], 0;
		print $f chr(ord($b) ^ 16)' "$1" "$2"
}

# made-up images: everything is in the spool
made() {
	"$gannet" pack --out "$1" --threads "$2" --shard-bytes 256K --synthetic 6000 --classes 2 --size 16x16
}
# not_stopped DATASET: those images, by one thread
not_stopped() {
	lists "$1" "$gannet" pack --out "$1" --threads 1 --shard-bytes 256K --synthetic 6000 --classes 2 --size 16x16
}
check 'made-up images, not stopped' not_stopped made.whole
# an image is two calls
dies_at 1300 "$gannet" pack --out out --threads 1 --shard-bytes 256K --synthetic 6000 --classes 2 --size 16x16
check 'killed while images are made: nothing under the final name' halted
expect 0 'resuming an earlier pack: [0-9]{3,} images are done' 'the same command goes on' made out 2
check 'to the same bytes' same made.whole
stop_at spool 500000 "$gannet" pack --out out --threads 1 --shard-bytes 256K --synthetic 6000 --classes 2 --size 16x16
check 'stopped by SIGTERM: code 5' test $? -eq 5
check 'and what to do' grep -q 'out.tmp-pack holds the finished part: the same command resumes' log
cp -r out.tmp-pack kept
expect 0 'resuming' 'and the same command does' made out 2
check 'to the same bytes' same made.whole
dies_at "$(first made.whole shard-00004.h5)" "$gannet" pack --out out --threads 1 --shard-bytes 256K --synthetic 6000 --classes 2 --size 16x16
check 'killed while shards are written: nothing under the final name' halted
inode=$(stat -c %i out.tmp-pack/shard-00000.h5)
expect 0 'resuming an earlier pack: 6000 images' 'the same command goes on' made out 2
check 'with the shards that are complete' test "$(stat -c %i out/shard-00000.h5)" = "$inode"
check 'to the same bytes' same made.whole

# what a crash of the machine may leave
cp -r kept out.tmp-pack && truncate -s -7 out.tmp-pack/journal && flip out.tmp-pack/spool 100
expect 0 'resuming' 'a torn journal and a damaged spool' made out 2
check 'change nothing' same made.whole
cp -r kept out.tmp-pack && flip out.tmp-pack/journal 1000
expect 0 'resuming an earlier pack: [0-9]{1,2} images' 'a damaged journal counts to where it is good' made out 2
check 'and changes nothing' same made.whole
cp -r kept out.tmp-pack && rm out.tmp-pack/spool
expect 0 'resuming' 'a spool that is gone' made out 2
check 'changes nothing' same made.whole
cp -r kept out.tmp-pack
expect 0 'belongs to a pack with other arguments.*: starting from the' 'another seed' \
	"$gannet" pack --out out --seed 1 --synthetic 50 --classes 2 --size 16x16
check 'starts anew' "$gannet" pack --out other --seed 1 --synthetic 50 --classes 2 --size 16x16
check 'with nothing of the old' same other
cp -r kept out.tmp-pack
expect 2 'needs --size' 'a mistake in the command' "$gannet" pack --out out --synthetic 50 --classes 2
expect 3 'cannot read source nowhere' 'or a source that is not there' "$gannet" pack --out out nowhere
check 'costs nothing of what is done' cmp kept/journal out.tmp-pack/journal
rm -r out.tmp-pack

# bad images: what is good need not be looked at again, whether they are mended or left out
mkdir -p pair/a pair/b && cp tree/1/* pair/a && cp tree/2/* pair/b && echo x >pair/b/bad.jpg
good=$(find pair -name '*.jpg' ! -name bad.jpg | wc -l)
tar -cf pair.tar pair
for source in pair pair.tar; do
	check "$source, its bad image left out from the start" "$gannet" pack --skip-bad --out pair.whole --shard-bytes 256K $source
	expect 3 "1 bad image: repair it, or skip it with --skip-bad; out.tmp-pack keeps the good images for the next pack" \
		"$source with a bad image fails" "$gannet" pack --out out --shard-bytes 256K $source
	check 'and leaves no dataset' halted
	expect 0 "resuming an earlier pack: $good images are done" 'goes on with --skip-bad' \
		"$gannet" pack --skip-bad --out out --shard-bytes 256K $source
	check 'to the same bytes' same pair.whole
	rm -r pair.whole
done
expect 3 '1 bad image' 'one is bad' "$gannet" pack --out out --shard-bytes 256K pair
cp tree/2/2_00002.jpg pair/b/bad.jpg
expect 0 "resuming an earlier pack: $good images are done" 'and is mended' \
	"$gannet" pack --out out --shard-bytes 256K pair
check 'not stopped' "$gannet" pack --out pair.whole --shard-bytes 256K pair
check 'to the same bytes' same pair.whole
mkdir -p pair2/a && echo x >pair2/a/bad.jpg
expect 3 '1 bad image' 'nothing good' "$gannet" pack --out out pair2
check 'leaves nothing' test ! -e out.tmp-pack

# an archive and a folder
check 'an archive, not stopped' "$gannet" pack --out archive.whole --shard-bytes 256K train.tar.xz
dies_at 1000 "$gannet" pack --out out --threads 1 --shard-bytes 256K train.tar.xz
check 'killed while it is read' halted
expect 0 'resuming an earlier' 'goes on' "$gannet" pack --out out --shard-bytes 256K train.tar.xz
check 'to the same bytes' same archive.whole
check 'a folder, not stopped' lists tree.whole "$gannet" pack --out tree.whole --threads 1 --shard-bytes 256K tree
dies_at 2000 "$gannet" pack --out out --threads 1 --shard-bytes 256K tree
check 'killed while it is read' halted
cp -r out.tmp-pack kept2
expect 0 'resuming an earlier' 'goes on' "$gannet" pack --out out --shard-bytes 256K tree
check 'to the same bytes' same tree.whole
mv kept2 out.tmp-pack && rm tree/0/*7.jpg && cp tree/1/1_00001.jpg tree/0/0_00001.jpg
check 'a folder that has changed meanwhile' "$gannet" pack --out out --shard-bytes 256K tree
check 'not stopped' "$gannet" pack --out changed.whole --shard-bytes 256K tree
check 'is packed as it is now' same changed.whole
dies_at "$(first tree.whole shard-00007.h5)" "$gannet" pack --out out --threads 1 --shard-bytes 256K tree
check 'killed when most shards are written' halted
rm -r tree/5 tree/6 tree/7 tree/8 tree/9
check 'with half of the images gone' "$gannet" pack --out out --shard-bytes 256K tree
check 'not stopped' "$gannet" pack --out half.whole --shard-bytes 256K tree
check 'leaves no shard too many' same half.whole
finish
