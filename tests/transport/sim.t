#!/bin/bash
# gannet sim: rows, JSON, a topology file, proofs, refusals.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
mkdir "$scratch/d"
sim() { timeout -k 5 300 "$gannet" sim "$@"; }

check "every collective is timed" sim --collective all --nodes 4 --ranks-per-node 2 --min-bytes 64K --max-bytes 64K
rows() {
	sim --json --nodes 8 --algo ring --min-bytes 1M --max-bytes 1M |
		perl -MJSON::PP -ne '$r = decode_json($_); $n++; die "busbw" if abs($r->{bytes} / $r->{time_us} / 1e3 * 14 / 8
			/ $r->{busbw_gb_per_s} - 1) > 1e-6; END { exit !($n == 1) }'
}
check "a JSON row adds up" rows
printf '{"nodes": 3, "link_gbit": 1}' >"$scratch/t.json"
expect 0 "^# 3 nodes of 2 ranks" "a file, and an option above it" sim --topology "$scratch/t.json" --ranks-per-node 2 --algo ring
printf '{"nodes": 3, "speed": 1}' >"$scratch/t.json"
expect 3 "unknown key speed" "an unknown key is refused" sim --topology "$scratch/t.json"
printf '{"nodes": 3' >"$scratch/t.json"
expect 3 "t.json" "a broken file is refused" sim --topology "$scratch/t.json"
printf '\n<?xml version="1.0"?><topology/>' >"$scratch/t.xml"
expect 3 "t.xml is XML, as lstopo writes .* needs a JSON object" "lstopo's XML is told from a cluster" sim --topology "$scratch/t.xml"
expect 2 "link-gbit: -1 is outside 0 to" "a rate below 0 is refused" sim --link-gbit -1
check 'which no default is' sh -c '! "$1" sim --help | grep -q "default -1"' sh "$GN_BUILD/gannet"
expect 2 "give the number of nodes per" "oversubscription of no leaf switches is refused" sim --oversubscription 4
printf '{"nodes": 8, "oversubscription": 2}' >"$scratch/t.json"
expect 3 "give the number of nodes per" "nor in a file" sim --topology "$scratch/t.json"
expect 0 "^# 8 nodes" "with leaf switches it counts" sim --topology "$scratch/t.json" --leaf-nodes 4 --max-bytes 64K --algo ring
expect 2 "no algorithm nope" "an unknown algorithm is refused" sim --algo nope
expect 2 "an integer" "half a node is refused" sim --nodes 1.5
expect 0 "verified all-to-all" "proofs" sim --verify --collective all --verify-ranks 9
expect 0 "efficiency" "a training step" sim --nodes 4 --compute-ms 100 --algo hierarchical
expect 0 "recursive-doubling" "20000 ranks" sim --nodes 2500 --ranks-per-node 8 --algo recursive-doubling --pieces 1 --max-bytes 64K
printf '{"compute_ms": 100, "after_ms": 10, "batch": 8, "buckets": [{"bytes": 1e6, "ready_ms": 60}, {"bytes": 4e6, "ready_ms": 90}]}' \
	>"$scratch/step.json"
# by hand: two of 1 GB/s; 1 MB is summed while computing goes on, of 4 MB all but nothing is hidden
step() { sim --step "$scratch/step.json" --nodes 2 --link-gbit 8 --link-us 0 --send-us 0 --receive-us 0 --gap-us 0 --reduce-gb 0 \
	--eager-bytes 1e9 --algo ring --json | perl -MJSON::PP -ne 'exit abs(decode_json($_)->{step_ms} - (90 + 4 + 10)) > 0.1'; }
check "a step by its buckets" step
printf '{"compute_ms": 100, "batch": 8, "buckets": [{"bytes": 1e6}]}' >"$scratch/step.json"
expect 3 "step.json: ready_ms" "a bucket without a time is refused" sim --step "$scratch/step.json"
printf '%s\n' '{"event": "start", "ranks": 1, "global_batch": 32, "parameters": 1000000, "buckets": 4}' \
	'{"event": "step", "time_ms": {"data": 1, "forward": 9, "backward": 20, "optimizer": 2}}' '{"eve' >"$scratch/log.jsonl"
expect 0 "a step of 32 ms alone, 32 images a rank, 4000000 bytes of gradient in 4 buckets" "a step by a log" \
	sim --log "$scratch/log.jsonl"
sed 's/"ranks": 1,/"ranks": 2, "mesh": {"data": 1, "pipeline": 2},/' "$scratch/log.jsonl" >"$scratch/mesh.jsonl"
expect 2 "of a pipeline of 2 stages, and has the times of one stage" "a log of a pipeline is refused" sim --log "$scratch/mesh.jsonl"
echo '{}' >"$scratch/log.jsonl"
expect 3 "is it a log" "another file is refused" sim --log "$scratch/log.jsonl"
expect 2 "one of" "two descriptions are refused" sim --log "$scratch/log.jsonl" --compute-ms 3
# by hand: 5 rounds of a pass each way of 11.25 ms in all, 1 MB each way at 1 GB/s, half of the update
pipe() { sim --compute-ms 100 --after-ms 10 --nodes 2 --pipeline 2 --pipe-schedule gpipe --link-gbit 8 --link-us 0 --send-us 0 --receive-us 0 \
	--gap-us 0 --json | perl -MJSON::PP -ne '$r = decode_json($_); END { exit !($. == 1 && abs($r->{step_ms} - (5 * 11.25 + 2 + 5)) < 1e-6
		&& $r->{network_bytes} == 8e6) }'; }
check "a pipeline of two stages" pipe
expect 0 "data=1250 x pipeline=8, 1f1b" "pipelines of 10000 ranks" sim --compute-ms 100 --nodes 1250 --ranks-per-node 8 --pipeline 8 --algo ring
expect 0 "^hierarchical .* %" "by each algorithm" sim --compute-ms 100 --nodes 4 --ranks-per-node 2 --pipeline 4
expect 2 "3 does not divide the machine's 4 ranks" "a pipeline that does not fit" sim --compute-ms 100 --nodes 4 --pipeline 3
expect 2 "give --compute-ms" "a pipeline of nothing" sim --nodes 4 --pipeline 2
launch 2 "$gannet" tune --transport tcp --seconds 0.005 --max-bytes 64K --out "$scratch/t.jsonl" >/dev/null 2>&1
expect 0 "^# 8 nodes of 1" "measured costs" sim --tuning "$scratch/t.jsonl" --nodes 8 --max-bytes 1M --repeats 3 --warmup 1
expect 3 "t.jsonl:1: " "measured costs, damaged" sh -c "sed 's/latency_s/late/' '$scratch/t.jsonl' >'$scratch/d/t.jsonl'; \
	'$gannet' sim --tuning '$scratch/d/t.jsonl'"
expect 3 "no entry with 'rc'" "measured costs of no such fabric" sim --tuning "$scratch/t.jsonl" --fabric rc
finish
