#!/bin/bash
# gannet train --stage: training begins on the source and goes on from the copy, with the same results.
set -u
. "$GN_SOURCE/tests/train/common.sh"
export GANNET_LOG=info
check 'images are packed' "$gannet" pack --out "$dir/train" --synthetic 1000 --classes 4 --size 28x28 --shard-bytes 100K
check 'and others' "$gannet" pack --out "$dir/val" --synthetic 200 --classes 4 --size 28x28 --seed 2
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256 | tail -1; }
copies() { # NAME: whole copies of both
	diff -r -x .gannet-stage -x .gannet-stage.lock "$2/train" "$1/train" && diff -r -x .gannet-stage -x .gannet-stage.lock "$2/val" "$1/val"
}
make_lock() { # FOLDER: of a copy
	mkdir -p "$1" && (umask 077; : >"$1/.gannet-stage.lock")
}
hold() { # ARGUMENT-OF-FLOCK...: another process has that lock until let_go
	coproc HOLDER { exec flock "$@" sh -c 'echo held; read -r x'; }
	holder=$!
	read -r _ <&"${HOLDER[0]}"
}
let_go() {
	echo go >&"${HOLDER[1]}"
	wait "$holder"
}
run() { # RANKS NAME OPTION...
	local ranks=$1 name=$2
	shift 2
	lenet "$ranks" 8 --val "$dir/val" --schedule constant --log "$dir/$name.jsonl" --log-every 10 --no-overlap --bucket 1M --epochs 2 "$@"
}
check 'a run on the source' run 2 plain
staged() { # NAME STAGE PATTERN: runs, each as right as the others, until one is longer than its copy takes, however often that is
	local end=$((SECONDS + tap_limit))
	while ((SECONDS < end)); do
		rm -f "$dir/$1.jsonl"
		run 2 "$1" --stage "$2" >"$dir/$1.out" 2>&1 || break
		[[ $(final "$1") == "$(final plain)" ]] || break
		! grep -E "$3" "$dir/$1.out" || return 0
	done
	cat "$dir/$1.out"
	return 1
}
check 'a run that stages has the same parameters' staged first "$dir/disk" 'staged .*/val to .*/disk/val: [0-9]+ shards copied'
check 'and leaves whole copies' copies "$dir/disk" "$dir"
check 'the next one finds them, and has the same parameters' staged second "$dir/disk" 'staged .*/train to .*: 0 shards copied .* [1-9][0-9]* were there.* read .* MB'
check 'one rank alone, for longer' run 1 alone --epochs 12
check 'the copies can be removed' "$gannet" stage --to "$dir/disk" --remove

# The lock of the copy is held until training has come to its tenth step; and once all is copied, the source is destroyed.
cp -r "$dir/train" "$dir/source" && mv "$dir/source" "$dir/t" && mkdir "$dir/other" && mv "$dir/t" "$dir/other/train"
late() {
	local job
	make_lock "$dir/slow/train"
	hold "$dir/slow/train/.gannet-stage.lock"
	run "$1" "late$1" --data "$dir/other/train" --epochs 12 --stage "$dir/slow" >"$dir/late.out" 2>&1 &
	job=$!
	# shellcheck disable=SC2016 # sh expands it
	until_true sh -c 'test "$("$1" "$2" step step 2>/dev/null | wc -l)" -ge 1' sh "$jsonl" "$dir/late$1.jsonl" || return 1
	! ls "$dir"/slow/train/*.h5 2>/dev/null || return 1
	let_go
	until_true grep -q 'staged .*/other/train' "$dir/late.out" || return 1
	for shard in "$dir"/other/train/*.h5; do
		shred -n 0 -z "$shard"
	done
	"$jsonl" "$dir/late$1.jsonl" end params_sha256 >"$dir/was.done"
	wait $job
	cat "$dir/late.out"
}
expect 0 'meanwhile this rank read (0\.[1-9]|[1-9]|0\.0[1-9]).* from the source' 'training begins before the copy does' late 1
check 'it was not over when the copy was' test ! -s "$dir/was.done"
check 'the source can go after that, and the parameters are the same' test "$(final late1)" = "$(final alone)"

# Several disks
check 'a run that stages to two disks has the same parameters' staged disks "$dir/one:$dir/two" 'staged .*/train to .*/one/train:.*/two/train: '
check 'each has a part' sh -c 'ls "$1"/one/train/*.h5 "$1"/two/train/*.h5' sh "$dir"
expect 0 '' 'a run on both' run 2 both --data "$dir/one/train:$dir/two/train"
check 'has them, too' test "$(final both)" = "$(final plain)"

# Another process has the lock of the list, as while it copies.
follow() {
	local job found
	hold "$dir/one/train.gannet-stage.lock"
	run 1 follow --epochs 12 --stage "$dir/one:$dir/two" >"$dir/follow.out" 2>&1 &
	job=$!
	# shellcheck disable=SC2016 # sh expands it
	until_true sh -c '! kill -0 "$1" 2>/dev/null || find /proc/[0-9]*/fd -lname "$2/*.h5" 2>/dev/null | grep -q .' sh "$job" "$dir/two/train"
	kill -0 "$job" 2>/dev/null
	found=$?
	let_go
	wait $job && [[ $(final follow) == "$(final alone)" ]] && return $found
	cat "$dir/follow.out"
	return 1
}
check 'each rank of a node reads what is complete on the disks while another one copies' follow

# What cannot be staged does not end a run.
mkdir -p "$dir/full/train" && : >"$dir/full/train/shard-00000.h5"
expect 0 'WARN.*staging of .* failed: .*shard-00000.h5 exists and was not staged.*reads the source' 'a run that cannot stage warns' run 1 failed --epochs 12 --stage "$dir/full"
check 'and has the same parameters' test "$(final failed)" = "$(final alone)"
check 'validation images under the name of the training images' "$gannet" stage --from "$dir/val" --to "$dir/taken/train"
taken() {
	local rc
	hold --shared "$dir/taken/train"
	staged taken "$dir/taken" 'WARN.*staging of .*/train failed: .*/taken/train holds another dataset that a program reads'
	rc=$?
	let_go
	return $rc
}
check 'a run that would replace what another program reads warns, and has the same parameters' taken
check 'nothing of that is replaced' diff -r -x .gannet-stage -x .gannet-stage.lock "$dir/val" "$dir/taken/train"
expect 2 'train: --stage is empty' 'nor to nowhere' run 1 nowhere --stage ''
expect 2 'train: --stage .*/a/disk:b/disk: .*those after a colon begin with' 'nor to a list that is none' run 1 nowhere --stage "$dir/a/disk:b/disk"
expect 2 '/train lies there already' 'a dataset cannot be staged to itself' run 2 self --stage "$dir"
stopped() {
	local rc
	make_lock "$dir/held/train"
	hold "$dir/held/train/.gannet-stage.lock"
	run 2 held --stage "$dir/held"
	rc=$?
	let_go
	return $rc
}
expect 0 'staging of .*/train ended with the run' 'a run ends before its copy has begun' stopped
finish
