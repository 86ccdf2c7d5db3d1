#!/bin/sh
# gannet bench decode measures, and says what is wrong with what it is given.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
dir=$(mktemp -d "${TMPDIR:-/tmp}/gannet-decode.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP

check 'pictures are packed' "$gannet" pack --out "$dir/data" --synthetic 40 --classes 2 --size 160x200
cat >"$dir/check.py" <<'PY'
import json, sys
row = json.load(sys.stdin)
assert row["images"] == 30 and row["pixels"] == 160 * 200 and row["side"] == 96, row
rates = [row[key] for key in ("plain_images_per_s_per_core", "images_per_s_per_core", "loader_images_per_s",
	"unresized_images_per_s_per_core")]
assert all(rate > 1 for rate in rates), row
assert rates[3] > rates[1], row
augment = row["augment_us"]
assert len(augment) == 21 and all(us >= 0 for us in augment.values()) and augment["randaugment 2,9"] > 0, augment
assert augment["Hue"] > augment["Invert"], augment  # of an image that is not black
assert abs(row["of_plain"] - rates[1] / rates[0]) < 0.01, row
PY
# shellcheck disable=SC2016
check 'one JSON object' sh -c '"$1" bench decode --data "$2/data" --images 30 --iters 2 --side 96 --json | python3 "$2/check.py"' sh \
	"$gannet" "$dir"
expect 0 'of plain' 'a table for people' "$gannet" bench decode --data "$dir/data" --images 10 --iters 1
expect 0 '"to": "patches"' 'for a GPU' "$gannet" bench decode --data "$dir/data" --images 10 --iters 1 --bytes --json
expect 0 'copy crop' 'a table of that' "$gannet" bench decode --data "$dir/data" --images 10 --iters 1 --bytes
expect 2 'needs --data' 'without data' "$gannet" bench decode
expect 3 'none' 'data that is not there' "$gannet" bench decode --data "$dir/none"
finish
