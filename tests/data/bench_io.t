#!/bin/bash
# gannet bench io: every sample or block is read once and checked, nothing is left, and what is wrong is named.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
dir=$(mktemp -d "${TMPDIR:-/tmp}/gannet-io.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP

check 'pictures are packed' "$gannet" pack --out "$dir/data" --synthetic 60 --classes 2 --size 64x64
# row CONDITION ARG...: bench io prints a JSON object of which a condition holds
row() {
	timeout -k 5 300 "$gannet" bench io --json "${@:2}" >"$dir/row" || return 1
	cat "$dir/row"
	python3 -c 'import json, sys; row = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$dir/row" "$1"
}
bytes=$("$gannet" info "$dir/data" --json | python3 -c 'import json, sys; print(sum(s["data_bytes"] for s in json.load(sys.stdin)["shards"]))' 2>/dev/null ||
	python3 -c 'import json, sys; print(sum(s["data_bytes"] for s in json.load(open(sys.argv[1]))["shards"]))' "$dir/data/gannet-dataset.json")
check 'each sample once' row "row['of'] == 'dataset' and row['reads'] == 60 and row['bytes'] == $bytes and 0 < row['p50_us'] <= row['p99_us'] <= row['max_us']" \
	--data "$dir/data" --loader-threads 3
mkdir "$dir/folder"
check 'each block once' row "row['of'] == 'file' and row['reads'] == 40 and row['bytes'] == 40 * 100000 and row['mb_per_s'] > 0" \
	--data "$dir/folder" --file-bytes 4000000 --block-bytes 100000 --loader-threads 4
check 'and nothing is left' test -z "$(ls -A "$dir/folder")"
check 'what is in memory is said' row "row['cached'] == 1" --data "$dir/folder" --file-bytes 1M --warm
expect 0 'blocks of 114688 bytes in random order, 2 threads, each checked; [0-9.]+ % in memory' 'a table for people' timeout -k 5 300 "$gannet" bench io \
	--data "$dir/folder" --file-bytes 1M
expect 2 'needs --data' 'without a folder' "$gannet" bench io
expect 2 'less than a block' 'a file without a block' "$gannet" bench io --data "$dir/folder" --file-bytes 4096
expect 3 'none' 'a folder that is not there' "$gannet" bench io --data "$dir/none"
free=$(($(df --output=avail -B1 "$dir" | tail -n 1) + (1 << 30)))
expect 1 'lower --file-bytes' 'no space for the file' "$gannet" bench io --data "$dir/folder" --file-bytes $free
# one bit of a sample
python3 - "$dir/data" <<'PY'
import json, sys
shard = json.load(open(sys.argv[1] + "/gannet-dataset.json"))["shards"][0]
with open(sys.argv[1] + "/" + shard["file"], "r+b") as f:
	f.seek(shard["data_offset"] + 1000)
	bit = f.read(1)[0] ^ 4
	f.seek(shard["data_offset"] + 1000)
	f.write(bytes([bit]))
PY
expect 3 'shard-00000.h5' 'a damaged sample is named' timeout -k 5 300 "$gannet" bench io --data "$dir/data"
finish
