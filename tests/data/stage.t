#!/bin/sh
# gannet stage: a right copy, once for all who ask at the same time, mended where damaged, nothing half-written.
set -u
if [ -z "${GN_NAMESPACE:-}" ] && unshare --mount true 2>/dev/null; then
	GN_NAMESPACE=1 exec unshare --mount "$0"
fi
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

flip() { # FILE OFFSET: inverts one bit
	perl -e 'open my $f, "+<:raw", $ARGV[0] or die; seek $f, $ARGV[1], 0; read $f, my $b, 1; seek $f, $ARGV[1], 0;
		print $f chr(ord($b) ^ 16)' "$1" "$2"
}
stage() {
	timeout 60 "$gannet" stage --json --from "$1" --to "$2" ${3+"$3"}
}
alike() { # the copy holds what the source holds, and nothing but our own two files besides
	diff -r -x .gannet-stage -x .gannet-stage.lock "$1" "$2"
}

check 'a dataset to stage' "$gannet" pack --out from --shard-bytes 200K "$GN_SOURCE/data/digits/digits-val.tar.xz"
check 'another' "$gannet" pack --out other --shard-bytes 100K --seed 3 "$GN_SOURCE/data/digits/digits-val.tar.xz"
expect 0 '"copied": 4,.*"kept": 0,' 'copies all' stage from far/away/to
check 'rightly' alike from far/away/to
expect 0 '"copied": 0,.*"kept": 4,' 'copies nothing again' stage from far/away/to
expect 0 '"copied": 0,.*"kept": 4,' 'nor when it digests what is there' stage from far/away/to --check
mv far/away/to to
flip to/shard-00002.h5 120000
expect 0 '"copied": 1,.*"kept": 3,' 'mends a flipped bit' stage from to
check 'rightly' alike from to
truncate -s 1000 to/shard-00001.h5 && rm to/shard-00003.h5
expect 0 '"copied": 2,.*"kept": 2,' 'mends a short and a missing shard' stage from to
check 'rightly' alike from to
rm to/.gannet-stage
expect 0 '"copied": 0,.*"kept": 4,' 'does without a stamp' stage from to
echo garbage >to/.gannet-stage
expect 0 '"copied": 0,.*"kept": 4,' 'does not believe a wrong one' stage from to
rm to/gannet-dataset.json && printf half >to/shard-00000.h5.gannet-part && rm to/shard-00000.h5
expect 0 '"copied": 1,.*"kept": 3,' 'goes on where a killed one stopped' stage from to
check 'and removes what that left' alike from to
expect 0 '"copied": 8,' 'replaces another dataset' stage other to
check 'rightly' alike other to
expect 0 '"copied": 4,' 'also by one of fewer shards' stage from to
check 'rightly' alike from to

for i in 1 2 3 4; do
	stage from crowd >"crowd.$i" 2>&1 &
	eval "pid$i=\$!"
done
for i in 1 2 3 4; do
	eval "wait \$pid$i"
	check "one of four at the same time ($i)" test $? -eq 0
done
check 'of which one copied' test "$(cat crowd.? | grep -c '"copied": 4,')" -eq 1
check 'and three did not' test "$(cat crowd.? | grep -c '"copied": 0,')" -eq 3
check 'rightly' alike from crowd

expect 3 'is no packed dataset' 'missing source' stage nowhere fresh
check 'leaves no target' test ! -e fresh
expect 2 'same folder' 'source as target' stage from ./from
check 'leaves the source alone' "$gannet" verify from
cp -r from hurt && flip hurt/shard-00001.h5 100000
expect 3 'hurt/shard-00001.h5 fails its SHA-256' 'damaged source' stage hurt fresh
check 'leaves no manifest' test ! -e fresh/gannet-dataset.json
check 'nor a part' test -z "$(find fresh -name '*.gannet-part')"
expect 0 '"copied"' 'which does not spoil the target' stage from fresh
check 'for a right copy' alike from fresh
truncate -s 100 hurt/shard-00002.h5
expect 3 'hurt/shard-0000[12].h5 (has 100 bytes|fails)' 'truncated source' stage hurt fresh2
touch file
expect 1 'Not a directory|not a folder' 'file as target' stage from file/below

if [ -n "${GN_NAMESPACE:-}" ] && mkdir small && mount -t tmpfs -o size=500k none small 2>/dev/null; then
	expect 1 'no space left in small/to: .* are to be copied' 'full disk' stage from small/to
	check 'is told before anything is copied' test -z "$(find small -name 'shard*')"
	umount small
	# enough bytes, but not enough files: what else can go wrong once copying has begun
	mount -t tmpfs -o size=5m,nr_inodes=5 none small
	expect 1 'No space left' 'disk that fills while copying' stage from small/to
	check 'leaves no manifest' test ! -e small/to/gannet-dataset.json
	check 'nor a part' test -z "$(find small -name '*.gannet-part')"
	umount small
else
	skip 'full disk' 'no file system can be mounted here'
fi
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
	mkdir locked && chmod 755 . && cp "$gannet" program && chmod -R a+rX program from
	expect 1 'Permission denied' 'unwritable directory' setpriv --reuid 65534 --regid 65534 --clear-groups \
		./program stage --from from --to locked/to
elif [ "$(id -u)" -ne 0 ]; then
	mkdir locked && chmod 555 locked
	expect 1 'Permission denied' 'unwritable directory' stage from locked/to
else
	skip 'unwritable directory' 'setpriv cannot drop root here'
fi
finish
