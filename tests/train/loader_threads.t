#!/bin/bash
# --loader-threads auto: as many as steps need and processors allow, a line that says why, and the same bits.
set -u
# shellcheck source=tests/train/common.sh
. "$GN_SOURCE/tests/train/common.sh"
export GANNET_LOG=info
check 'pictures' "$gannet" pack --out "$dir/train" --synthetic 128 --classes 4 --size 64x48
train() { # NAME THREADS OPTION...
	timeout -k 5 300 "$gannet" train --data "$dir/train" --val "$dir/train" --model lenet --lr 0.01 --batch 16 --steps 60 --threads 1 --loader-threads "$2" --mixup 0.2 \
		--log "$dir/$1.jsonl" "${@:3}"
}
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256 | tail -1; }
check 'one thread' train one 1
check 'three' train three 3
expect 0 'loader threads: [0-9]+ on rank 0 \((as before,|before) [0-9]+; at most [0-9]+, its processors\): the images of a step take' \
	'auto says what it chose and why' train auto auto
check 'a digest' test -n "$(final one)"
check 'three threads give the same parameters' test "$(final three)" = "$(final one)"
check 'and so do those that auto chose' test "$(final auto)" = "$(final one)"
one_processor() { taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" timeout -k 5 300 "$gannet" launch -n 1 -- "$gannet" train --data "$dir/train" --model lenet \
	--lr 0.01 --batch 16 --steps 60 --threads 1 --loader-threads auto; }
expect 0 'loader threads: 1 on rank 0 .*at most 1' 'on one processor one' one_processor
kept() { train kept auto --checkpoint "$dir/kept" && grep -q '^loader-threads = auto$' "$dir/kept/options"; }
check 'the options of the run are kept' kept
repeated() { timeout -k 5 300 "$gannet" train --options "$dir/kept/options" --log "$dir/again.jsonl"; }
check 'and can be read again' repeated
check 'to the same parameters' test "$(final again)" = "$(final one)"
expect 2 "loader-threads" 'none is no number of threads' train none 0
finish
