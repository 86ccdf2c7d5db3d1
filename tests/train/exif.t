#!/bin/bash
# That images were turned as their EXIF orientation says is a property of the dataset: a network that was trained on it keeps it, also exported,
# and predict does the same to files.
set -u
. "$GN_SOURCE/tests/train/common.sh"

# Digits that are to be turned by a quarter when they are shown, but for one.
mkdir "$dir/in" && tar -C "$dir/in" -xf "$GN_SOURCE/data/digits/digits-val.tar.xz"
# shellcheck disable=SC2016 # python's
turned() {
	python3 - "$dir/in" "$dir/turned" <<'PY'
import os, pathlib, sys
exif = b"\xff\xe1\0\x22Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"
for k, path in enumerate(sorted(pathlib.Path(sys.argv[1]).rglob("*.jpg"))[::25]):
    to = pathlib.Path(sys.argv[2]) / path.parent.name / path.name
    to.parent.mkdir(parents=True, exist_ok=True)
    data = path.read_bytes()
    to.write_bytes(data[:2] + (exif if k else b"") + data[2:])
PY
}
check 'images with an orientation' turned
tar -C "$dir/turned" -cf "$dir/turned.tar" .
expect 0 '; 39 with an EXIF orientation, which is applied' 'are packed as they are shown' "$gannet" pack --exif-rotate --out "$dir/shown" "$dir/turned"
expect 0 '; 39 with an EXIF orientation, which is not applied' 'and as they lie' "$gannet" pack --out "$dir/lying" "$dir/turned"
train() { # NAME DATASET OPTION...
	timeout -k 5 300 "$gannet" train --data "$dir/$2" --model lenet --batch 8 --epochs 6 --lr 0.01 --threads 1 --loader-threads 1 --checkpoint "$dir/$1" \
		"${@:3}"
}
check 'a network of the first' train net shown
check 'and one of the second' train other lying
for network in "--checkpoint $dir/net" "--weights $dir/net.safetensors"; do
	[[ $network == --weights* ]] && check 'it is exported' "$gannet" export --checkpoint "$dir/net" --out "$dir/net.safetensors"
	for source in shown lying turned turned.tar; do
		# shellcheck disable=SC2086
		GANNET_LOG=info "$gannet" predict $network --json "$dir/$source" 2>"$dir/$source.err" |
			python3 -c 'import json, sys
rows = [json.loads(line) for line in sys.stdin]
for r in sorted(rows, key=lambda r: r["name"].split("/")[-1]):
    print(r["name"].split("/")[-1], *("%.2f" % c["probability"] for c in r["top"]), *(c["class"] for c in r["top"]))' >"$dir/$source.out"
		check "predict ${network%% *} of $source" test "$(wc -l <"$dir/$source.out")" = 40
	done
	check 'files are turned as the dataset was' cmp "$dir/shown.out" "$dir/turned.out"
	check 'also in an archive' cmp "$dir/shown.out" "$dir/turned.tar.out"
	check 'and those of a dataset that was packed without' cmp "$dir/shown.out" "$dir/lying.out"
	expect 0 '39 images have an EXIF orientation, which is applied' 'they are counted' cat "$dir/turned.err"
	expect 0 'lying was packed without --exif-rotate, the images of training with it' 'a dataset that was packed without is told' cat "$dir/lying.err"
done
GANNET_LOG=info "$gannet" predict --checkpoint "$dir/other" "$dir/turned" >/dev/null 2>"$dir/other.err"
expect 0 '39 images have an EXIF orientation, which is not applied' 'a network of images that lie takes them so' cat "$dir/other.err"
expect 0 '"exif_rotate": true' 'the checkpoint says it' cat "$dir/net/latest/manifest.json"
expect 0 '"exif_orientation": true' 'among what is done to images' cat "$dir/net/latest/manifest.json"
check 'export to ONNX' "$gannet" export --checkpoint "$dir/net" --out "$dir/net.onnx"
expect 0 '"exif_orientation": *true' 'says it, too' strings -n 20 "$dir/net.onnx"
expect 0 'lying was packed without --exif-rotate, the images of training with it' 'an evaluation on others warns' \
	"$gannet" eval --checkpoint "$dir/net" --data "$dir/lying"
expect 0 'shown was packed with --exif-rotate, the images of training without' 'and so does training' train third lying --val "$dir/shown"
finish
