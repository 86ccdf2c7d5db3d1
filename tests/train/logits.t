#!/bin/sh
# gannet eval --logits: NumPy's format, every image's row at its place for any number of ranks, the oracle's numbers.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
check 'a network' lenet 1 32 --steps 20 --checkpoint "$dir/run"
answers() { # NAME RANKS OPTION...
	name=$1 ranks=$2
	shift 2
	timeout -k 5 60 "$gannet" launch -n "$ranks" -- "$gannet" eval --data "$dir/val" --checkpoint "$dir/run" --threads 1 \
		--loader-threads 1 --logits "$dir/$name.npy" "$@" >"$dir/$name.json"
}
check 'one rank' answers one 1
check 'three ranks, other batches' answers three 3 --batch 7
check 'the oracle' answers oracle 1 --device ref
check 'all the same, and what was counted' python3 - "$dir" <<'PY'
import array, ast, json, sys
read = {}
for name in "one", "three", "oracle":
    data = open(f"{sys.argv[1]}/{name}.npy", "rb").read()
    assert data[:8] == b"\x93NUMPY\x01\x00" and (10 + data[8] + 256 * data[9]) % 64 == 0, data[:10]
    header = data[10:10 + data[8] + 256 * data[9]].decode()
    assert header.endswith("\n"), header
    told = ast.literal_eval(header)
    images = json.load(open(f"{sys.argv[1]}/{name}.json"))["images"]
    assert told == {"descr": "<f4", "fortran_order": False, "shape": (images, 10)}, told
    read[name] = array.array("f", data[10 + len(header):])
    assert len(read[name]) == images * 10, len(read[name])
one = read["one"]
assert all(any(one[i:i + 10]) for i in range(0, len(one), 10))
assert len({tuple(one[i:i + 10]) for i in range(0, len(one), 10)}) > 0.9 * len(one) / 10
for name in "three", "oracle":
    off = max(abs(a - b) for a, b in zip(one, read[name]))
    assert off < 1e-4, (name, off)
PY
expect 2 'cannot write .*/none/l.npy' 'a folder that is not there' answers none 2 --logits "$dir/none/l.npy"
finish
