#!/bin/sh
# Fine-tuning from a file of weights: another number of classes, half precision, tensors that the network lacks.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'images of four classes' "$gannet" pack --out "$dir/four" --synthetic 32 --classes 4 --size 28x28
check 'images of three' "$gannet" pack --out "$dir/three" --synthetic 24 --classes 3 --size 28x28
train() { # DATA NAME OPTION...
	data=$1 name=$2
	shift 2
	timeout -k 5 300 "$gannet" train --data "$dir/$data" --model lenet --batch 8 --threads 1 --loader-threads 1 \
		--checkpoint "$dir/$name" "$@"
}
weights() { echo "$dir/$1/latest/model.safetensors"; }
# FILE FILE: writes the second with halves of the first's tensors and another tensor, and without its last layer's bias
retyped() { # SOURCE TARGET LETTER-OF-PYTHON TYPE
	python3 - "$@" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header.pop("__metadata__", None)
last = [k for k in header if k.endswith(".bias")][-1]
out, body = {}, b""
for name, t in sorted(header.items()):
    raw = data[8 + size:][slice(*t["data_offsets"])]
    if name == last:
        continue
    if t["dtype"] == "F32":
        values = struct.unpack(f"<{len(raw) // 4}f", raw)
        raw, t["dtype"] = struct.pack(f"<{len(values)}{sys.argv[3]}", *values), sys.argv[4]
    out[name] = {**t, "data_offsets": [len(body), len(body) + len(raw)]}
    body += raw
out["aux.weight"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(body), len(body) + 4]}
head = json.dumps(out).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(head)) + head + body + bytes(4))
PY
}
# BODY HEAD RESULT TOLERANCE: the result has the first one's tensors, but the second one's last layer
made_of() {
	python3 - "$@" <<'PY'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {k: struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // 4}f", data[8 + size:][slice(*t["data_offsets"])])
            for k, t in header.items() if k != "__metadata__" and t["dtype"] == "F32"}
body, head, result = map(read, sys.argv[1:4])
last = [k for k in result if k.endswith(".bias")][-1].rsplit(".", 1)[0]
assert set(result) == set(body) and sum(k.startswith(last) for k in result) == 2
for k in result:
    want = head[k] if k.startswith(last + ".") else body[k]
    assert len(want) == len(result[k]), k
    bound = 0 if k.startswith(last + ".") else float(sys.argv[4])
    assert all(abs(a - b) <= bound * max(abs(a), 1e-3) for a, b in zip(want, result[k])), k
PY
}

check 'a network of four classes is trained' train four base --epochs 2
check 'one of three begins, and stays as it is' train three fresh --steps 1 --lr 0 --lr-start 0 --seed 5
expect 3 '4,500. there and .3,500. in this model.*init-head skip' 'the last layer of four classes does not fit three' \
	train three refused --steps 1 --init "$(weights base)"
check 'with a new last layer it does' train three tuned --steps 1 --lr 0 --lr-start 0 --seed 5 --init "$(weights base)" --init-head skip
check 'all but the last layer is of the file, the last of --seed' made_of "$(weights base)" "$(weights fresh)" "$(weights tuned)" 0
check 'a file of halves, without the last bias' retyped "$(weights base)" "$dir/half.safetensors" e F16
expect 3 'has no tensor .*bias.*the last layer alone is missing .train --init-head skip' 'is refused as it is' train three refused --steps 1 --init "$dir/half.safetensors"
expect 0 'tensors that lenet lacks, which are ignored: aux.weight' 'is taken with a new last layer' train three halved --steps 1 --lr 0 \
	--lr-start 0 --seed 5 --init "$dir/half.safetensors" --init-head skip
check 'to half precision' made_of "$(weights base)" "$(weights fresh)" "$(weights halved)" 0.001
check 'a file of doubles' retyped "$(weights base)" "$dir/double.safetensors" d F64
check 'is taken' train three doubled --steps 1 --lr 0 --lr-start 0 --seed 5 --init "$dir/double.safetensors" --init-head skip
check 'without rounding' made_of "$(weights base)" "$(weights fresh)" "$(weights doubled)" 0
expect 0 'resumed from .*base.*; --init is for the first start and not used' 'a run that resumes does not begin with --init, and says so' \
	env GANNET_LOG=info timeout -k 5 300 "$gannet" train --data "$dir/four" --model lenet --batch 8 --threads 1 --checkpoint "$dir/base" --epochs 3 --resume auto --init none-such
expect 2 'give --init FILE' 'a new last layer of no file is refused' train three refused --steps 1 --init-head skip
check 'with frozen convolutions' train three frozen --epochs 2 --init "$(weights base)" --init-head skip --freeze 'conv*' --freeze fc1.bias
# which tensors of the frozen run are the base's
same_tensors() {
	python3 - "$(weights base)" "$(weights frozen)" <<'PY'
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    return {k: data[8 + size:][slice(*t["data_offsets"])] for k, t in json.loads(data[8:8 + size]).items() if k != "__metadata__"}
base, frozen = map(read, sys.argv[1:])
print(" ".join(sorted(k for k in frozen if frozen[k] == base[k])))
PY
}
check 'these stay, and all others change' test "$(same_tensors)" = 'conv1.bias conv1.weight conv2.bias conv2.weight fc1.bias'
expect 2 "freeze 'layer1.*' matches no parameter of lenet, such as conv1.weight" 'a pattern that matches nothing is refused' \
	train three refused --steps 1 --freeze 'layer1.*'
expect 2 'leaves no parameter of lenet to train' 'and one that matches all' train three refused --steps 1 --freeze '*'
expect 2 'cannot be combined' 'and a norm of gradients that are not used' train three refused --steps 1 --freeze 'conv*' --clip 1
check 'two ranks fine-tune' timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" train --data "$dir/three" --model lenet --batch 4 \
	--threads 1 --loader-threads 1 --epochs 1 --init "$(weights base)" --init-head skip --freeze "conv*"
finish
