#!/bin/sh
# Buckets and overlap change when gradients travel and never what they are; the choice by measurement is made once and kept.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'pictures are packed' "$gannet" pack --out "$dir/pictures" --synthetic 240 --classes 4 --size 16x16
# run NAME RANKS OPTION...
run() {
	name=$1 ranks=$2
	shift 2
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" train --data "$dir/pictures" --model resnet20 --side 16 --batch 2 \
		--threads 1 --loader-threads 1 --lr 0.1 --log "$dir/$name.jsonl" "$@"
}
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256 | tail -1; }
same() { test -n "$(final "$1")" && test "$(final "$1")" = "$(final "$2")"; }
buckets() { test "$("$jsonl" "$dir/$1.jsonl" start buckets)" -gt "$2"; }

# Overlap, by an order of summation that depends on where an element lies in its bucket.
check 'four ranks, ring, small buckets' run ring 4 --steps 5 --transport tcp --algo ring --bucket 64K --overlap
check 'really small ones' buckets ring 5
check 'the same after backward' run ring-after 4 --steps 5 --transport tcp --algo ring --bucket 64K --no-overlap
check 'the same parameters, bit by bit' same ring ring-after
check 'nothing is taken from backward then' sh -c '"$1" "$2" step time_ms >/dev/null &&
	grep -q "\"communication_in_backward\": 0.000" "$2"' sh "$jsonl" "$dir/ring-after.jsonl"
check 'something is before' sh -c '! grep -q "\"communication_in_backward\": 0.000" "$1"' sh "$dir/ring.jsonl"

# Bucket sizes, by orders that do not. Three ranks, because with two all orders are one.
for how in 'shared auto' 'recursive-doubling tcp' 'halving-doubling tcp'; do
	algo=${how% *}
	check "three ranks, $algo, small buckets" run "$algo-small" 3 --steps 3 --algo "$algo" --transport "${how#* }" --bucket 32K
	check "three ranks, $algo, one bucket" run "$algo-one" 3 --steps 3 --algo "$algo" --transport "${how#* }" --bucket 1G
	check "$algo: the same parameters, bit by bit" same "$algo-small" "$algo-one"
done

# The choice. The first steps measure, one line tells, and the folder keeps it. Fewer than 44 steps, and three ways to try are not
# worth it.
export GANNET_LOG=info
expect 0 'gradients are summed in .* ms a step; tried: ' 'two ranks measure' run measured 2 --steps 46 --checkpoint "$dir/run"
check 'the log has what was tried' python3 - "$dir/measured.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
found = [line for line in lines if line["event"] == "exchange"]
assert len(found) == 1, found
tried = found[0]["tried"]
assert len(tried) >= 2 and all(way["step_ms"] > 0 for way in tried), tried
chosen = [way for way in tried if way["buckets"] == found[0]["buckets"] and way["overlap"] == found[0]["overlap"]]
assert len(chosen) == 1 and chosen[0]["step_ms"] <= tried[0]["step_ms"], found
assert found[0]["exact"] is True, found
PY
check 'it is in the folder' grep -q '"bucket_bytes"' "$dir/run/exchange.json"
check 'fixed ones' run fixed 2 --steps 46 --bucket 16M --no-overlap
check 'measuring changes nothing' same measured fixed
expect 0 'as measured before' 'a run that goes on does not measure again' run measured 2 --steps 48 --checkpoint "$dir/run" \
	--resume auto
check 'nor tell it as measured' test "$("$jsonl" "$dir/measured.jsonl" exchange step | wc -l)" = 1
expect 0 'gradients are summed in .*; tried: ' 'three ranks measure anew' run three 3 --steps 94 --checkpoint "$dir/run" --resume auto
echo '{"of": 1, "bucket_bytes": "many"' >"$dir/run/exchange.json"
expect 0 'gradients are summed in .*; tried: ' 'a torn file is as none' run three 2 --steps 140 --checkpoint "$dir/run" --resume auto
# What is chosen never shows in the parameters, unless it may: a ring adds in an order that depends on the bucket.
check 'three ranks, ring' run ring-auto 3 --steps 46 --transport tcp --algo ring
check 'have no other size that leaves the same bits' sh -c '! grep -q "\"event\": \"exchange\"" "$1"' sh "$dir/ring-auto.jsonl"
expect 0 'gradients are summed in .*; tried: .*can differ' 'but try them when told to' run ring-any 3 --steps 46 --transport tcp \
	--algo ring --any-order
check 'a short run' run short 2 --steps 10
check 'does not measure' sh -c 'grep -q "\"event\": \"end\"" "$1" && ! grep -q "\"event\": \"exchange\"" "$1"' sh "$dir/short.jsonl"
finish
