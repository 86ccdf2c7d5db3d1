#!/bin/sh
# gannet eval --logits: NumPy's format, every image's row at its place for any number of ranks, the oracle's numbers; the same of
# an exported file, which says how its images are made and what its classes are called.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
# Every fourth of those to evaluate on is enough, with the oracle.
few() {
	mkdir "$dir/files" && tar -xJf "$GN_SOURCE/data/digits/digits-val.tar.xz" -C "$dir/files" && rm -r "$dir/val" || return
	find "$dir/files" -name '*.jpg' | sort | awk 'NR % 4' | xargs rm && "$gannet" pack --out "$dir/val" "$dir/files"
}
check 'few of them' few
check 'a network' lenet 1 32 --steps 20 --checkpoint "$dir/run"
answers() { # NAME RANKS OPTION...
	name=$1 ranks=$2
	shift 2
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" eval --data "$dir/val" --checkpoint "$dir/run" --threads 1 \
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
# One weight of the last layer that is not a number: one of ten logits of every image.
check 'weights with a NaN' python3 - "$dir" <<'PY'
import json, struct, sys
data = bytearray(open(f"{sys.argv[1]}/run/latest/model.safetensors", "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:start])
name = [n for n in header if n.endswith("bias")][-1]
at = start + header[name]["data_offsets"][0]
data[at:at + 4] = struct.pack("<f", float("nan"))
open(f"{sys.argv[1]}/nan.safetensors", "wb").write(data)
PY
expect 0 'logits of 250 of 250 images are not finite' 'are told' env GANNET_ALLOW_NONFINITE=1 timeout -k 5 300 "$gannet" eval --data "$dir/val" --model lenet \
	--weights "$dir/nan.safetensors"
expect 0 '"top1": 0, "top5": 0, "loss": null, "nonfinite": 250' 'and answer nothing right' env GANNET_ALLOW_NONFINITE=1 timeout -k 5 300 "$gannet" eval \
	--data "$dir/val" --model lenet --weights "$dir/nan.safetensors"
expect 2 'cannot write .*/none/l.npy' 'a folder that is not there' answers none 2 --logits "$dir/none/l.npy"

check 'the checkpoint is exported' "$gannet" export --checkpoint "$dir/run" --out "$dir/w.safetensors"
check 'manifest and file describe preprocessing and classes' python3 - "$dir" <<'PY'
import glob, json, sys
manifest = json.load(open(glob.glob(sys.argv[1] + "/run/step-*/manifest.json")[0]))
names = [c["name"] for c in json.load(open(sys.argv[1] + "/train/gannet-dataset.json"))["classes"]]
data = open(sys.argv[1] + "/w.safetensors", "rb").read()
told = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"]
assert told["format"] == "pt" and told["model"] == "lenet", told
assert json.loads(told["class_names"]) == names == manifest["class_names"] and len(names) == 10, (told, names)
assert json.loads(told["preprocessing"]) == manifest["preprocessing"] == {
    "color": "L", "exif_orientation": False, "resize_shorter": None, "interpolation": "bilinear", "antialias": True,
    "center_crop": 28, "mean": [0.5], "deviation": [0.5]}, told
PY
weights() { # NAME RANKS OPTION...
	name=$1 ranks=$2
	shift 2
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" eval --data "$dir/val" --weights "$dir/w.safetensors" --threads 1 \
		--logits "$dir/$name.npy" "$@"
}
expect 0 '"weights": ".*/w.safetensors"' 'the file by itself' weights file 1 --model lenet
check 'answers the same' cmp "$dir/one.npy" "$dir/file.npy"
expect 0 '"top1"' 'the file, resized' weights resized 1 --model lenet --resize 40
check 'the checkpoint, resized' answers again 1 --resize 40
check 'answers the same, and otherwise than before' eval 'cmp "$dir/again.npy" "$dir/resized.npy" && ! cmp -s "$dir/one.npy" "$dir/again.npy"'
expect 0 "$(grep -o '"top1": [0-9.]*' "$dir/one.json")" 'two ranks, with the mean and deviation that they have' \
	weights means 2 --model lenet --mean 0.5 --deviation 0.5
check 'pictures of ten classes of other names' "$gannet" pack --out "$dir/ten" --synthetic 20 --classes 10 --size 28x28
check 'and of nine' "$gannet" pack --out "$dir/nine" --synthetic 20 --classes 9 --size 28x28
expect 3 "ten has other classes than the network was trained on .*class 0 is 'c00000' here and '0' there" \
	'names that the file has are compared' weights none 2 --model lenet --data "$dir/ten"
expect 3 "nine has other classes than the network was trained on .9, the network has 10; class 0 is 'c00000' here and '0' there.: pack it with --classes" \
	'and those of a checkpoint' timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" eval --data "$dir/nine" --checkpoint "$dir/run"
expect 3 'nine has 9 classes, the network in .*w.safetensors has 10' 'and their number' weights none 1 --model lenet --data "$dir/nine"
expect 3 "no tensor 'conv1.weight' of this model's shape" 'another network' weights none 2 --model resnet18
expect 3 "tensor 'fc1.weight' is .500,800. there and .500,1250. in this model" 'another side' weights none 2 --model lenet --side 32
expect 2 'give either --checkpoint DIR or --weights FILE' 'neither' "$gannet" eval --data "$dir/val"
expect 2 'nan.safetensors does not say of which network it is: give --model NAME' 'no network' timeout -k 5 300 "$gannet" launch -n 2 -- \
	"$gannet" eval --data "$dir/val" --weights "$dir/nan.safetensors"
# Of another side, resize, mean and deviation than the network's own.
check 'a network of side 32' lenet 1 32 --steps 20 --side 32 --resize 40 --mean 0.3 --deviation 0.4 --checkpoint "$dir/run32"
check 'is exported' "$gannet" export --checkpoint "$dir/run32" --out "$dir/w32.safetensors"
file32() { # NAME OPTION...
	name=$1
	shift
	timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" eval --data "$dir/val" --threads 1 --logits "$dir/$name.npy" \
		--weights "${file:-$dir/w32.safetensors}" "$@"
}
check 'the checkpoint' answers own32 2 --checkpoint "$dir/run32"
check 'the file, which says all' eval 'file32 said >/dev/null 2>"$dir/err" && test ! -s "$dir/err"'
check 'the same, given' eval 'file32 given --model lenet --side 32 --resize 40 --mean 0.3 --deviation 0.4 2>"$dir/err" && test ! -s "$dir/err"'
check 'answer alike' eval 'cmp "$dir/own32.npy" "$dir/said.npy" && cmp "$dir/own32.npy" "$dir/given.npy"'
expect 0 'mean 0.5 is used, not 0.3, which .*w32.safetensors says of itself' 'another mean' file32 mean --mean 0.5
expect 0 'deviation 0.5 is used, not 0.4, which' 'another deviation' file32 deviation --deviation 0.5
expect 0 'resize 32 is used, not 40, which' 'another resize' file32 resize --resize 32
expect 3 'side 28 is used, not 32, which .* as is usual for that side' 'another side' file32 side --side 28
expect 3 'model resnet18 is used, not lenet, which' 'another network' file32 model --model resnet18
say() { # FILE MODEL PREPROCESSING: w32.safetensors with these in its metadata
	python3 - "$dir/w32.safetensors" "$dir/$1.safetensors" "$2" "$3" <<'PY'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
start = 8 + struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:start])
header["__metadata__"].update(model=sys.argv[3], preprocessing=sys.argv[4])
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + data[start:])
PY
}
bad=0
refused() { # KEY PREPROCESSING
	bad=$((bad + 1))
	say "bad$bad" lenet "$2"
	file=$dir/bad$bad.safetensors
	expect 3 "bad$bad.safetensors: '$1' of the metadata's preprocessing" "$2" file32 bad
}
refused center_crop '{"center_crop": 4097}'
refused center_crop '{"center_crop": -1}'
refused center_crop '{"center_crop": 32.5}'
refused resize_shorter '{"center_crop": 32, "resize_shorter": 1000000000000}'
refused mean '{"center_crop": 32, "mean": [0.5, 0.5], "deviation": [0.5, 0.5]}'
refused mean '{"center_crop": 32, "mean": "0.5", "deviation": [0.5]}'
refused deviation '{"center_crop": 32, "mean": [0.5], "deviation": [1e-300]}'
refused deviation '{"center_crop": 32, "mean": [0.5]}'
say others resnet-of-others 'resize 256'
file=$dir/others.safetensors
expect 2 'give --model NAME' 'names of others say nothing' file32 none
expect 0 '"top1"' 'options do' file32 others --model lenet --side 32 --resize 40 --mean 0.3 --deviation 0.4
check 'and answer alike' cmp "$dir/own32.npy" "$dir/others.npy"
say colour lenet '{"center_crop": 32, "mean": [0.5, 0.5, 0.5], "deviation": [0.5, 0.5, 0.5]}'
file=$dir/colour.safetensors
expect 3 'preprocessing is for 3 channels, the weights are for 1' 'values for colour, weights for grey' file32 none
expect 2 'a checkpoint says them itself' 'a checkpoint has a mean' "$gannet" eval --data "$dir/val" --checkpoint "$dir/run" --mean 0.5
expect 3 "tensor 'fc1.weight' is .500,800. there and .500,1250. in this model" 'a side that the network cannot take' \
	"$gannet" eval --data "$dir/val" --checkpoint "$dir/run" --side 32
check 'a network that takes any side' "$gannet" train --data "$dir/train" --model resnet20 --batch 16 --steps 2 --threads 1 \
	--loader-threads 1 --checkpoint "$dir/any"
check 'exported' "$gannet" export --checkpoint "$dir/any" --out "$dir/any.safetensors"
other_side() { # OPTION...: top-1 and loss at side 24
	"$gannet" eval --data "$dir/val" --threads 1 --side 24 "$@" | python3 -c 'import json, sys; r = json.load(sys.stdin); print(r["top1"], r["loss"])'
}
other_side --checkpoint "$dir/any" >"$dir/any24"
check 'it is evaluated at another side than in training, as the exported file is' test -s "$dir/any24" -a \
	"$(cat "$dir/any24")" = "$(other_side --weights "$dir/any.safetensors" 2>/dev/null)"
check 'and otherwise than at its own' test "$(cat "$dir/any24")" != "$(other_side --checkpoint "$dir/any" --side 32)"
expect 2 'w.safetensors is a file; use --weights FILE' 'a file is no checkpoint' \
	"$gannet" eval --data "$dir/val" --checkpoint "$dir/w.safetensors"
finish
