#!/bin/sh
# Bad input to pack, info and verify: a clear message, the contract's exit code, nothing left under a final name.
set -u
# A mount namespace of our own, where we may have one: the small file systems below go with it.
if [ -z "${GN_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
	GN_NAMESPACE=1 exec unshare --mount "$0"
fi
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
digits=$GN_SOURCE/data/digits
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
mkdir src in && tar -C src --strip-components=1 -xf "$digits/digits-val.tar.xz"

gone() { # neither the output nor what it is made in is there
	[ ! -e out ] && [ ! -e out.tmp-pack ]
}
flip() { # FILE OFFSET: inverts one bit
	perl -e 'open my $f, "+<:raw", $ARGV[0] or die; seek $f, $ARGV[1], 0; read $f, my $b, 1; seek $f, $ARGV[1], 0;
		print $f chr(ord($b) ^ 16)' "$1" "$2"
}
fresh() { # makes in/ a small good source
	rm -rf in out && mkdir in && cp -r src/1 src/2 in
}

# sources
expect 3 'cannot read source nowhere' 'missing folder' "$gannet" pack --out out nowhere
expect 2 'nothing to pack' 'no source at all' "$gannet" pack --out out
expect 2 'out' 'no output folder' "$gannet" pack src
mkdir void
expect 3 'no image found in void' 'source without images' "$gannet" pack --out out void
fresh && mkdir in/3
expect 3 "class '3' is empty" 'empty class' "$gannet" pack --out out in
tar -cf empty-class.tar in
echo x >in/1/b.jpg && rmdir in/3
expect 3 'tmp-pack keeps the good images' 'a pack that leaves a folder' "$gannet" pack --out out in
mkdir in/3
expect 3 "class '3' is empty" 'empty class found before images are read' "$gannet" pack --skip-bad --out out in
check 'leaves that folder' test -d out.tmp-pack
rmdir in/3
expect 0 'resuming an earlier pack' 'for the next' "$gannet" pack --skip-bad --out out in
rm -r out
mkdir flat && cp src/1/1_0070[0-4].jpg flat
expect 3 'flat: its 5 files, such as 1_00700.jpg, lie in no class folder: make a folder of each class' 'images without any class' \
	"$gannet" pack --skip-bad --out out flat
expect 3 "class '3' is empty" 'empty class in an archive' "$gannet" pack --out out empty-class.tar
fresh && cp in/1/1_00700.jpg in/stray.jpg
expect 3 'stray.jpg: lies in no class folder' 'image outside any class' "$gannet" pack --out out in
printf '1\n' >names && fresh
expect 3 "class '2' is not in names" 'class that the class file lacks' "$gannet" pack --out out --classes names in
printf '1\n2\n1\n' >names
expect 3 "line 3 repeats class '1'" 'class named twice' "$gannet" pack --out out --classes names in
printf '1\n\n2\n' >names
expect 3 'line 2 is empty' 'empty line in the class file' "$gannet" pack --out out --classes names in
expect 3 'names.missing' 'missing class file' "$gannet" pack --out out --classes names.missing in
expect 2 'a number from 1 to' 'classes that are no number' "$gannet" pack --out out --synthetic 5 --classes x --size 8x8
ln -s ../1 in/2/round && ln -s 1 in/3
expect 0 ' 400 images of 3 classes' 'folder that is a link is followed' "$gannet" pack --out out in
rm -r in/2/round in/3 out && ln -s .. in/2/round
expect 3 'link to a folder that contains it' 'link that goes round' "$gannet" pack --out out in
fresh && ln -s nowhere in/2/x.jpg
expect 3 'x.jpg: a dangling symbolic link' 'dangling link' "$gannet" pack --out out in
fresh && mkfifo in/2/pipe.jpg
expect 3 'pipe.jpg: neither a file nor a folder' 'pipe among the images' timeout -k 5 300 "$gannet" pack --out out in

fresh
expect 2 'lies inside source in' 'output inside the source' "$gannet" pack --out in/new in
check 'leaves the source alone' test "$(ls in)" = "1
2"

rm -r in/2
expect 0 "all images are of one class, '1': nothing can be learned" 'one class only' "$gannet" pack --out out in

# images
fresh && head -c 400 src/1/1_00700.jpg >in/1/short.jpg
expect 3 'in: 1/short.jpg: bad JPEG: Premature end' 'truncated JPEG' "$gannet" pack --out out in
fresh && cp src/1/1_00700.jpg in/1/tail.jpg && truncate -s -2 in/1/tail.jpg
expect 3 '1/tail.jpg: bad JPEG' 'JPEG without its last two bytes' "$gannet" pack --out out in
fresh && cp src/1/1_00700.jpg in/1/torn.jpg && printf '\377\331' |
	dd of=in/1/torn.jpg bs=1 seek=400 conv=notrunc 2>/dev/null
expect 3 '1/torn.jpg: bad JPEG' 'JPEG with an end in the middle' "$gannet" pack --out out in
fresh && : >in/1/none.jpg
expect 3 '1/none.jpg: the file is empty' 'zero-sized image' "$gannet" pack --out out in
fresh && echo 'no image' >in/1/text.jpg
expect 3 '1/text.jpg: not a JPEG file' 'text named .jpg' "$gannet" pack --out out in
fresh && truncate -s 65M in/1/huge.jpg
expect 3 '1/huge.jpg has [0-9]+ bytes; at most' 'image of 65 MiB' "$gannet" pack --out out in
check 'none of them made a dataset' test ! -e out
fresh && echo x >in/1/b.jpg && echo x >in/2/a.jpg
expect 3 '2 bad images' 'two bad images are counted' "$gannet" pack --out out in
expect 0 'skipped in: 2/a.jpg: not a JPEG' 'and named when skipped' "$gannet" pack --skip-bad --out out in
expect 0 'skipped *2' 'and remembered' "$gannet" info out
fresh && rm in/2/* && echo x >in/2/a.jpg
expect 3 "class '2' has no good image" 'class of bad images only' "$gannet" pack --skip-bad --out out in

# archives
fresh
tar -P --transform 's,^in,../in,' -cf dots.tar in
expect 3 "'../in/.* has '..' in its path: refused" 'archive with ../' "$gannet" pack --skip-bad --out out dots.tar
tar -P --transform 's,^in/1,in/../../in/1,' -cf dots2.tar in
expect 3 "has '..' in its path: refused" 'archive with ../ inside' "$gannet" pack --skip-bad --out out dots2.tar
tar -P --transform 's,^in,/in,' -cf absolute.tar in
expect 3 'has an absolute path: refused' 'archive with absolute paths' "$gannet" pack --skip-bad --out out absolute.tar
ln -s /etc/passwd in/1/soft.jpg && tar -cf soft.tar in
expect 3 'bad image soft.tar: in/1/soft.jpg: a symbolic link' 'archive with a link' "$gannet" pack --out out soft.tar
expect 0 ' 200 images of 2 classes.* 1 skipped' 'which --skip-bad leaves out' "$gannet" pack --skip-bad --out out soft.tar
rm -r out && ln -s in dog && tar -cf aside.tar in dog
expect 0 'skipped aside.tar: dog: a symbolic link' 'link beside the folder around all classes' \
	"$gannet" pack --skip-bad --out out aside.tar
rm -r out dog
rm in/1/soft.jpg && ln in/1/1_00700.jpg in/1/z.jpg && tar -cf hard.tar in
expect 0 ' 201 images of 2 classes.* 0 skipped' 'archive with a hard link' "$gannet" pack --out out hard.tar
rm -r out
fresh && mkfifo in/1/pipe && tar -cf pipe.tar in
expect 3 'is a device, pipe or socket: refused' 'archive with a pipe' "$gannet" pack --skip-bad --out out pipe.tar
fresh && tar -cf good.tar in && head -c 100000 good.tar >cut.tar
expect 3 'cut.tar.*(not a tar archive, or damaged|ends after)' 'truncated archive' \
	"$gannet" pack --skip-bad --out out cut.tar
xz -k good.tar && head -c 60000 good.tar.xz >cut.tar.xz
expect 3 'cut.tar.xz.*damaged' 'truncated compressed archive' "$gannet" pack --skip-bad --out out cut.tar.xz
flip good.tar.xz 30000
expect 3 'good.tar.xz.*(damaged|bad JPEG|ends after)' 'bit-flipped compressed archive' "$gannet" pack --out out good.tar.xz
expect 3 'names.*not a tar archive' 'file that is no archive' "$gannet" pack --out out names
printf 'PK\003\004rest' >images.zip
expect 3 'images.zip is a zip archive, not a tar archive: unpack it, or make a tar' 'zip archive' "$gannet" pack --out out images.zip
cp good.tar inner.tar && tar -cf middle.tar inner.tar && tar -cf outer.tar middle.tar
expect 3 'archive in an archive in an archive' 'archives nested too deep' "$gannet" pack --out out outer.tar
check 'none of them left anything' gone

# output
mkdir full && touch full/file
expect 1 'full exists and is not empty' 'output that is in use' "$gannet" pack --out full src
check 'stays as it was' test "$(ls full)" = file
expect 1 'Not a directory' 'output below a file' "$gannet" pack --out names/out src
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
	mkdir locked && chmod 755 . locked && cp "$gannet" program && chmod -R a+rX src program
	expect 1 'Permission denied' 'unwritable directory' setpriv --reuid 65534 --regid 65534 --clear-groups \
		./program pack --out locked/out src
elif [ "$(id -u)" -ne 0 ]; then
	mkdir locked && chmod 555 locked
	expect 1 'Permission denied' 'unwritable directory' "$gannet" pack --out locked/out src
else
	skip 'unwritable directory' 'setpriv cannot drop root here'
fi
if [ -n "${GN_NAMESPACE:-}" ] && mkdir small && mount -t tmpfs -o size=3m none small 2>/dev/null; then
	expect 1 'No space left|no space left' 'disk full while images are collected' \
		"$gannet" pack --out small/out "$digits/digits-train.tar.xz"
	check 'leaves nothing' test -z "$(ls -A small)"
	mount -t tmpfs -o size=8m none small
	expect 1 'no space left for .*: its shards need' 'disk full while shards are written' \
		"$gannet" pack --out small/out "$digits/digits-train.tar.xz"
	check 'leaves nothing' test -z "$(ls -A small)"
	mount -t tmpfs -o size=8m,nr_inodes=5 none small
	expect 1 'No space left|no space left' 'no room for another file' \
		"$gannet" pack --out small/out --shard-bytes 100K src
	check 'leaves nothing' test -z "$(ls -A small)"
	expect 1 'mount point cannot be the output' 'mount point as output' "$gannet" pack --out small src
	umount small && umount small && umount small
else
	skip 'disk full' 'no file system can be mounted here'
fi

# damaged datasets
check 'a good dataset for what follows' "$gannet" pack --out good --shard-bytes 200K src
check 'verifies' "$gannet" verify --decode good
again() {
	rm -rf bad && cp -r good bad
}
again && truncate -s 100000 bad/shard-00001.h5
expect 3 'bad/shard-00001.h5 has 100000 bytes' 'truncated shard: info' "$gannet" info bad
expect 3 'bad/shard-00001.h5.*truncated' 'truncated shard: verify' "$gannet" verify bad
expect 3 'bad/shard-00001.h5.*truncated' 'truncated shard by itself' "$gannet" info bad/shard-00001.h5
again && truncate -s 3 bad/shard-00001.h5
expect 3 'only 3 bytes' 'shard of three bytes' "$gannet" info bad/shard-00001.h5
again && flip bad/shard-00002.h5 3000
expect 3 'bad/shard-00002.h5: its tables fail their digest' 'bit flipped in the tables: info' "$gannet" info bad
expect 3 'bad/shard-00002.h5: its tables fail their digest' 'bit flipped in the tables: verify' "$gannet" verify bad
again && flip bad/shard-00002.h5 100000
expect 3 'bad/shard-00002.h5: sample [0-9]+ \([0-9]/.*jpg\) fails its checksum' 'bit flipped in an image' \
	"$gannet" verify bad
expect 3 '1 of 4 shards; 1 bad samples' 'is counted' "$gannet" verify bad
again && rm bad/shard-00003.h5
expect 3 'bad/shard-00003.h5: No such file' 'missing shard' "$gannet" verify bad
again && cp good/shard-00000.h5 bad/shard-00001.h5
expect 3 'bad/shard-00001.h5 has' 'shard in the place of another' "$gannet" info bad
again && printf x >>bad/shard-00001.h5
expect 3 'bad/shard-00001.h5 has' 'shard that is too long' "$gannet" verify bad
again && sed -i 's/"name": "3"/"name": "4"/' bad/gannet-dataset.json
expect 3 "names class '4' twice" 'manifest with a class twice' "$gannet" info bad
again && sed -i 's/"name": "3"/"name": "x"/' bad/gannet-dataset.json
expect 3 'its digest does not match' 'manifest that was changed' "$gannet" verify bad
again && head -c 500 good/gannet-dataset.json >bad/gannet-dataset.json
expect 3 'gannet-dataset.json, line' 'truncated manifest' "$gannet" info bad
rm bad/gannet-dataset.json
expect 3 'is no packed dataset: .*; gannet pack writes one' 'folder without a manifest' "$gannet" verify bad
expect 3 'cannot stat' 'info on nothing' "$gannet" info nowhere
expect 3 'is no packed dataset' 'verify on nothing' "$gannet" verify nowhere

# a stopped and a killed pack
pack_big() { # its pid in $pid; it has begun, and is not over before it is ended
	"$gannet" pack --out big --threads 1 --shard-bytes 256K --synthetic 2000000 --classes 2 --size 16x16 2>/dev/null &
	pid=$!
	until_true test -s big.tmp-pack/spool
}
pack_big
kill -TERM $pid
wait $pid
check 'a stopped pack says so by its exit code' test $? -eq 5
check 'and leaves nothing under the final name' test ! -e big
rm -r big.tmp-pack
pack_big
expect 1 'another gannet pack is writing' 'a second pack to the same output' "$gannet" pack --out big src
kill -9 $pid && wait $pid 2>/dev/null
check 'killed while collecting: nothing under the final name' test ! -e big
check 'and the next pack cleans up' "$gannet" pack --out big src
check 'and has all images' "$gannet" verify big
check 'and leaves nothing else' test ! -e big.tmp-pack
rm -rf big
# An image is two calls, a shard some 330.
"$GN_BUILD/tests/train/kill_at_call" "$PWD/big.tmp-pack" 7300 "$gannet" pack --out big --threads 1 --shard-bytes 256K --synthetic 3000 --classes 2 --size 16x16 2>/dev/null
check 'killed while writing: nothing under the final name' test $? -eq 9 -a -e big.tmp-pack/shard-00003.h5 -a ! -e big
check 'and the next pack cleans up' "$gannet" pack --out big --shard-bytes 200K src
check 'and is not disturbed by it' diff -r big good
check 'and leaves nothing else' test ! -e big.tmp-pack
finish
