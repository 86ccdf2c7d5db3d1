#!/bin/sh
# Bad input to train and eval: a clear message, the contract's exit code, nothing half-written.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'digits are packed' pack_digits
train() { timeout -k 5 300 "$gannet" train --data "$dir/train" --model lenet --lr 0.02 --steps 4 "$@"; }

expect 2 'not one of lenet' 'unknown model' train --model resnet19
expect 2 'outside 1 to' 'batch 0' train --batch 0
expect 3 '/nonexistent' 'missing dataset' timeout -k 5 300 "$gannet" train --data /nonexistent --model lenet
expect 3 'no' 'missing checkpoint to resume' train --resume "$dir/nothing"
expect 2 'needs --checkpoint' 'resume auto without a folder' train --resume auto
expect 2 'schedule|not one of' 'unknown schedule' train --schedule linear
expect 2 'milestones' 'bad milestones' train --schedule step --milestones 5,3
expect 2 'warmup-epochs 3 is not below the length of the run, 3 epochs' 'warm-up as long as the run' timeout -k 5 300 "$gannet" train \
	--data "$dir/train" --model lenet --epochs 3 --warmup-epochs 3
expect 2 'warmup-epochs 1 is not below' 'and in steps' train --warmup-epochs 1
expect 2 'epochs and --steps both' 'epochs and steps' train --epochs 3
expect 2 'epochs 0 .* give --val' 'nothing to do' timeout -k 5 300 "$gannet" train --data "$dir/train" --model lenet --epochs 0
expect 2 'write one number' 'bad mean' train --mean 1,2
expect 2 "lenet: --mean '0.5,0.4,0.3' has three numbers, .* 1 channel:" 'three means for grey images' \
	train --mean 0.5,0.4,0.3
expect 2 "lenet: --deviation .* has three numbers" 'three deviations for grey images' train --deviation 0.5,0.4,0.3
expect 2 "mean '123.7' is not within 0..1; pixels are in 0..1: divide by 255" 'a mean of bytes' train --mean 123.7
expect 2 "mean '-0.1' is not within" 'a mean below 0' train --mean=-0.1
expect 2 "deviation '58.4' is above 1; pixels are in 0..1: divide by 255" 'a deviation of bytes' train --deviation 58.4
expect 2 "mean 'nan': write one number" 'a mean that is none' train --mean nan
expect 2 "deviation 'inf': write one number" 'a deviation that is none' train --deviation inf
expect 2 "mean '123.7' is not within" 'with nothing to resume' train --mean 123.7 --checkpoint "$dir/mean" --resume auto
expect 2 'val is a packed dataset: give checkpoints a folder of their own' 'a dataset as --checkpoint' timeout -k 5 300 "$gannet" launch -n 2 -- \
	"$gannet" train --data "$dir/train" --model lenet --steps 1 --checkpoint "$dir/val"
check 'which stays as it is' sh -c '! ls -A "$1" | grep -qvE "gannet-dataset.json|shard|[.](hdf5|h5)$"' sh "$dir/val"
expect 0 'WARN .*without --checkpoint nothing of this run is kept' 'nothing to keep the run in' train --steps 1
check 'which only training tells' sh -c '! timeout -k 5 300 "$1" train --data "$2/train" --val "$2/val" --model lenet --epochs 0 2>&1 |
	grep "nothing of this run"' sh "$gannet" "$dir"
told() { GANNET_LOG=info timeout -k 5 300 "$gannet" train --data "$dir/train" --model lenet --steps 2 --checkpoint "$dir/told" --keep 1 "$@"; }
expect 0 'input 1x28x28, shift by up to 2 pixels; evaluation: images near the side keep their size, centre 28; sgd momentum 0.9, weight decay 0.0001 .*; lr 0.05 by cosine to 0; seed 1; 24 images left out of each epoch, others each time' \
	'what options come to is told' told --lr 0.05 --log "$dir/told.jsonl"
check 'and in the log' grep -q '"event": "start".*"resolved": "input 1x28x28, shift .*seed 1; 24 images left out' "$dir/told.jsonl"
expect 0 'WARN .*options without effect in this run: --milestones, which --schedule step has, not cosine; --lr-factor, which --schedule step has, not cosine; --pad, which .* not crop-flip' \
	'options that do nothing' train --milestones 1,2 --lr-factor 0.5 --pad 3 --augment crop-flip
expect 0 'WARN .*no milestone lies within the run .*the rate never falls' 'milestones after the end' train --schedule step
expect 0 'WARN .*without effect in this run: --checkpoint-every, which needs --checkpoint; --trace-steps, which needs --trace; --eval-every, which needs --val$' \
	'options that other options have' train --steps 1 --checkpoint-every 5 --eval-every 2 --trace-steps 3
check 'milestones within it' sh -c '! timeout -k 5 300 "$1" train --data "$2/train" --model lenet --lr 0.02 --steps 4 --schedule step \
	--milestones 0.01 --pad 3 2>&1 | grep -E "milestone|do nothing"' sh "$gannet" "$dir"
expect 0 'WARN .*one has one class' 'one class' sh -c '"$1" pack --out "$2/one" --synthetic 4 --classes 1 --size 28x28 &&
	timeout -k 5 300 "$1" train --data "$2/one" --model lenet --steps 1 --batch 2' sh "$gannet" "$dir"
expect 3 'samples|images' 'fewer samples than a global batch' train --batch 7001
expect 3 'samples|images' 'more ranks than samples' sh -c '
	"$1" pack --out "$2/few" --synthetic 3 --classes 3 --size 28x28 &&
	timeout -k 5 300 "$1" launch -n 4 -- "$1" train --data "$2/few" --model lenet --batch 1 --steps 1' sh "$gannet" "$dir"
expect 2 "--channels.*'2' is not one of 0.1.3" 'channels that no image has' train --channels 2
expect 3 "different class names: class 0 is '0' in the first, 'c00000' in the second; pack the second with --classes .*train" \
	'validation data of other classes' sh -c '
	"$1" pack --out "$2/other" --synthetic 20 --classes 5 --size 28x28 &&
	timeout -k 5 300 "$1" train --data "$2/train" --val "$2/other" --model lenet --steps 1' sh "$gannet" "$dir"
expect 2 'safetensors|formula|seed' 'bad --init' train --init seed:x
expect 3 'init.safetensors' '--init of a file that is no safetensors' sh -c '
	echo nonsense >"$2/init.safetensors"
	timeout -k 5 300 "$1" train --data "$2/train" --model lenet --steps 1 --init "$2/init.safetensors"' sh "$gannet" "$dir"
check 'files of torch.save' python3 - "$dir" <<'PY'
import pickle, sys, zipfile
with zipfile.ZipFile(sys.argv[1] + "/zip.pt", "w") as f:
    f.writestr("archive/data.pkl", "x" * 100)
open(sys.argv[1] + "/old.pt", "wb").write(pickle.dumps(0x1950a86a20f9469cfc6c, protocol=2) + b"x" * 100)
PY
expect 3 'zip.pt was written by torch.save: python -m gannet_torch.convert FILE .*training.md has one line' '--init of a zip archive' train --init "$dir/zip.pt"
expect 3 'old.pt was written by torch.save' '--init of a pickle' train --init "$dir/old.pt"
expect 3 'train is a folder: give a safetensors file' '--init of a folder' train --init "$dir/train"
expect 3 "tensor 'fc.*.weight' is .10,500. there and .5,500. in this model: the number of classes of the last layer must equal" \
	'--init of a network of ten classes' timeout -k 5 300 "$gannet" train --data "$dir/other" --model lenet --steps 1 --batch 4 \
	--init "$dir/told/latest/model.safetensors"
other_names="other10 has other class names than .*; class 0 is 'c00000' here and '0' there: .*--init-head skip"
check 'as many classes of other names' "$gannet" pack --out "$dir/other10" --synthetic 20 --classes 10 --size 28x28
renamed() { timeout -k 5 300 "$gannet" train --data "$dir/other10" --model lenet --steps 1 --batch 4 "$@"; }
expect 0 "WARN .*$other_names" '--init from a checkpoint of others' renamed --init "$dir/told/latest/model.safetensors"
check 'the network is exported' "$gannet" export --checkpoint "$dir/told" --out "$dir/told.safetensors"
expect 0 "WARN .*$other_names" 'or an exported file' renamed --init "$dir/told.safetensors"
quiet() { ! renamed --init "$dir/told.safetensors" --init-head skip 2>&1 | grep 'other class names'; }
check 'is fine with a new last layer' quiet
same() { ! timeout -k 5 300 "$gannet" train --data "$dir/train" --model lenet --steps 1 --init "$dir/told.safetensors" 2>&1 | grep 'other class names'; }
check 'and with the same names' same
expect 1 'not finite' 'a learning rate that blows up' train --lr 1e6 --steps 50 --log "$dir/failed.jsonl"
check 'the log says why it failed' sh -c 'tail -n 1 "$1" | grep -q "\"event\": \"failed\".*\"reason\": \".*not finite"' sh "$dir/failed.jsonl"
expect 1 'not finite at the last step, 4: .*no checkpoint' 'one that does just before the end' train --lr 1e6 --schedule constant \
	--checkpoint "$dir/diverged" --checkpoint-every 1 --keep 9
check 'which has the checkpoints from before it' sh -c 'test -d "$1/step-00000001" && test ! -e "$1/step-00000004"' sh "$dir/diverged"

# Worlds that contradict themselves.
expect 2 'RANK' 'RANK beyond WORLD_SIZE' env RANK=4 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 \
	timeout -k 5 300 "$gannet" train --data "$dir/train" --model lenet --steps 1
expect 2 'WORLD_SIZE' 'PMIx and WORLD_SIZE disagreeing' env RANK=0 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 \
	timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" train --data "$dir/train" --model lenet --steps 1
expect 2 'rank 1 on .* its options are not those of rank 0: --lr ' 'one rank with another learning rate is named' timeout -k 5 300 "$gannet" launch -n 3 -- \
	sh -c 'lr=0.02; [ "$PMIX_RANK" = 1 ] && lr=0.03
	exec "$1" train --data "$2" --model lenet --steps 1 --lr $lr' sh "$gannet" "$dir/train"

# Checkpoints.
check 'a checkpoint to play with' train --checkpoint "$dir/run"
check 'the newest is linked' test -f "$dir/run/latest/manifest.json"
expect 3 'holds lenet' 'a checkpoint of another model' timeout -k 5 300 "$gannet" train --data "$dir/train" --model resnet20 \
	--steps 5 --batch 8 --checkpoint "$dir/run" --resume auto
expect 2 'seed' 'resume with another seed' train --checkpoint "$dir/run" --resume auto --seed 3 --steps 5
expect 3 'another dataset' 'resume with another dataset' sh -c '
	"$1" pack --seed 9 --out "$2/again" "$3" && timeout -k 5 300 "$1" train --data "$2/again" --model lenet --steps 5 \
		--checkpoint "$2/run" --resume auto' sh "$gannet" "$dir" "$GN_SOURCE/data/digits/digits-val.tar.xz"
expect 3 'other classes' 'eval on other classes' timeout -k 5 300 "$gannet" eval --data "$dir/other" --checkpoint "$dir/run"

# A damaged newest checkpoint must not push out the good ones, and an older one must not go on beside newer ones.
check 'three checkpoints' train --checkpoint "$dir/three" --checkpoint-every 1 --steps 3
expect 2 'step-00000003 is newer than' 'resume from an older one in the same folder' train --checkpoint "$dir/three" \
	--resume "$dir/three/step-00000001"
check 'but elsewhere' train --checkpoint "$dir/branch" --resume "$dir/three/step-00000001"
truncate -s -1 "$dir/three/step-00000003/model.safetensors"
expect 0 'is skipped, it is damaged' 'a damaged newest one is passed over' train --checkpoint "$dir/three" --resume auto --steps 2
rm -r "$dir"/three/step-00000002
expect 0 'is skipped, it is damaged' 'and one saved before it stays, the only one kept' train --checkpoint "$dir/three" --resume auto \
	--steps 2 --keep 1
check 'and is whole' "$gannet" info "$dir/three/latest"

cp -r "$dir/run" "$dir/bent"
sed -i 's/"model.safetensors"/"..\/model.safetensors"/' "$dir"/bent/step-*/manifest.json
expect 3 'no usable name' 'a manifest that points outside its folder' timeout -k 5 300 "$gannet" eval --data "$dir/val" \
	--checkpoint "$dir/bent"
expect 1 'Permission denied|cannot make|cannot create' 'a checkpoint folder that cannot be made' \
	train --checkpoint /proc/nowhere
expect 1 'cannot open the log' 'a log that cannot be opened' train --log /nonexistent/log.jsonl
printf '{"event": "st' >"$dir/torn.jsonl"
check 'a log that ends in half a line' train --log "$dir/torn.jsonl"
check 'goes on in a line of its own' grep -q '^{"event": "start"' "$dir/torn.jsonl"

# Two runs at once: the log is the first one's until it ends.
timeout -k 5 300 "$gannet" train --data "$dir/train" --model lenet --lr 0.02 --steps 1000000000 --threads 1 --log "$dir/both.jsonl" 2>"$dir/first" &
first=$!
check 'a run without an end' until_true grep -q '"start"' "$dir/both.jsonl"
expect 2 "another run is writing the log $dir/both.jsonl" 'a log that another run is writing' train --log "$dir/both.jsonl"
expect 2 'another run is writing the log' 'with four ranks, too' lenet 4 16 --steps 2 --log "$dir/both.jsonl"
kill -TERM $first
wait $first
check 'has the lines of one run' test "$(grep -c '"start"' "$dir/both.jsonl")" = 1
check 'is free once that has ended' train --log "$dir/both.jsonl"

# A full disk while checkpointing: exit 1, the reason, and nothing left under any name.
if [ "$(id -u)" = 0 ] && mkdir "$dir/small" && mount -t tmpfs -o size=2m none "$dir/small" 2>/dev/null; then
	expect 1 'No space left' 'disk full while checkpointing' train --checkpoint "$dir/small/run"
	check 'nothing is left of it' sh -c 'test -z "$(find "$1" -type f)"' sh "$dir/small"
	expect 1 'No space left' 'the same with four ranks' lenet 4 16 --steps 2 --checkpoint "$dir/small/run"
	umount "$dir/small"
else
	skip 'disk full while checkpointing' 'mounting a small tmpfs needs root'
fi
finish
