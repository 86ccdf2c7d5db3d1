#!/bin/bash
# gannet stage --list, --remove, --quota: only what was staged goes, and only what nobody uses; the least recently used first.
set -u
# shellcheck source=tests/data/tree.sh
. "$GN_SOURCE/tests/data/tree.sh"
pids=
trap 'kill -9 $pids 2>/dev/null; chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
copies() { timeout -k 5 300 "$gannet" stage --json --to disk "$@"; }
state() { # NAME STATE: so it is listed
	copies --list | grep -q "\"name\": \"$1\", \"kind\": \"[a-z]*\", \"state\": \"$2\""
}
age() { # MARKER DAYS: since when nobody has used it
	touch -d "$2 days ago" "disk/$1"
}
holding() { # PATH: a program holds it until it is killed; the lock is its own, not that of flock's child
	flock --shared --no-fork "$1" tail -f /dev/null &
	pids="$pids $!"
}
left() { [ "$(ls -A disk)" = "$1" ]; }
check 'a dataset' "$gannet" pack --out packed --shard-bytes 200K "$GN_SOURCE/data/digits/digits-val.tar.xz"
mkdir disk && echo mine >disk/other
stage src disk/tree >/dev/null && stage src/big disk/file >/dev/null && stage packed disk/set >/dev/null
expect 0 '"name": "file", "kind": "file", "state": "complete", "bytes": (4[0-9]|8[0-9])......,' 'lists a file' copies --list
expect 0 '"name": "tree", "kind": "tree", "state": "complete"' 'a tree' copies --list
expect 0 '"name": "set", "kind": "dataset", "state": "complete"' 'and a dataset' copies --list
check 'but nothing else' test "$(copies --list | grep -o '"name"' | wc -l)" -eq 3
expect 0 "^$(uname -n): .* MB  complete +tree +used 2.*  tree" 'for people, too' "$gannet" stage --list --to disk
expect 3 'other is no copy' 'what was not staged is not removed' copies --remove other
expect 2 'not for --from' 'no list of a source' copies --list --from src
expect 2 'needs --from, --list' 'nothing to do' copies
for both in '--remove --quota 1G' '--list --remove' '--list --quota 1'; do
	# shellcheck disable=SC2086 # two options
	expect 2 'are one action each' "two actions, $both" copies $both
done
check 'nothing is removed' test "$(copies --list | grep -o '"state": "complete"' | wc -l)" -eq 3
expect 2 'name tree is for --remove' 'a name without removal' copies --list tree
expect 3 'cannot read folder nowhere' 'no such folder' "$gannet" stage --list --to nowhere

# Programs that read
"$gannet" train --data disk/set --model lenet --steps 100000000 --lr 0.001 >train.log 2>&1 &
reader=$! pids="$pids $!"
check 'a dataset that a run trains on is in use' until_true state set 'in use'
expect 1 'disk/set is in use' 'and not removed' copies --remove set
check 'nor harmed' "$gannet" verify disk/set
kill -9 $reader
wait $reader 2>/dev/null
check 'a killed reader holds nothing' state set complete
check 'another dataset' "$gannet" pack --out packed2 --shard-bytes 100K --seed 3 "$GN_SOURCE/data/digits/digits-val.tar.xz"
holding disk/set
check 'a dataset that is held is in use' until_true state set 'in use'
expect 1 'disk/set holds another dataset that a program reads.*give another folder' 'it is not replaced by another one' stage packed2 disk/set
check 'but untouched' diff -r -x .gannet-stage -x .gannet-stage.lock packed disk/set
truncate -s 1000 disk/set/shard-00001.h5
expect 0 '"copied": 1,.*"kept": 3,' 'it is mended, though' stage packed disk/set
kill -9 $! && wait $! 2>/dev/null
expect 0 '"copied": 8,' 'and replaced when nobody holds it' stage packed2 disk/set
check 'rightly' "$gannet" verify disk/set
stage packed disk/set >/dev/null
for name in tree file; do
	holding disk/$name
	check "a $name that is held is in use" until_true state $name 'in use'
	expect 1 "disk/$name is in use" 'and not removed' copies --remove $name
	expect 1 "disk/$name is a copy that a program reads.*give another place" 'nor replaced by another one' stage src/d1 disk/$name
	check 'of which nothing is copied' test ! -e disk/$name.gannet-part/tree
	kill -9 $! && wait $! 2>/dev/null
done
check 'the tree is as it was' alike disk/tree
cp -a src other && touch other/big
late() { # a program begins to read the old copy while the new one is made, which stands at its first bytes until then
	local job code
	GN_FAIL='stall 1 0' GN_FAIL_RANK=0 GN_FAIL_BELOW=disk/tree.gannet-part LD_PRELOAD=$work/disk.so \
		"$gannet" stage --from other --to disk/tree --threads 1 >late.log 2>&1 &
	job=$! pids="$pids $!"
	until_true test -e stalled && holding disk/tree && until_true eval '! flock --exclusive --nonblock disk/tree true'
	touch go
	wait $job
	code=$?
	kill -9 "${pids##* }"
	cat late.log
	[ $code -eq 1 ] && grep -q 'disk/tree is a copy that a program reads' late.log && alike disk/tree
}
if [ ! "${GN_SANITIZED-}" ] && ${CC:-cc} -shared -fPIC -o disk.so "$GN_SOURCE/tests/data/faulty_disk.c" -ldl 2>cc.err; then
	check 'one that is held when the new one is whole is kept' late
	expect 0 '"kept_bytes": [1-9]' 'the next run replaces it, with what was copied' stage other disk/tree
	check 'rightly' diff -r other/d2 disk/tree/d2
	# what others write to a disk between two readings of its free space does not put all shards into one of two folders on it
	mkdir div1 div2
	GN_FAIL_RANK=0 GN_FAIL_BELOW=/div GN_FAIL="statvfs 100000000 0" LD_PRELOAD=$PWD/disk.so \
		"$gannet" stage --from packed --to "$PWD/div1/set:$PWD/div2/set" >/dev/null
	check 'shards are divided evenly between two folders of one file system' test \
		"$(find div1 -name '*.h5' | wc -l)" -eq "$(find div2 -name '*.h5' | wc -l)"
else
	skip 'one that is held when the new one is whole is kept' 'a preloaded library needs a compiler, and a build without sanitizers'
fi
stage src disk/tree >/dev/null
removes_beside() { # a lock that is held for a moment, as one that looks at it has it
	perl -e 'use Fcntl ":flock"; open my $f, "<", shift or die; flock $f, LOCK_SH or die; my $at = (stat $f)[1]; my $pid = fork;
		exec @ARGV or die unless $pid;
		my $done; until ($done = waitpid $pid, 1) {    # WNOHANG
			last if (readlink "/proc/$pid/exe") =~ /gannet/ && grep { my @s = stat; @s && $s[1] == $at } glob "/proc/$pid/fd/*";
			select undef, undef, undef, .001;
		}
		flock $f, LOCK_UN; waitpid $pid, 0 unless $done; exit($? >> 8)' disk/tree "$gannet" stage --to disk --remove tree
}
check 'a moment in which another list looks at it does not prevent a removal' removes_beside
stage src disk/tree >/dev/null
flock --no-fork disk/tree.gannet-stage.lock tail -f /dev/null &
pids="$pids $!" locker=$!
check 'what is staged now is listed so' until_true state tree 'being staged'
expect 1 'another gannet stage copies to disk/tree' 'and not removed' copies --remove tree
kill -9 $locker
wait $locker 2>/dev/null

# The least recently used
used() { stat -c %Y "disk/$1"; }
age set/.gannet-stage 3 && age tree.gannet-stage 2 && age file.gannet-stage 1
before=$(used set/.gannet-stage)
check 'reading it' "$gannet" info disk/set
check 'is a use' test "$(used set/.gannet-stage)" -gt "$before"
before=$(used tree.gannet-stage)
expect 0 '"source_bytes": 0' 'so is finding it complete' stage src disk/tree
check 'which shows' test "$(used tree.gannet-stage)" -gt "$before"
age set/.gannet-stage 3 && age tree.gannet-stage 1 && age file.gannet-stage 2
expect 0 '"name": "set".*"name": "file".*"name": "tree"' 'the oldest first' copies --list
total=$(copies --list | grep -o '"bytes": [0-9]*}' | grep -o '[0-9]*')
expect 0 '"bytes": [0-9]*}' 'a quota that is kept' copies --quota "$total"
check 'removes nothing' test -e disk/set
expect 0 '"name": "set", "kind": "dataset", "state": "removed"' 'one byte less' copies --quota $((total - 1))
check 'removes the oldest' test ! -e disk/set -a -e disk/tree -a -e disk/file
check 'with all that belongs to it' test -z "$(find disk -maxdepth 1 -name 'set*')"
holding disk/file
check 'the next is held' until_true state file 'in use'
expect 0 '"name": "tree", "kind": "tree", "state": "removed"' 'so the one after it goes' copies --quota 50M
expect 1 'MB in disk cannot be removed' 'a quota that cannot be kept' copies --quota 1M
check 'harms nobody' cmp src/big disk/file
kill -9 $! && wait $! 2>/dev/null
stage src/big disk/older >/dev/null && age older.gannet-stage 9
expect 1 'the copy takes .* MB, more than --quota' 'a copy beyond the quota' stage src disk/tree --quota 10M
check 'removes nothing' cmp src/big disk/file
expect 0 '"source_bytes": [1-9]' 'room for a copy' stage src disk/tree --quota 100M
check 'is made where it is needed' test ! -e disk/older
check 'and the copy is right' alike disk/tree
stage packed disk/set >/dev/null && age file.gannet-stage 2 && rm -r disk/set
expect 0 '"copied": 4' 'for a dataset, too' stage packed disk/set --quota 64M
check 'at the expense of others' test ! -e disk/file
expect 1 'the copy takes .* MB, more than --quota' 'a quota that is lower than a copy that is there' stage packed disk/set --quota 1K
expect 1 'the copy takes .* MB, more than --quota' 'or than a tree that is' stage src disk/tree --quota 1M
stage src/big disk/older >/dev/null && age older.gannet-stage 9
expect 0 '"copied": 0' 'a copy that is found' stage packed disk/set --quota 64M
check 'counts as one that is made' test ! -e disk/older
check 'which is right' "$gannet" verify disk/set

# What is not, or no more, what was staged
echo mine >disk/set/mine
check 'a dataset with a file of somebody else' state set changed
expect 1 'disk/set has files that gannet stage did not make' 'is not removed' copies --remove set
rm disk/set/mine && stage src/d1 disk/tree2 >/dev/null && mv disk/tree2 away && cp -a away disk/tree2
check "a folder of somebody else's under the name" state tree2 changed
expect 0 '"name": "tree2", "kind": "tree", "state": "changed"' 'is not removed' copies --remove
check 'only what is not' test "$(copies --list | grep -o '"name"' | wc -l)" -eq 1
check 'all of it is there' diff -r away disk/tree2
rm -r disk/tree2 disk/tree2.gannet-stage*
check 'of all others nothing is left' left other
ln -s nothing disk/x && cp /dev/null disk/x.gannet-stage
expect 1 'disk/x has files' 'nor is a link under the name of a copy' copies --remove x
rm disk/x disk/x.gannet-stage

# kill -9 while it removes
killed() {
	local calls
	for calls in 1 2 3 4 50 200; do
		[ -e disk/kill ] || { rm -rf disk/kill.gannet-part && stage src disk/kill >/dev/null; } || return 1
		dies_at disk $calls "$gannet" stage --to disk --remove kill >/dev/null 2>&1
		[ $? = 9 ] || return 1
		[ ! -e disk/kill ] || alike disk/kill || return 1
		[ -e disk/kill ] || state kill incomplete || ! copies --list | grep -q '"kill"' || return 1
	done
}
check 'a removal that is killed leaves a whole copy, or none' killed
copies --remove >/dev/null
check 'and the next finishes it' left other

# Staging and removing at the same time: who waits for a lock must not get one that was removed
race() {
	local pid failed=0
	for _ in $(seq 10); do copies --remove >/dev/null 2>&1; done &
	pid=$!
	for _ in $(seq 5); do
		stage src/d1 disk/race >/dev/null || failed=1
		stage packed disk/set >/dev/null || failed=1
	done
	wait $pid
	stage src/d1 disk/race >/dev/null && diff -r src/d1 disk/race && stage packed disk/set >/dev/null && "$gannet" verify disk/set || return 1
	return $failed
}
check 'stage and remove at the same time' race

# The same step by step: the lock that a stage waits for is removed, and another process has the new one
locked() { ! flock --nonblock disk/w.gannet-stage.lock true; }
waits() { [ "$(grep -c 'waiting for another gannet stage' wait.log)" -eq "$1" ]; }
lock() {
	flock --no-fork disk/w.gannet-stage.lock tail -f /dev/null &
	pids="$pids $!"
}
replaced_lock() {
	local first second waiting status=0
	lock && first=$!
	until_true locked || return 1
	"$gannet" stage --from src/d1 --to disk/w 2>wait.log &
	waiting=$! pids="$pids $!"
	until_true waits 1 && rm disk/w.gannet-stage.lock || return 1
	lock && second=$!
	until_true locked || return 1
	kill -9 "$first"
	until_true waits 2 || status=1
	[ ! -e disk/w ] || status=1
	kill -9 "$second"
	wait "$waiting" && diff -r src/d1 disk/w || status=1
	return $status
}
check 'a lock that was removed protects nothing: the next one is waited for' replaced_lock

# Files in a copy that somebody has added or changed
changed_stays() { # COPY: listed so, neither removed nor for a quota, and there
	local rc=0
	state "$1" changed || return 1
	copies --remove "$1" >out.code 2>&1 || rc=$?
	cat out.code
	! copies --quota 1 && copies --list | grep -q "\"name\": \"$1\", .*\"changed\", \"bytes\": [1-9]" || return 1
	[ $rc -eq 1 ] && grep -q 'files that gannet stage did not make' out.code && [ -e "disk/$1" ]
}
mv disk disk.before && mkdir -p disk own/a && echo one >own/file && echo two >own/a/file
stage own disk/mod >/dev/null && stage own/file disk/one >/dev/null
check 'copies that nobody has changed' sh -c '! "$1" stage --json --to disk --list | grep changed' sh "$gannet"
for where in disk/mod disk/mod/a; do
	echo mine >"$where/mine"
	check "a file that was added to ${where#disk/} stays" changed_stays mod
	check 'as it is' test "$(cat "$where/mine")" = mine
	expect 0 'files of disk/mod were changed or added' 'staging again says what goes' stage own disk/mod
	check 'and mends' diff -r own disk/mod
done
stage own/file disk/one >/dev/null
echo mine >>disk/one
check 'a file that was changed stays' changed_stays one
check 'with the change' test "$(tail -n 1 disk/one)" = mine
stage own disk/mod >/dev/null
expect 0 'disk/mod: removed' 'what nobody changed goes' copies --remove mod
rm -r disk && mv disk.before disk

if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
	chmod 755 . && cp "$gannet" program && chmod 1777 disk
	user() { setpriv --reuid 65534 --regid 65534 --clear-groups timeout -k 5 300 ./program stage --json --to disk "$@"; }
	expect 0 '"copies": \[\], "bytes": 0' "another user's copies are not listed" user --list
	expect 3 'no copy of this user' 'nor removed' user --remove race
	expect 0 '"copies": \[\]' 'not by a quota either' user --quota 1
	check 'they are there' diff -r src/d1 disk/race
else
	skip "another user's copies" 'needs root and setpriv'
fi
finish
