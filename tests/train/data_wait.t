#!/bin/bash
# Steps that wait for the loader: the end of a run says how long, and what to do; a run that does not wait says nothing.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
dir=$(mktemp -d "${TMPDIR:-/tmp}/gannet-wait.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP
export OMP_NUM_THREADS=1

# a loader of one thread has to decode 2 million pixels for an image of 28 x 28
check 'large pictures' "$gannet" pack --out "$dir/large" --synthetic 64 --classes 2 --size 1600x1200
check 'small pictures' "$gannet" pack --out "$dir/small" --synthetic 64 --classes 2 --size 32x32
train() { timeout -k 5 300 "$gannet" train --model lenet --batch 16 --lr 0.01 --steps "$1" --loader-threads "$3" --threads 1 --data "$dir/$2" --log "$dir/$2.jsonl"; }
expect 0 'WARN .*steps waited [0-9]+ % of their time for the loader, on rank 0; its 1 thread decoded: raise --loader-threads' \
	'a loader of one thread' train 40 large 1
silent() { train 60 small 1 2>&1 | tee "$dir/out" | grep 'steps waited' && return 1; grep -q 'done: 60 steps' "$dir/out"; }
check 'a loader that is ahead' silent
expect 0 'data: steps wait [0-9]+ % of their time' 'gannet summary has it, too' "$gannet" summary "$dir/large.jsonl"
finish
