#!/bin/sh
# A run is killed right before each system call that changes the folder of checkpoints while one is committed, in its own folder and on
# the node's disk: whatever the call, all that has a final name is whole, and the next start goes on to the same parameters.
set -u
. "$GN_SOURCE/tests/train/common.sh"
kill_at=$GN_BUILD/tests/train/kill_at_call

train() { # FOLDER OPTION...
	folder=$1
	shift
	set -- "$gannet" train --data "$dir/train" --model lenet --channels 1 --side 16 --lr 0.01 --schedule constant --batch 8 --threads 1 --loader-threads 1 --keep 1 \
		--checkpoint "$folder/run" "$@"
	timeout -k 5 300 ${traced:+"$kill_at" "$folder/$traced_folder" "$traced"} "$@" >"$dir/out" 2>&1
}
traced='' traced_folder=run
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256 | tail -1; }

# whole FOLDER: every checkpoint with a final name, verified, and every part on a node's disk, which of one process is all of it; at least one
whole() {
	for checkpoint in "$1"/run/step-???????? "$1"/disk/*/step-????????-node-?????; do
		[ -d "$checkpoint" ] || { [ "${checkpoint#"$1"/disk}" != "$checkpoint" ] && continue; }
		"$gannet" info "$checkpoint" >"$dir/out" 2>&1 || return 1
	done
}

# table: the calls of a run that was not killed
table() { sed -n 's/^\([0-9]* [a-z0-9]* [^ ]*\)$/# \1/p' "$dir/out"; }

# killed K OPTION...: a run that is killed at that call of the second commit, and one that goes on
killed() {
	k=$1
	shift
	rm -rf "$dir/k" && cp -a "$dir/base" "$dir/k" || return 1
	traced=$k
	train "$dir/k" --steps 4 --resume auto "$@"
	code=$?
	traced=
	test $code = 9 || { echo "call $k: code $code, not killed" && return 1; }
	whole "$dir/k" || { echo "call $k: a damaged checkpoint" && return 1; }
	rm -f "$dir/k.jsonl"
	train "$dir/k" --steps 5 --resume auto --log "$dir/k.jsonl" "$@" || { echo "call $k: the next start fails" && return 1; }
	test "$(final k)" = "$want" || { echo "call $k: other parameters" && return 1; }
	! find "$dir/k" -name '*.tmp' | grep . || { echo "call $k: something unfinished is left" && return 1; }
}

every_call() { # CALLS OPTION...
	calls=$1
	shift
	test "$calls" -ge 1 || return 1
	for k in $(seq "$calls"); do
		killed "$k" "$@" || { sed 's/^/  /' "$dir/out" && return 1; }
	done
}

check 'images are packed' "$gannet" pack --out "$dir/train" --synthetic 64 --classes 4 --size 16x16
mkdir "$dir/base" "$dir/free"
check 'a run with a checkpoint of step 2' train "$dir/base" --steps 2
cp -a "$dir/base" "$dir/whole"
cp -a "$dir/base" "$dir/local"
check 'which goes on to step 4' train "$dir/whole" --steps 4 --resume auto
check 'and then to step 5' train "$dir/whole" --steps 5 --resume auto --log "$dir/whole.jsonl"
want=$(final whole)
check 'and ends with a digest' test -n "$want"

cp -a "$dir/base" "$dir/free/0" && traced=0
train "$dir/free/0" --steps 4 --resume auto
code=$?
traced=
if [ "$code" = 77 ]; then
	skip 'killed at every call' 'needs ptrace and seccomp'
	finish
	exit
fi
check "the calls of a commit are counted (code $code)" test "$code" = 0
table
calls=$(grep -Ec '^[0-9]+ [a-z0-9]+ ' "$dir/out")
check "there are some, with a rename of the step ($calls)" sh -c 'test "$1" -ge 20 && grep -q "^[0-9]* rename step-00000004\.[0-9a-f]*\.tmp" "$2"' \
	sh "$calls" "$dir/out"
check "killed before each of them" every_call "$calls"

rm -r "$dir/base" && mkdir "$dir/base"
traced_folder=disk
check 'the same with the disk of the node first' train "$dir/base" --steps 2 --checkpoint-local "$dir/base/disk"
cp -a "$dir/base" "$dir/free/1" && traced=0
check 'whose calls are counted, too' train "$dir/free/1" --steps 4 --resume auto --checkpoint-local "$dir/free/1/disk"
traced=
table
calls=$(grep -Ec '^[0-9]+ [a-z0-9]+ ' "$dir/out")
check "with a rename of the part ($calls)" grep -q '^[0-9]* rename [0-9a-f]*/step-00000004-node-00000\.' "$dir/out"
check 'killed before each of them' every_call "$calls" --checkpoint-local "$dir/k/disk"
finish
