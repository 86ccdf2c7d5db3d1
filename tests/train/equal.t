#!/bin/sh
# One rank with 64 images a step and four ranks with 16 see the same samples and lose the same.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
check 'one rank of 64, 50 steps' lenet 1 64 --steps 50 --log-every 1 --log "$dir/one.jsonl"
check 'four ranks of 16, 50 steps' lenet 4 16 --steps 50 --log-every 1 --log "$dir/four.jsonl"
check 'losses agree within 1e-5' same_losses "$dir/one.jsonl" "$dir/four.jsonl" 1e-5
check 'there are 50 of them' test "$("$jsonl" "$dir/four.jsonl" step step | wc -l)" = 50
check 'two ranks over tcp, ring' lenet 2 32 --steps 50 --log-every 1 --log "$dir/two.jsonl" --transport tcp --algo ring \
	--bucket 64K
check 'losses agree within 1e-5 there, too' same_losses "$dir/one.jsonl" "$dir/two.jsonl" 1e-5
check 'four ranks, progress by a thread' lenet 4 16 --steps 50 --log-every 1 --log "$dir/thread.jsonl" --progress thread \
	--bucket 64K
check 'losses agree within 1e-5 with it, too' same_losses "$dir/one.jsonl" "$dir/thread.jsonl" 1e-5
# The comparison itself must be able to fail.
check 'another seed' lenet 1 64 --steps 50 --log-every 1 --log "$dir/other.jsonl" --seed 2
expect 1 'differs at step 1' 'another seed gives other losses' same_losses "$dir/one.jsonl" "$dir/other.jsonl" 1e-5
finish
