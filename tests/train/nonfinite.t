#!/bin/bash
# What is not finite is seen: weights with a NaN are refused where they come in and go out, and named; asked for, every device shows them; no
# step that found nothing to go on with is kept as the best.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'images are packed' "$gannet" pack --out "$dir/train" --synthetic 60 --classes 3 --size 28x28
# change FILE TO CODE: a copy of a safetensors file whose tensors t, of arrays of floats by name, code changes
cat >"$dir/change" <<'PY'
import array, json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head, body = json.loads(data[8:8 + size]), data[8 + size:]
t = {k: array.array("f", body[slice(*v["data_offsets"])]) for k, v in head.items() if k != "__metadata__" and v["dtype"] == "F32"}
exec(sys.argv[3])
out = bytearray(body)
for k, v in t.items():
    out[slice(*head[k]["data_offsets"])] = v.tobytes()
open(sys.argv[2], "wb").write(data[:8 + size] + out)
PY
change() { python3 "$dir/change" "$dir/$1" "$dir/$2" "$3"; }
net() { # NAME OPTION...
	timeout -k 5 300 "$gannet" train --data "$dir/train" --val "$dir/train" --model resnet20 --channels 1 --side 28 --batch 10 --lr 0.01 \
		--threads 1 --loader-threads 1 --checkpoint "$dir/$1" --log "$dir/$1.jsonl" "${@:2}"
}
check 'a network' net run --steps 3
check 'is exported' "$gannet" export --checkpoint "$dir/run" --out "$dir/good.safetensors"
for key in conv1.weight layer3.1.bn1.bias bn1.running_var; do
	check "a NaN in $key" change good.safetensors "$key.safetensors" "t['$key'][1] = float('nan')"
	says="1 of [0-9]* values of tensor '$key' are NaN or infinite"
	for device in host ref; do
		expect 3 "$says" "is refused by eval --device $device" \
			"$gannet" eval --data "$dir/train" --weights "$dir/$key.safetensors" --device $device
		expect 0 '"loss": null, "nonfinite": 60' 'or shown by it' env GANNET_ALLOW_NONFINITE=1 \
			"$gannet" eval --data "$dir/train" --weights "$dir/$key.safetensors" --device $device
	done
	expect 3 "$says" 'is refused by predict' "$gannet" predict --weights "$dir/$key.safetensors" "$dir/train"
	expect 3 "the network's answer is not finite" 'or shown by it' env GANNET_ALLOW_NONFINITE=1 \
		"$gannet" predict --weights "$dir/$key.safetensors" "$dir/train"
	expect 3 "$says" 'and by train --init' net init --steps 1 --init "$dir/$key.safetensors"
done
check 'a batch norm of negative variance' change good.safetensors negative.safetensors "t['bn1.running_var'][0] = -1"
expect 0 '"calibration_error": null' 'of no finite logit there is no calibration' sh -c '"$1" eval --data "$2/train" --weights "$2/negative.safetensors" \
	--per-class "$2/classes.json" && cat "$2/classes.json"' sh "$gannet" "$dir"
printf '1\n1e39\n1\n' >"$dir/weights"
expect 3 'write numbers from 0 to 1e30' 'weights of classes that overflow' net heavy --steps 1 --class-weights "$dir/weights"
# A checkpoint by another program: its file and the digest of it.
damage() { # NAME CODE
	cp -r "$dir/run" "$dir/$1" && change run/latest/model.safetensors "$1/latest/model.safetensors" "$2" && python3 - "$dir/$1/latest" <<'PY'
import hashlib, json, sys
m = json.load(open(sys.argv[1] + "/manifest.json"))
for f in m["files"]:
    f["sha256"] = hashlib.sha256(open(sys.argv[1] + "/" + f["name"], "rb").read()).hexdigest()
json.dump(m, open(sys.argv[1] + "/manifest.json", "w"))
PY
}
check 'a checkpoint with an infinity' damage damaged "t['bn1.bias'][0] = float('inf')"
says="1 of [0-9]* values of tensor 'bn1.bias' are NaN or infinite"
expect 3 "$says" 'is refused by --resume' net damaged --steps 4 --resume auto
for end in onnx safetensors; do
	expect 3 "$says" "and by export to $end" "$gannet" export --checkpoint "$dir/damaged" --out "$dir/out.$end"
	expect 0 '' 'unless asked for' env GANNET_ALLOW_NONFINITE=1 "$gannet" export --checkpoint "$dir/damaged" --out "$dir/out.$end"
done

check 'a checkpoint with a negative variance' damage negative "t['bn1.running_var'][0] = -1"
expect 3 "values of tensor 'conv1.weight' are NaN or infinite" 'folded it would be NaN' "$gannet" export --checkpoint "$dir/negative" \
	--fold-batch-norm --out "$dir/negative.onnx"

# A statistic that overflows while losses stay finite: nothing of it is saved.
check 'weights that overflow a statistic' change good.safetensors wide.safetensors \
	"t['conv1.weight'] = array.array('f', (v * 1e25 for v in t['conv1.weight']))"
expect 1 "tensor 'bn1.running_var' are NaN or infinite" 'a checkpoint with an infinite variance is not written' \
	net wide --steps 2 --init "$dir/wide.safetensors"
check 'nothing is there' sh -c '! ls -d "$1"/step-* 2>/dev/null' sh "$dir/wide"

# Logits of 1e37: the loss is finite, the gradient is not, and every step updates nothing.
check 'weights that overflow the gradient' change good.safetensors steep.safetensors \
	"t['fc.weight'] = array.array('f', (v * 1e37 for v in t['fc.weight']))"
expect 1 'not finite at the last step' 'steps that update nothing' net steep --steps 6 --eval-steps 2 --keep-best loss \
	--init "$dir/steep.safetensors"
check 'are evaluated' grep -q '"event": "eval"' "$dir/steep.jsonl"
check 'and not the best' sh -c '! ls -d "$1"/step-* "$1"/best 2>/dev/null' sh "$dir/steep"
finish
