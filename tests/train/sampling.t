#!/bin/sh
# train --sampling balanced: the same run on one and two ranks, resumed or not; small classes are learned better.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
mkdir "$dir/tree" && tar -C "$dir/tree" -xf "$GN_SOURCE/data/digits/digits-train.tar.xz"
# of 3, 5 and 8 ten images, of the others 100
for c in 0 1 2 3 4 5 6 7 8 9; do
	case $c in 3 | 5 | 8) most=10 ;; *) most=100 ;; esac
	mkdir -p "$dir/uneven/$c"
	find "$dir/tree/train/$c" -type f | sort | head -$most | while read -r image; do mv "$image" "$dir/uneven/$c"; done
done
check 'classes of 10 and 100 images' "$gannet" pack --out "$dir/few" "$dir/uneven"
train() { # RANKS BATCH NAME OPTION...
	ranks=$1 batch=$2 name=$3
	shift 3
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" train --data "$dir/few" --model lenet --batch "$batch" --threads 1 \
		--loader-threads 1 --lr 0.02 --schedule constant --log-every 1 --log "$dir/$name.jsonl" "$@"
}
GANNET_LOG=info expect 0 'balanced sampling: of each of 10 classes 73.0 images an epoch, of which the smallest has 10' \
	'a run' train 1 32 one --sampling balanced --steps 12
check 'on two ranks' train 2 16 two --sampling balanced --steps 12
check 'sees the same samples' same_losses "$dir/one.jsonl" "$dir/two.jsonl" 1e-4
check 'half of it' train 1 32 half --sampling balanced --steps 6 --checkpoint "$dir/run"
check 'the rest' train 1 32 rest --sampling balanced --steps 12 --checkpoint "$dir/run" --resume auto
check 'is the same' eval 'cat "$dir/half.jsonl" "$dir/rest.jsonl" >"$dir/both.jsonl" && same_losses "$dir/one.jsonl" "$dir/both.jsonl" 0'
check 'shuffled' train 1 32 shuffled --epochs 6 --log-every 100 --checkpoint "$dir/shuffled"
check 'balanced' train 1 32 balanced --epochs 6 --log-every 100 --checkpoint "$dir/balanced" --sampling balanced
for name in shuffled balanced; do
	check "$name is evaluated by class" timeout -k 5 300 "$gannet" eval --data "$dir/val" --checkpoint "$dir/$name" --per-class "$dir/$name.classes"
done
check 'balanced sampling finds more of the small classes' python3 - "$dir" <<'PY'
import json, sys
def small(name):
    classes = json.load(open(f"{sys.argv[1]}/{name}.classes"))["classes"]
    return sum(classes[k]["accuracy"] for k in (3, 5, 8)) / 3
shuffled, balanced = small("shuffled"), small("balanced")
print(shuffled, balanced)
assert balanced > shuffled + 0.1, (shuffled, balanced)
PY
expect 2 'sampling' 'another kind' train 1 32 no --sampling weighted --steps 1
finish
