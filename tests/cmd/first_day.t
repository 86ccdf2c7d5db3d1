#!/bin/bash
# The page first-day.md as it stands: a folder of pictures, packed with a split, trained, evaluated, predicted, fine-tuned on other
# classes, exported; and where python3 has onnxruntime and Pillow, its program in Python, whose logits are those of gannet predict.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
page=$GN_SOURCE/src/man/first-day.md
dir=$(mktemp -d "${TMPDIR:-/tmp}/gannet-first-day.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP
export PATH=$GN_BUILD:$PATH OMP_NUM_THREADS=1 GANNET_LOG=warn GANNET_CONF=
cd "$dir" || exit 1
ln -s "$GN_SOURCE/data" .

# block NUMBER: an indented block of the page
block() {
	awk -v wanted="$1" '/^    /{ if (!on) n++; on = 1; if (n == wanted) print substr($0, 5); next } { on = 0 }' "$page"
}
json() { # KEY FILE
	python3 -c 'import json, sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' "$1" "$2"
}
# at_least NUMBER NUMBER: the first is no less than the second
at_least() { awk -v a="$1" -v b="$2" 'BEGIN { print a, "and at least", b; exit !(a >= b) }'; }
# right CLASS FILE: the share of lines of predictions whose pictures lie in a folder of the class that is predicted, or whose class is CLASS
right() {
	python3 - "$1" "$2" <<'PY'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[2])))
wanted = [sys.argv[1] or row["name"].split("/")[-2] for row in rows]
print(sum(row["class1"] == w for row, w in zip(rows, wanted)) / len(rows), len(rows))
PY
}

block 1 >commands
check 'the page has the commands' grep -q 'gannet predict' commands
check 'they run' timeout -k 5 300 bash -eu commands
check 'a tenth is held back' test "$(json images eval.json)" = 100
check 'the network has learned' at_least "$(json top1 eval.json)" 0.8
read -r share count <<<"$(right '' predictions.csv)"
check 'all pictures are predicted' test "$count" = 1000
check 'most of them right' at_least "$share" 0.8
read -r share count <<<"$(right odd odd.csv)"
check 'so are those of other classes' test "$count" = 100
check 'after two epochs' at_least "$share" 0.8
expect 0 "^input input 2 \['batch', 1, 28, 28\]" 'the exported network is well formed' \
	python3 "$GN_SOURCE/tests/train/onnx_check" structure parity.onnx
expect 0 '^class_names \["even", "odd"\]' 'and names its classes' python3 "$GN_SOURCE/tests/train/onnx_check" structure parity.onnx

if python3 -c 'import onnxruntime, PIL' 2>/dev/null; then
	block 2 >program
	check 'the program runs' timeout -k 5 300 bash -eu program
	check 'it computes what gannet predict does' python3 - <<'PY'
import numpy
ours, theirs = numpy.load("logits.npy"), numpy.load("onnx.npy")
assert ours.shape == theirs.shape == (100, 2), (ours.shape, theirs.shape)
off = abs(ours - theirs).max() / abs(ours).max()
assert off < 1e-4, off
PY
else
	skip 'the program runs' 'python3 has no onnxruntime or no Pillow: pip install onnxruntime pillow'
	skip 'it computes what gannet predict does' 'python3 has no onnxruntime or no Pillow'
fi
# slurm/demo in a folder that is taken for a build: warm-up is shorter than a run of one epoch
mkdir built && ln -s "$GN_BUILD/gannet" built/gannet && printf 'all:\n' >built/Makefile && touch built/config.status
expect 0 '"top1"' 'the demo runs for one epoch' timeout -k 5 300 bash "$GN_SOURCE/slurm/demo" --local --epochs 1 --build "$dir/built" --out "$dir/demo"
finish
