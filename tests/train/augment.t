#!/bin/sh
# Augmentation and class weights through the command: the same training whatever the threads and ranks; what is refused, and when.
set -u
. "$GN_SOURCE/tests/train/common.sh"

# run NAME RANKS BATCH OPTION...: eight steps on small colour images
run() {
	name=$1 ranks=$2 batch=$3
	shift 3
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" train --data "$dir/colour" --model lenet --channels 3 --side 32 \
		--lr 0.01 --steps 8 --batch "$batch" --threads 1 --log-every 1 --log "$dir/$name.jsonl" "$@"
}
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256 | tail -1; }
same() { test -n "$(final "$1")" && test "$(final "$1")" = "$(final "$2")"; }
differ() { test -n "$(final "$1")" && test -n "$(final "$2")" && test "$(final "$1")" != "$(final "$2")"; }
near() { same_losses "$dir/$1.jsonl" "$dir/$2.jsonl" 2e-5; }

check 'images are packed' "$gannet" pack --out "$dir/colour" --synthetic 150 --classes 3 --size 40x36
check 'a run without' run plain 1 16

# Each option has an effect, and the same for one rank and two, and for one thread and three.
for how in '--randaugment 2,9' '--trivialaugment' '--auto-augment imagenet' '--color-jitter 0.4,0.4,0.4,0.1' '--random-erasing 0.5' \
	'--cutmix 1' '--cutmix 1 --mixup 0.2 --randaugment 3,15 --random-erasing 0.25 --color-jitter 0.2,0.2,0.2,0 --augment crop-flip'; do
	rm -f "$dir"/one.jsonl "$dir"/threads.jsonl "$dir"/two.jsonl
	# shellcheck disable=SC2086 # options are words
	set -- $how
	check "$how: one rank" run one 1 16 --loader-threads 1 "$@"
	check "$how: it has an effect" differ one plain
	check "$how: three threads" run threads 1 16 --loader-threads 3 "$@"
	check "$how: the same bits" same one threads
	check "$how: two ranks" run two 2 8 --loader-threads 2 "$@"
	check "$how: the same losses" near one two
done

# Class weights: the mean is over the global batch's weights.
echo '0.25 3 1' >"$dir/weights"
echo '1 1 1' >"$dir/ones"
for how in "$dir/weights" balanced; do
	rm -f "$dir"/one.jsonl "$dir"/halves.jsonl "$dir"/two.jsonl
	check "class weights ${how##*/}: one rank" run one 1 16 --class-weights "$how" --label-smoothing 0.1
	check "class weights ${how##*/}: two ranks" run two 2 8 --class-weights "$how" --label-smoothing 0.1
	check "class weights ${how##*/}: the same losses" near one two
	check "class weights ${how##*/}: accumulated" run halves 1 8 --accumulate 2 --class-weights "$how" --label-smoothing 0.1
	check "class weights ${how##*/}: the same losses" near one halves
	rm -f "$dir/two.jsonl"
	check "class weights ${how##*/}: sharded" run two 2 4 --accumulate 2 --shard gradients --class-weights "$how" --label-smoothing 0.1
	check "class weights ${how##*/}: the same losses" near one two
done
check 'weights of 1' run ones 1 16 --class-weights "$dir/ones"
check 'are none' near ones plain
check 'other weights' run weighted 1 16 --class-weights "$dir/weights"
check 'are not' differ weighted plain
check 'with mixup' run mixed 2 8 --class-weights "$dir/weights" --mixup 0.2

# The filter of resizing goes with the checkpoint and with what is exported.
loss_of() { timeout -k 5 300 "$gannet" eval --data "$dir/colour" --threads 1 "$@" | sed -n 's/.*"loss": \([0-9.e-]*\).*/\1/p'; }
check 'bilinear' run bilinear 1 16 --resize 34 --interpolation bilinear
check 'bicubic' run bicubic 1 16 --resize 34 --interpolation bicubic --checkpoint "$dir/bicubic"
check 'is another filter' differ bicubic bilinear
check 'two ranks' run bicubic2 2 8 --interpolation bicubic --randaugment 2,9
check 'it is written down' grep -q '"interpolation": *"bicubic".*"interpolation": *"bicubic"' "$dir/bicubic/latest/manifest.json"
check 'it is exported' "$gannet" export --checkpoint "$dir/bicubic" --out "$dir/bicubic.safetensors"
own=$(loss_of --checkpoint "$dir/bicubic") file=$(loss_of --weights "$dir/bicubic.safetensors")
other=$(loss_of --weights "$dir/bicubic.safetensors" --interpolation bilinear)
check "evaluated with the file's ($own, $file)" test -n "$own" -a "$own" = "$file"
check "another is another ($other)" test -n "$other" -a "$own" != "$other"
expect 2 'was made with --interpolation bicubic, not bilinear' 'resumed with another' run wrong 1 16 --resize 34 \
	--checkpoint "$dir/bicubic" --resume auto --steps 16

# Refused before any rank is started
for wrong in 2 2,31 0,9 2,9,1 x,9 33,9; do
	expect 2 'randaugment' "--randaugment $wrong" run wrong 1 16 --randaugment "$wrong"
done
for wrong in 0.4 0.4,0.4,0.4 0.4,0.4,0.4,0.6 -1,0,0,0 1,1,1,0.1,1; do
	expect 2 'color-jitter' "--color-jitter $wrong" run wrong 1 16 --color-jitter="$wrong"
done
expect 2 'random-erasing' 'a probability above 1' run wrong 1 16 --random-erasing 1.5
expect 2 'exclude each other' 'two policies' run wrong 1 16 --randaugment 2,9 --trivialaugment
expect 2 'exclude each other' 'two other policies' run wrong 1 16 --auto-augment imagenet --trivialaugment
expect 2 'No such file' 'a missing file of weights' run wrong 1 16 --class-weights "$dir/none"
expect 2 'class-weights.*processors only' 'class weights on a GPU' run wrong 1 16 --class-weights balanced --device cuda
echo '1 1' >"$dir/short"
echo '1 1 1 1' >"$dir/long"
echo '1 -1 1' >"$dir/negative"
echo '0 0 0' >"$dir/zero"
expect 3 'for each of the 3 classes' 'too few weights' run wrong 1 16 --class-weights "$dir/short"
expect 3 'for each of the 3 classes' 'too many weights' run wrong 1 16 --class-weights "$dir/long"
expect 3 'from 0 to 1e30' 'a negative weight' run wrong 1 16 --class-weights "$dir/negative"
expect 3 'above 0' 'no weight' run wrong 1 16 --class-weights "$dir/zero"
finish
