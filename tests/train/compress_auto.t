#!/bin/bash
# --compress auto: what is chosen is what its own measurements say, whatever they are; a method on a slow network; kept in the checkpoint.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
jsonl=$GN_SOURCE/tests/cmd/jsonl
export UCX_WARN_UNUSED_ENV_VARS=n GANNET_LOG=info OMP_NUM_THREADS=1

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
lenet() { # NAME STEPS OPTION...
	launch 2 "$gannet" train --data "$scratch/train" --model lenet --lr 0.02 --schedule constant --batch 16 --threads 1 \
		--loader-threads 1 --compress auto --log "$scratch/$1.jsonl" --checkpoint "$scratch/$1" --steps "$2" "${@:3}"
}
digest() { "$jsonl" "$scratch/$1.jsonl" end params_sha256 | tail -1; }
chosen() { sed -n 's/.*"compress": "\([^"]*\)".*/\1/p' "$scratch/$1"/latest/manifest.json; }

# by_rule NAME: of what the log has measured, each method in turn is taken that saves 5 % of a step or more of what is waited for
by_rule() {
	python3 - "$scratch/$1.jsonl" <<'PY'
import json, sys
event, = [e for e in map(json.loads, open(sys.argv[1])) if e["event"] == "compress"]
times = event["sharing_ms"]
assert list(times) == ["none", "bf16", "int8", "topk:0.01", "powersgd:2"], event
best, waits, near = "none", min(event["exposed_ms"], times["none"]), False
for method in list(times)[1:]:
    saves = waits - times[method] - 0.05 * event["step_ms"]
    near = near or abs(saves) < 0.002
    if saves > 0:
        best, waits = method, times[method]
print(event, best)
assert event["method"] == best or near  # what is within rounding may be either
PY
}
expect 0 'auto: [a-z0-9.:]+; .*none [0-9.]+, bf16 [0-9.]+, int8 [0-9.]+, topk:0.01 [0-9.]+, powersgd:2' 'in shared memory ways are measured' \
	lenet shared 40
check 'what is chosen follows from that' by_rule shared
check 'the checkpoint has it' test "$(chosen shared)" = "$("$jsonl" "$scratch/shared.jsonl" compress method)"
expect 0 'too few to measure' 'a short run measures nothing' lenet short 10
expect 0 'resumed from' 'what is chosen stays chosen' lenet shared 44 --resume auto
check 'and is not measured again' test "$("$jsonl" "$scratch/shared.jsonl" compress method | wc -l)" = 1

# A network of its own with a loopback of 30 Mbit/s: 1.7 MB a step and way take half a second.
slowly() {
	unshare -rn sh -c 'ip link set lo up mtu 1500 && tc qdisc add dev lo root tbf rate 30mbit burst 128k latency 2s && "$@"' slowly "$@"
}
slow_lenet() { slowly timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" train --data "$scratch/train" --model lenet --lr 0.02 \
	--schedule constant --batch 16 --threads 1 --loader-threads 1 --log "$scratch/$1.jsonl" --checkpoint "$scratch/$1" --steps "$2" \
	--transport tcp "${@:3}"; }
if slowly true 2>/dev/null; then
	expect 0 'auto: (int8|topk:0.01|powersgd:2); sharing' 'on a slow network a method is taken' slow_lenet slow 40 --compress auto
	check 'which follows from what was measured' by_rule slow
	method=$("$jsonl" "$scratch/slow.jsonl" compress method)
	check 'the checkpoint has it' test "$(chosen slow)" = "$method"
	cp -r "$scratch/slow" "$scratch/fixed"
	expect 0 "compressed by $method" 'it goes on with it' slow_lenet slow 46 --compress auto --resume auto
	check 'as asked for by name' slow_lenet fixed 46 --compress "$method" --resume auto
	check 'the same bits' test "$(digest slow)" = "$(digest fixed)"
else
	skip 'on a slow network a method is taken' 'no network namespaces or no tc here'
fi
# Two methods in one run: both are named over the curve of bytes, each where it begins.
changed() { launch 2 "$gannet" train --data "$scratch/train" --model lenet --lr 0.02 --schedule constant --batch 16 --threads 1 \
	--loader-threads 1 --log "$scratch/changed.jsonl" --checkpoint "$scratch/changed" --log-every 2 --resume auto "$@"; }
check 'int8' changed --compress int8 --steps 10
check 'then topk' changed --compress topk:0.01 --steps 20
check 'a report is drawn' "$gannet" report "$scratch/changed.jsonl" --out "$scratch/report"
check 'of the bytes of a step, by method' python3 - "$scratch/report/report.html" <<'PY'
import re, sys
pictures = re.findall("<svg.*?</svg>", open(sys.argv[1], encoding="utf-8").read(), re.S)
picture, = [p for p in pictures if "Sent by rank 0 in a step" in p]
names = {name: float(x) for x, name in re.findall(r"<text x='([\d.]+)'[^>]*>((?:int8|topk)[^<]*)<", picture)}
points = [tuple(map(float, p.split(","))) for line in re.findall(r"points='([^']*)'", picture) for p in line.split()]
change = float(re.search(r"stroke-dasharray='2 3' d='M([\d.]+)", picture).group(1))
before, after = [y for x, y in points if x < change - 1], [y for x, y in points if x > change + 1]
print(names, change, before, after)
assert list(names) == ["int8", "topk:0.01"] and abs(change - names["topk:0.01"]) < 8 and abs(change - (points[0][0] + points[-1][0]) / 2) < 80
assert before and after and max(before) < min(after), "y grows downwards: int8 sends more"
PY
finish
