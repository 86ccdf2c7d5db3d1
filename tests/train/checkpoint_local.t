#!/bin/sh
# Checkpoints that go to the node's disk first: what a start takes from there, and what it does not.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'images are packed' "$gannet" pack --out "$dir/train" --synthetic 64 --classes 4 --size 28x28
train() { # RANKS NAME OPTION...
	ranks=$1 name=$2
	shift 2
	lenet "$ranks" 8 --schedule constant --checkpoint "$dir/$name" --checkpoint-local "$dir/disk" --log "$dir/$name.jsonl" "$@"
}
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256 | tail -1; }
resumed() { "$jsonl" "$dir/$1.jsonl" resume step | tail -1; }
# parts NAME: of the run's checkpoints on the disk
parts() { ls "$dir/disk/$(cat "$dir/$1/local-id")"; }
export GANNET_LOG=info

check 'two ranks without it' lenet 2 8 --schedule constant --checkpoint "$dir/plain" --log "$dir/plain.jsonl" --steps 6
expect 0 'copy of the state: [0-9.]+ MB of memory on this rank, first to .*/disk/' 'a start names the memory and the folder' \
	train 2 run --steps 4 --checkpoint-every 2
check 'the log says how long each took, and how long training waited' test \
	"$("$jsonl" "$dir/run.jsonl" checkpoint step seconds blocked_seconds | awk '$2 > 0 && $3 > 0 && $3 <= $2' | wc -l)" = 2
check 'the last two parts are on the disk' test "$(parts run | tr '\n' ' ')" = 'step-00000002-node-00000 step-00000004-node-00000 '
cp -a "$dir/disk" "$dir/saved"

# As if the run had been killed before a checkpoint reached the shared folder.
for name in lacks changed fresh; do
	cp -a "$dir/run" "$dir/$name" && rm -r "$dir/$name/step-00000004"
done
rm -r "$dir/run/step-00000004"
expect 0 'of step 4 was complete on the nodes. disks only: copied to .*/run' 'what is there only is copied to the shared folder' \
	train 2 run --steps 6 --resume auto
check 'and is where the run goes on' test "$(resumed run)" = 4
check 'to the same parameters' test "$(final run)" = "$(final plain)"
check 'all are whole' sh -c 'for c in "$2"/step-*; do "$1" info "$c" >/dev/null || exit 1; done' sh "$gannet" "$dir/run"

cp -a "$dir/run" "$dir/forgotten"
expect 0 "WARN .*local-id is there.*disks are not looked at" 'a start without the option warns' lenet 2 8 --schedule constant --steps 8 \
	--checkpoint "$dir/forgotten" --log "$dir/forgotten.jsonl" --resume auto
check 'and one of a run that never had it does not' sh -c 'log=$1; shift; "$@" 2>"$log" && grep -q "nothing left" "$log" && ! grep local-id "$log"' \
	sh "$dir/plain.err" "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --batch 16 --schedule constant --checkpoint "$dir/plain" \
	--steps 6 --resume auto

again() { rm -rf "$dir/disk" && cp -a "$dir/saved" "$dir/disk"; }
again && rm "$dir"/disk/*/step-00000004-*/optimizer-00000.safetensors
expect 0 'WARN .*of step 4 on the nodes. disks is not used.*no node has optimizer-00000' 'one that lacks a file is not used' \
	train 2 lacks --steps 6 --resume auto
check 'but the one before it' test "$(resumed lacks)" = 2
check 'to the same parameters' test "$(final lacks)" = "$(final plain)"
again
printf x | dd of="$(echo "$dir"/disk/*/step-00000004-*/model.safetensors)" bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 0 'WARN .*of step 4 on the nodes. disks is not used.*model.safetensors was changed' 'nor is a changed one' \
	train 2 changed --steps 6 --resume auto
check 'but the one before it' test "$(resumed changed)" = 2
check 'nothing of it is left in the shared folder' sh -c '! ls -A "$1" | grep tmp' sh "$dir/changed"

again && rm -r "$dir/fresh" "$dir/fresh.jsonl" 2>/dev/null
check 'a folder that was removed begins another run' train 2 fresh --steps 2 --resume auto
check 'which does not go on from the parts of the other' test -z "$(resumed fresh)"

expect 2 'give --checkpoint DIR' 'without --checkpoint it is refused' "$gannet" train --data "$dir/train" --model lenet \
	--checkpoint-local "$dir/disk"
check 'a file stands in the way' touch "$dir/file"
expect 1 'exists and is not a folder|Not a directory' 'a folder that cannot be made' lenet 2 8 --steps 2 --checkpoint "$dir/none" \
	--checkpoint-local "$dir/file/disk" --log "$dir/none.jsonl"
check 'is found before the first step' sh -c '! grep "\"step\", " "$1"' sh "$dir/none.jsonl"
if [ "$(id -u)" = 0 ] && mkdir "$dir/small" && mount -t tmpfs -o size=2m none "$dir/small" 2>/dev/null; then
	trap 'umount "$dir/small" 2>/dev/null; rm -rf "$dir"' EXIT
	expect 0 'WARN .*of step 2 is not kept on the nodes. disks: .*No space left' 'a full disk is a warning' lenet 2 8 --steps 2 \
		--checkpoint "$dir/full" --checkpoint-local "$dir/small"
	check 'the shared folder has the checkpoint' "$gannet" info "$dir/full/step-00000002"
	check 'and the disk nothing' sh -c '! ls "$1"/* | grep step' sh "$dir/small"
	umount "$dir/small"
else
	skip 'a full disk' 'mounting a small tmpfs needs root'
fi
finish
