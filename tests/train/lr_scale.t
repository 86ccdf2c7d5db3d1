#!/bin/sh
# train --lr-scale: the first update of each optimizer is scaled for the parameters that match, and for no others.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'images are made up' "$gannet" pack --out "$dir/data" --synthetic 32 --classes 4 --size 28x28
train() { # RANKS NAME OPTION...
	ranks=$1 name=$2
	shift 2
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" train --data "$dir/data" --model lenet --batch 8 --steps 1 --threads 1 \
		--loader-threads 1 --schedule constant --checkpoint "$dir/$name" "$@"
}
# scaled BASE PLAIN SCALED TENSOR=FACTOR...: what one update changed, in the last two, differs by these factors, by 1 for other tensors
scaled() {
	base=$dir/$1/latest/model.safetensors plain=$dir/$2/latest/model.safetensors other=$dir/$3/latest/model.safetensors
	shift 3
	python3 - "$base" "$plain" "$other" "$@" <<'PY'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    return {k: struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // 4}f", data[8 + size:][slice(*t["data_offsets"])])
            for k, t in json.loads(data[8:8 + size]).items() if k != "__metadata__"}
base, plain, other = map(read, sys.argv[1:4])
factors = {k: float(v) for k, v in (a.split("=") for a in sys.argv[4:])}
for k in base:
    f = factors.get(k, 1)
    moved = [b - a for a, b in zip(base[k], plain[k])]
    again = [b - a for a, b in zip(base[k], other[k])]
    assert any(moved), k
    largest = max(map(abs, moved))
    worst = max(abs(b - f * a) for a, b in zip(moved, again))
    rounding = 3e-7 * max(map(abs, base[k] + plain[k])) # of values, of which the changes are differences
    assert worst <= 1e-4 * largest + rounding, (k, f, worst, largest)
    assert f == 1 or rounding < 0.02 * largest, (k, rounding, largest)
    if f == 1:
        assert plain[k] == other[k], k
PY
}

check 'the beginning' train 1 base --lr 0 --lr-start 0
for optimizer in sgd lars lamb; do
	# LARS' trust coefficient is small
	if [ $optimizer = lars ]; then lr=20; else lr=0.1; fi
	check "$optimizer: a step" train 1 $optimizer --optimizer $optimizer --lr $lr
	GANNET_LOG=info expect 0 "learning rate times 0.25 for 4 of 8 tensors, 'conv\*'" "$optimizer: a step at other rates" train 1 ${optimizer}_scaled \
		--optimizer $optimizer --lr $lr --lr-scale 'conv*=0.25' --lr-scale 'conv2.bias=4' --lr-scale fc2.weight=0.5
	check "$optimizer: the changes differ by the factors, the last that matches counts" scaled base $optimizer ${optimizer}_scaled \
		conv1.weight=0.25 conv1.bias=0.25 conv2.weight=0.25 conv2.bias=4 fc2.weight=0.5
done
check 'parts of tensors on two ranks' train 2 two --batch 4 --shard gradients --lr 0.1
check 'at other rates' train 2 two_scaled --batch 4 --shard gradients --lr 0.1 --lr-scale 'fc*=0.25'
check 'are scaled, too' scaled base two two_scaled fc1.weight=0.25 fc1.bias=0.25 fc2.weight=0.25 fc2.bias=0.25
check 'the options of the run are kept' grep -q 'lr-scale = fc\*=0.25' "$dir/two_scaled/options"
check 'and repeat it' timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" train --options "$dir/two_scaled/options" --checkpoint "$dir/repeated"
check 'to the same bytes' cmp "$dir/two_scaled/latest/model.safetensors" "$dir/repeated/latest/model.safetensors"
expect 2 "'layer1.\*' matches no parameter of lenet, such as conv1.weight" 'a pattern that matches nothing' train 1 no --lr-scale 'layer1.*=2'
expect 2 'give PATTERN=X' 'an entry without a factor' train 1 no --lr-scale conv1.weight
expect 2 'use --freeze' 'a factor of 0' train 1 no --lr-scale 'conv*=0'
finish
