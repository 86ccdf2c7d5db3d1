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
	timeout -k 5 300 "$gannet" stage --json --from "$1" --to "$2" ${3+"$3"}
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

# several disks
spread() { "$gannet" stage --json --from from --to "$work/d1/set:$work/d2/set" "$@"; }
in_both() { # which shards a disk has depends on the free bytes of that moment
	ls d1/set/ d2/set/
	test "$(find d1/set d2/set -name '*.h5' | wc -l)" -eq 4 && ls d1/set/*.h5 && ls d2/set/*.h5
}
expect 0 '"copied": 4,.*"kept": 0,' 'to two disks' spread
check 'each has a part' in_both
check 'which are right' sh -c 'for f in from/*.h5; do cmp "$f" d1/set/"${f#from/}" 2>/dev/null || cmp "$f" d2/set/"${f#from/}" || exit 1; done'
expect 0 '"copied": 0,.*"kept": 4,' 'copies nothing again' spread
moved=$(cd d2/set && find . -name '*.h5' | sort | head -n 1)
mv "d2/set/$moved" d1/set/
expect 0 '"copied": 0,.*"kept": 4,' 'a shard that was moved stays' spread
mv "d1/set/$moved" d2/set/
check 'also there' spread
expect 0 '"state": "complete"' 'each disk lists its part' "$gannet" stage --json --list --to d2
check 'and removes it' "$gannet" stage --to d2 --remove set
check 'of which nothing is left' test ! -e d2/set
expect 0 '"copied": [1-3],.*"kept": [1-3],' 'and it is staged again' spread
check 'on both' sh -c 'test "$(ls d1/set/*.h5 d2/set/*.h5 | wc -l)" -eq 4 && ls d2/set/*.h5'
expect 0 '"copied": 8,.*"kept": 0,' 'another dataset, with the disks in another order' stage other "$work/d2/set:$work/d1/set"
expect 0 'in 8 shards checked' 'verify takes the list' "$gannet" verify "$work/d2/set:$work/d1/set"
expect 0 '^shards     8, ' 'info, too' "$gannet" info "$work/d2/set:$work/d1/set"
# shellcheck disable=SC2016 # sh expands it
check 'leaves no shard of the first' sh -c 'for f in d1/set/*.h5 d2/set/*.h5; do cmp "$f" "other/${f##*/}" || exit 1; done'
cp d1/set/shard-00001.h5 d2/set/ 2>/dev/null || cp d2/set/shard-00001.h5 d1/set/
expect 0 '"copied": 0,.*"kept": 8,' 'a shard that is on both' stage other "$work/d2/set:$work/d1/set"
expect 0 '"state": "complete"' 'belongs to the copy' "$gannet" stage --json --list --to d1
check 'on each disk' test -z "$("$gannet" stage --json --list --to d1 | grep changed; "$gannet" stage --json --list --to d2 | grep changed)"
expect 2 'several folders are for packed datasets' 'not for trees' stage from "d1/tree:$work/d2/tree" --tree
mkdir 'd:1'
expect 0 '"copied": 4,' 'a colon in a name' stage from ./d:1/set:2
check 'is none of these' alike from d:1/set:2
expect 0 '"kept": 4,' 'nor is that of a folder that is there' stage from d:1/set:2
expect 0 '"copied": 4,' 'nor is one above it' stage from "$work/d:1/set3"
expect 0 '"copied": 4,' 'nor is one in the last name of an absolute path' stage from "$work/d:1/d:4"
for list in a/ds:b/ds a:b "$work/a/ds:b/ds" "$work/a:/b:c/d"; do
	expect 2 "^gannet stage: --to $list: .*those after a colon begin with / or" "a list that is none, $list" stage from "$list"
done
for list in ./a/ds: "$work/a/ds:" ":$work/b" "$work/a::$work/b"; do
	expect 2 "^gannet stage: --to $list has a folder without a name" "a folder without a name, $list" stage from "$list"
done
mkdir there && ln -s there link
expect 2 'are the same folder' 'the same folder twice' stage from "./there/ds/:$work/there//ds"
expect 2 'are the same folder' 'also by a link' stage from "there/ds:$work/link/ds"
expect 2 'lie one in the other' 'one folder in the other' stage from "$work/there/ds:./there/ds/more/ds"
expect 2 'lie one in the other' 'also first' stage from "$work/there/ds:./there"
expect 2 '^gannet stage: --to is empty' 'no folder' stage from ''
expect 2 '^gannet stage: --to is empty' 'nor of copies' "$gannet" stage --list --to ''
expect 3 'cannot read nowhere: No such file' 'a missing source for two disks' stage nowhere "$work/a/ds:$work/b/ds"
check 'of all these nothing is left' test -z "$(ls -d a* b* there/* 2>/dev/null)"

mkdir mine mine/shard-00001.h5 && echo important >mine/shard-00000.h5 && echo text >mine/notes
for i in 1 2; do
	expect 1 'mine/shard-0000[01].h5 exists and was not staged by gannet' "leaves files of others alone ($i)" stage from mine
	check "which are there ($i)" test "$(cat mine/shard-00000.h5 mine/notes)" = "$(printf 'important\ntext')"
done
cp -r other mine/other
expect 1 'mine/other/.* exists and was not staged' 'and a dataset that was packed there' stage from mine/other
check 'which is whole' "$gannet" verify mine/other
expect 0 '"copied": 8,' 'another dataset' stage other mine/staged
expect 0 'mine/staged held another dataset .8 shards.*replaced by that of from .4 shards' 'is replaced with a word' stage from mine/staged
mkdir leaves && echo text >leaves/leaf && ln -s leaf leaves/.gannet-stage.lock
expect 0 '' 'a tree' stage leaves mine/tree
expect 1 'is a copy of a tree' 'which a dataset does not go into' stage from mine/tree
check 'and which keeps a file that is called as a lock' test -L mine/tree/.gannet-stage.lock

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

expect 3 'cannot read nowhere: No such file' 'missing source' stage nowhere fresh
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
for mode in 1777 1755 777; do
	mkdir -m $mode all.$mode
	expect 1 "all.$mode is a shared folder .mode $mode.: give a folder below it" "folder of mode $mode as target" \
		stage from all.$mode
	check 'is left as it is' test "$(stat -c %a all.$mode) $(ls -A all.$mode)" = "$mode "
done
expect 0 '"copied": 4,' 'a folder below it is fine' stage from all.1777/to
touch file
expect 1 'Not a directory|not a folder' 'file as target' stage from file/below

if [ -n "${GN_NAMESPACE:-}" ] && mkdir small && mount -t tmpfs -o size=500k none small 2>/dev/null; then
	expect 1 'no space left in small/to: .* needed' 'full disk' stage from small/to
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
for_user() { # USER COMMAND...
	as_user=$1
	shift
	setpriv --reuid "$as_user" --regid "$as_user" --clear-groups timeout -k 5 300 "$@"
}
stage_for() { # USER TO ARG...
	for_user "$1" ./program stage --json --from from --to "$2" ${3+"$3"}
}
# A shard that was altered, with a stamp that vouches for it.
forge() { # USER FOLDER
	flip "$2/shard-00002.h5" 120000
	for_user "$1" perl -e 'open my $f, "<", "$ARGV[0]/.gannet-stage" or die; my @lines = <$f>; close $f;
		for (@lines) { /^(shard-00002\S+) (\w+)/ or next; my $line = `stat -c "%s %.9Y %.9Z %d:%i" $ARGV[0]/$1`; $_ = "$1 $2 $line" }
		open $f, ">", "$ARGV[0]/.gannet-stage" or die; print $f @lines' "$2"
}
owned_by() { # USER FOLDER: all of it is that user's, and nobody else may write it
	test -z "$(find "$2" ! -user "$1" -o -perm /022)"
}
if [ "$(id -u)" -eq 0 ] && for_user 65534 true 2>/dev/null; then
	chmod 755 . && cp "$gannet" program && chmod -R a+rX program from && mkdir -m 1777 disk
	expect 0 '"copied": 4,' 'a user stages on a shared disk' stage_for 65533 disk/a
	check 'nobody else can open his lock' test "$(stat -c %a disk/a/.gannet-stage.lock)" = 600
	expect 0 '"copied": 0,.*"kept": 4,.*"foreign": true' 'another may read his copy' stage_for 65534 disk/a
	for_user 65532 ln -s a disk/link
	expect 1 'link disk/link belongs to user 65532' "but not through a third user's link" stage_for 65534 disk/link
	rm disk/link && for_user 65534 ln -s a disk/link
	expect 0 '"kept": 4,.*"foreign": true' "through one's own link" stage_for 65534 disk/link
	rm disk/link
	expect 0 "$(uname -n): disk/a: 0 shards copied .*digests verified: owned by user 65533" 'is told whose, and on which host' \
		for_user 65534 ./program stage --from from --to disk/a
	two=$work/disk/one:$work/disk/two
	expect 0 '"copied": 4,' 'a user stages on two shared disks' stage_for 65533 "$two"
	expect 0 '"copied": 0,.*"kept": 4,.*"foreign": true' 'another may read these copies, too' stage_for 65534 "$two"
	chmod 666 disk/a/.gannet-stage.lock
	forge 65533 disk/a
	expect 1 'belongs to user 65533 and is not a complete copy of from .3 of 4' 'its stamp is not believed' stage_for 65534 disk/a
	expect 0 '"copied": 0,' 'but by its owner' stage_for 65533 disk/a
	expect 0 '"copied": 1,' 'who finds it by --check' stage_for 65533 disk/a --check
	check 'and whose lock is his again' test "$(stat -c %a disk/a/.gannet-stage.lock)" = 600
	rm disk/a/shard-00001.h5 && for_user 65533 mkfifo disk/a/shard-00001.h5
	expect 1 'not a complete copy' 'a FIFO there holds nobody' stage_for 65534 disk/a
	for_user 65533 rm disk/a/gannet-dataset.json
	expect 1 'not a complete copy .*missing' 'nor does a copy without a manifest do' stage_for 65534 disk/a

	for_user 65534 mkdir -m 777 disk/b
	for_user 65533 sh -c 'umask 0; cp from/* disk/b'
	chmod 775 disk/b
	expect 0 '"copied": 4,.*"kept": 0' "another user's files in one's own folder are no copy" stage_for 65534 disk/b
	check "all is one's own then, and closed" owned_by 65534 disk/b
	rm disk/b/.gannet-stage.lock && ln -s ../../from/gannet-dataset.json disk/b/.gannet-stage.lock
	expect 1 'lock disk/b/.gannet-stage.lock is a symbolic link: remove it' 'a link as the lock is not followed' stage_for 65534 disk/b
	for_user 65534 sh -c 'umask 002; mkdir disk/group && ./program stage --json --from from --to disk/group' >/dev/null
	check 'a group does not get the right to write' owned_by 65534 disk/group

	mkdir -m 777 target open
	for_user 65533 sh -c 'ln -s ../target disk/link; mkdir disk/trap; chmod 777 disk/trap'
	expect 1 'link disk/link belongs to user 65533' 'a link of another user is not followed' stage_for 65534 disk/link/to
	check 'nothing is made where it leads' test -z "$(ls target)"
	expect 1 'disk/trap belongs to user 65533' 'nor is a folder of his filled' stage_for 65534 disk/trap/to
	expect 1 'open/to is world-writable without the sticky bit' 'nor one in a folder that all may change' stage_for 65534 open/to
	for_user 65534 ln -s a-folder disk/own && for_user 65534 mkdir disk/a-folder
	expect 0 '"copied": 4,' "one's own link is fine" stage_for 65534 disk/own
	rm -rf disk
else
	skip 'two users on a shared disk' 'needs root and setpriv'
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
