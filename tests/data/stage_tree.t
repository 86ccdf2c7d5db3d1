#!/bin/bash
# gannet stage of any tree: a copy with all that a tree has, nothing of others replaced, nothing half-written after kills.
set -u
# shellcheck source=tests/data/tree.sh
. "$GN_SOURCE/tests/data/tree.sh"
expect 0 '"nodes": 1,.*"kept_bytes": 0,' 'copies a tree' stage src far/to
check 'with all that it has' alike far/to
check 'and nothing beside it but marker and lock' tidy far to
expect 0 '"source_bytes": 0, "written_bytes": 0,' 'copies nothing again' stage src far/to
expect 0 '"source_bytes": 0, "written_bytes": 0,' 'nor when it digests what is there' stage src far/to --check
perl -e 'open my $f, "+<", $ARGV[0] or die; my @t = (stat $f)[8, 9]; seek $f, 5e6, 0; print $f "damage"; close $f;
	utime @t, $ARGV[0]' far/to/big
touch -r src/big far/to/big
expect 0 '"source_bytes": 0,' 'damage that times do not show' stage src far/to
expect 0 '"source_bytes": [1-9]' 'is found by --check' stage src far/to --check
check 'and mended' alike far/to
echo more >>far/to/d1/f1 && rm far/to/d2/f2 && touch far/to/extra
expect 0 '"source_bytes": [1-9]' 'a copy that was changed is replaced' stage src far/to
check 'rightly' alike far/to
check 'and tidily' tidy far to
mkdir -m 700 far/to.gannet-part && cp -r src/d1 far/to.gannet-part/old
expect 0 '"source_bytes": 0,' 'what a run left that was killed after the rename' stage src far/to
check 'is removed' tidy far to
expect 0 '"source_bytes": 0,' 'slashes at the end change nothing' stage src/ far/to//
expect 0 '"entries": 1,' 'one file' stage src/big one/file
check 'is right' cmp src/big one/file
mkdir busy && touch busy/mine
expect 1 'busy exists, and was not staged' "a folder with other files is not replaced" stage src busy
check 'nor touched' test "$(ls -A busy)" = mine
ln -s busy link
expect 1 'link exists' 'nor is a symbolic link' stage src link
expect 2 'is inside of' 'a target inside of the source' stage src src/d1/to
expect 3 'No such file' 'no source' stage nowhere to
expect 2 'cannot be staged' 'the root folder' stage / to
expect 0 ' 1 entry on 1 of 1 node: ' 'is said to be one' "$gannet" stage --from src/big --to one/file2
expect 0 'digests verified$' 'what --check did is said' "$gannet" stage --from src/big --to one/file2 --check
mkfifo fifo
expect 0 'fifo: 1 FIFO is made anew in the copy; nothing is read from it' 'a FIFO is told' "$gannet" stage --from fifo --to pipe2
expect 0 '"entries": 1, "data_bytes": 0,' 'a FIFO is copied, not read' stage fifo pipe
check 'as one' test -p pipe
"$gannet" pack --out packed "$GN_SOURCE/data/digits/digits-val.tar.xz" >/dev/null 2>&1
expect 0 '"entries": ' 'a packed dataset, as a tree' stage packed copy --tree
check 'holds the same, and no marker' diff -r packed copy

# Folders without write permission bind their owner, but not root.
if [ "$(id -u)" -eq 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null; then
	chmod 755 . && cp "$gannet" program && mkdir -m 1777 disk && cp -r src/d1 disk/from
	chown -R 65534:65534 disk/from && chmod 555 disk/from
	user() { setpriv --reuid 65534 --regid 65534 --clear-groups timeout -k 5 300 ./program stage --json --from disk/from --to disk/to "$@"; }
	expect 0 '"source_bytes": [1-9]' 'a user stages a folder that he cannot write' user
	touch disk/from/f1
	expect 0 '"source_bytes": [1-9]' 'and replaces the copy' user
	check 'which leaves nothing' test ! -e disk/to.gannet-part
	mkdir disk/to.gannet-part && chmod 777 disk/to.gannet-part && touch disk/from/f51
	expect 1 'is not a folder that only this user can open' "another user's folder for the part is refused" user
	touch disk/other && chown 1:1 disk/other
	expect 1 'disk/other belongs to user 1' 'a file of another user is not replaced' user --to disk/other
	check 'and kept' test "$(stat -c %u disk/other)" = 1
else
	skip 'folders without write permission' 'needs root and setpriv'
fi

# kill -9 at a call, again and again; each run keeps what was complete
killed() {
	local calls
	for calls in 90 110 130; do # the journal begins at 70
		dies_at kill $calls "$gannet" stage --from src --to kill/to --threads 1 >out 2>&1
		[ $? = 9 ] && [ ! -e kill/to ] && [ -s kill/to.gannet-part/journal ] || { cat out; return 1; }
	done
}
check 'killed three times' killed
expect 0 '"kept_bytes": [0-9]' 'the next run goes on' stage src kill/to
check 'to a right copy' alike kill/to
check 'and tidily' tidy kill to
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ] && [ -w /dev/shm ] && memory=$(mktemp -d /dev/shm/gannet-stage.XXXXXX); then
	expect 0 'is on tmpfs, in memory: ' 'a target in memory is warned of' stage src/d1 "$memory/below/to"
	rm -rf "$memory"
else
	skip 'a target in memory' 'no tmpfs at /dev/shm'
fi
# A stop is told, and the same command goes on. Nothing is written before it comes.
head -c 30M /dev/zero | tr '\0' x >large
stopped() {
	local job code
	rm -f stalled go
	GN_FAIL='stall 1 0' GN_FAIL_RANK=0 GN_FAIL_BELOW=stop/ LD_PRELOAD=$work/disk.so "$gannet" stage --from large --to stop/large >out 2>&1 &
	job=$!
	until_true test -e stalled && kill -TERM $job
	touch go
	wait $job
	code=$?
	cat out
	((code == 143)) && grep -q 'stopped by a signal; what has been copied is kept' out && test ! -e stop/large
}
if [ ! "${GN_SANITIZED-}" ] && ${CC:-cc} -shared -fPIC -o disk.so "$GN_SOURCE/tests/data/faulty_disk.c" -ldl 2>cc.err; then
	mkdir stop
	check 'a stop by a signal is told' stopped
	expect 0 '"entries": 1,' 'the same command goes on' stage large stop/large
	check 'to the end' cmp large stop/large
else
	skip 'a stop by a signal is told' 'a preloaded library needs a compiler, and a build without sanitizers'
fi
finish
