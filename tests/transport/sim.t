#!/bin/bash
# gannet sim: rows, JSON, a topology file, proofs, refusals.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
sim() { timeout -k 5 120 "$gannet" sim "$@"; }

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
expect 3 "no speed" "an unknown key is refused" sim --topology "$scratch/t.json"
printf '{"nodes": 3' >"$scratch/t.json"
expect 3 "t.json" "a broken file is refused" sim --topology "$scratch/t.json"
expect 2 "no algorithm nope" "an unknown algorithm is refused" sim --algo nope
expect 2 "whole number" "half a node is refused" sim --nodes 1.5
expect 0 "proved all-to-all" "proofs" sim --verify --collective all --verify-ranks 9
expect 0 "efficiency" "a training step" sim --nodes 4 --compute-ms 100 --algo hierarchical
expect 0 "recursive-doubling" "20000 ranks" sim --nodes 2500 --ranks-per-node 8 --algo recursive-doubling --pieces 1 --max-bytes 64K
finish
