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
train() { # NAME STEPS
	timeout -k 5 300 "$gannet" train --model lenet --batch 16 --lr 0.01 --steps "$2" --loader-threads 1 --threads 1 --data "$dir/$1" --log-every 1 \
		--log "$dir/$1.jsonl" 2>&1 | tee "$dir/$1.out"
	grep -q "done: $2 steps" "$dir/$1.out"
}
# as_logged NAME: the run says it where its steps, by its log, waited a second or more and 5 % of their time, and only there
as_logged() {
	local long=1
	"$GN_SOURCE/tests/cmd/jsonl" "$dir/$1.jsonl" step time_ms.data time_ms.step | awk '{ waited += $1; all += $2 }
		END { print waited, "ms of", all; exit !(waited >= 1000 && waited >= 0.05 * all) }' || long=0
	[[ $(grep -c 'steps waited' "$dir/$1.out") == "$long" ]]
}
expect 0 'WARN .*steps waited [0-9]+ % of their time for the loader, on rank 0; its 1 thread decoded: raise --loader-threads' \
	'a loader of one thread' train large 24
check 'steps waited for it' as_logged large
check 'a run of small pictures' train small 24
check 'a loader that is ahead is not spoken of' as_logged small
expect 0 'data: steps waited [0-9]+ % of their time' 'gannet summary has it, too' "$gannet" summary "$dir/large.jsonl"
finish
