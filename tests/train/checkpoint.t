#!/bin/sh
# What is in a checkpoint folder, who may write there, and what becomes of a run when something about it fails.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'made-up images are packed' "$gannet" pack --out "$dir/train" --synthetic 64 --classes 4 --size 28x28
train() { # RANKS NAME OPTION...
	ranks=$1 name=$2
	shift 2
	lenet "$ranks" 8 --checkpoint "$dir/$name" --log "$dir/$name.jsonl" --log-every 1 "$@"
}
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256; }

check 'three ranks of a node' train 3 whole --steps 4 --checkpoint-every 2
check 'they write one optimizer file' test "$(ls "$dir"/whole/step-00000004/optimizer-* | wc -l)" = 1

# As ranks wrote them before: a share of elements each, cut in the middle of tensors.
by_rank() { # CHECKPOINT SHARES
	python3 - "$1" "$2" <<'PY'
import hashlib, json, struct, sys
folder, shares = sys.argv[1], int(sys.argv[2])
manifest = json.load(open(folder + "/manifest.json"))
whole = folder + "/optimizer-00000.safetensors"
data = open(whole, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header.pop("__metadata__")
tensors = sorted((v["data_offsets"][0], k.split("@")[0], data[8 + size:][slice(*v["data_offsets"])]) for k, v in header.items())
each = sum(len(t) for _, _, t in tensors) // 4 // shares + 1
manifest["files"] = [f for f in manifest["files"] if not f["name"].startswith("optimizer")]
for n in range(shares):
    pieces, body, at = {}, b"", 0
    for _, name, t in tensors:
        count = len(t) // 4
        begin, end = max(n * each, at), min((n + 1) * each, at + count)
        if begin < end:
            part = t[4 * (begin - at):4 * (end - at)]
            pieces[f"{name}@{begin - at}"] = {"dtype": "F32", "shape": [end - begin],
                                              "data_offsets": [len(body), len(body) + len(part)]}
            body += part
        at += count
    head = json.dumps(pieces).encode()
    head += b" " * (-len(head) % 8)
    content = struct.pack("<Q", len(head)) + head + body
    name = f"optimizer-{n:05d}.safetensors"
    open(folder + "/" + name, "wb").write(content)
    manifest["files"].append({"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
json.dump(manifest, open(folder + "/manifest.json", "w"))
PY
}
mkdir "$dir/ranks" && cp -r "$dir/whole/step-00000002" "$dir/ranks/"
check 'a checkpoint of one optimizer file a rank' by_rank "$dir/ranks/step-00000002" 5
check 'is resumed' train 3 ranks --steps 4 --resume auto
check 'and ends with the same parameters' test "$(final ranks)" = "$(final whole)"

# A newer format is no damage.
cp -r "$dir/whole" "$dir/newer"
sed -i 's/"version": 1/"version": 3/' "$dir/newer/step-00000004/manifest.json"
expect 1 'format version 3, this program knows up to 2' 'a checkpoint of a newer format is not passed over' \
	train 1 newer --steps 5 --resume auto
expect 1 'format version 3' 'nor when an older one is named' train 1 newer --steps 5 --resume "$dir/newer/step-00000002"
expect 1 'format version 3' 'nor by eval' timeout -k 5 300 "$gannet" eval --data "$dir/train" --checkpoint "$dir/newer"

# Options that a run goes on with.
expect 2 'made with --mean 0.5 for channel 0, not 0.3' 'another mean is refused' train 1 whole --resume auto --steps 5 --mean 0.3
expect 2 'made with --deviation 0.5 .* not 0.25' 'another deviation, too' train 1 whole --resume auto --steps 5 --deviation 0.25
expect 2 'made with --resize 0, not 32' 'and another size for evaluation' train 1 whole --resume auto --steps 5 --resize 32
cp -r "$dir/whole" "$dir/options"
expect 0 'WARN .*made with other options: --steps 4, now 5; --lr 0.01, now 0.02; --label-smoothing 0, now 0.1; --checkpoint-every 2, now 0$' \
	'all others are named in one warning' train 3 options --resume auto --steps 5 --lr 0.02 --label-smoothing 0.1 --mean 0.50 \
	--stage "$dir/stage" --metrics "$dir/m.prom"
sed -i 's/"options": "[^"]*", //' "$dir/ranks/step-00000004/manifest.json"
check 'a checkpoint without options is resumed as before' train 3 ranks --resume auto --steps 5 --lr 0.02
check 'and says nothing of them' test "${tap_output#*options}" = "$tap_output"

# Two runs in one folder, then one whose predecessor is dead. Temporary folders are of dead runs, this version's and earlier ones'.
wait_for_step() { # LOG STEP: until the log has that step, 60 s at most
	touch "$1"
	timeout -k 5 300 sh -c 'tail -n +1 -F "$1" 2>/dev/null | grep -q -m 1 "\"step\": $2,"' sh "$1" "$2"
}
mkdir -p "$dir/two/step-00000001.tmp" "$dir/two/step-00000009.0123456789abcdef.tmp"
"$gannet" train --data "$dir/train" --model lenet --lr 0.01 --batch 8 --threads 1 --loader-threads 1 --steps 1000000 \
	--log-every 1 --log "$dir/two.jsonl" --checkpoint "$dir/two" --checkpoint-every 4 >"$dir/two.out" 2>&1 &
first=$!
check 'a run has saved a checkpoint' wait_for_step "$dir/two.jsonl" 9
me="$(hostname)"
expect 1 "in use by another run: process $first on $me, .*this is process [0-9]+ on $me" 'a second one in the same folder is refused' \
	lenet 2 8 --checkpoint "$dir/two" --resume auto --steps 5
check 'the first goes on' kill -0 $first
kill -STOP $first
expect 1 'in use by' 'while it is only stopped, too' lenet 1 8 --checkpoint "$dir/two" --resume auto --steps 5
kill -KILL $first
wait $first 2>/dev/null
expect 0 "taking over the checkpoint folder from process $first on $me" 'but not when it is dead' \
	train 1 two --resume auto --steps $(($("$jsonl" "$dir/two.jsonl" step step | tail -1) + 2))
check 'nothing is left of either' sh -c '! ls -A "$1" | grep -e tmp -e owner' sh "$dir/two"

# Whether a checkpoint can be written is found out before the first step.
check 'a file stands where the folder should be' touch "$dir/file"
expect 1 'exists and is not a folder|Not a directory' 'the run says so' train 2 file --steps 2
check 'before its first step' sh -c '! grep "\"step\", " "$1"' sh "$dir/file.jsonl"

# Trouble that does no harm is a warning.
rm -r "$dir/whole/latest" && mkdir -p "$dir/whole/latest/full"
expect 0 'checkpoint .*/step-00000005 is saved, but cannot point .*/latest' 'a link "latest" that cannot be moved is a warning' \
	train 1 whole --steps 5 --resume auto
expect 0 'cannot write the log, lines are lost until it is writable again.*No space left' 'so is a log on a full disk' \
	lenet 3 8 --steps 3 --log-every 1 --log /dev/full
check 'it is told once, by one rank' test "$(printf '%s\n' "$tap_output" | grep -c 'cannot write the log, lines are lost')" = 1

mkfifo "$dir/fifo"
expect 1 'log .*/fifo is a FIFO without a reader' 'a FIFO as the log does not block' lenet 2 8 --steps 1 --log "$dir/fifo"

# Links and folders of another user.
for_user() { # USER COMMAND...
	as_user=$1
	shift
	setpriv --reuid "$as_user" --regid "$as_user" --clear-groups timeout -k 5 300 "$@"
}
run_for() { # USER OPTION...
	run_user=$1
	shift
	for_user "$run_user" "$dir/program" train --data "$dir/train" --model lenet --batch 8 --threads 1 --loader-threads 1 --steps 1 "$@"
}
if [ "$(id -u)" = 0 ] && for_user 65534 true 2>/dev/null; then
	chmod 755 "$dir" && cp "$gannet" "$dir/program" && chmod -R a+rX "$dir/program" "$dir/train"
	mkdir -m 1777 "$dir/disk" && mkdir -m 777 "$dir/target"
	for_user 65533 sh -c 'cd "$1" && ln -s ../target link && ln -s ../target/log log && mkdir open theirs && chmod 777 open && chmod 1777 theirs' \
		sh "$dir/disk"
	expect 1 'the symbolic link .*/disk/link belongs to user 65533' "another user's link is not followed to checkpoints" \
		run_for 65534 --checkpoint "$dir/disk/link/run"
	expect 1 'the symbolic link .*/disk/log belongs to user 65533' 'nor to a log' run_for 65534 --log "$dir/disk/log"
	# All that writes where a user says: below a link, and where the name itself is one.
	for_user 65533 ln -s ../target/file "$dir/disk/file" && for_user 65533 ln -s ../target/file "$dir/disk/file.onnx"
	for to in link/new file; do
		for option in trace metrics log-samples; do
			expect 1 'the symbolic link .*disk/(link|file) belongs to user 65533' "nor is --$option written to $to" \
				run_for 65534 --$option "$dir/disk/$to"
		done
	done
	log=$dir/whole.jsonl step=$dir/whole/step-00000004 shards=$dir/train
	# shellcheck disable=SC2046,SC2086 # lines of words
	while read -r line; do
		set -- $line
		expect 1 'the symbolic link .*disk/(link|file|file.onnx) belongs to user 65533' "nor by $line" \
			for_user 65534 "$dir/program" $(printf '%s\n' "$@" | sed "s:^LOG$:$log:; s:^STEP$:$step:; s:^SHARDS$:$shards:; s:^disk/:$dir/&:")
	done <<-'LINES'
		export --checkpoint STEP --out disk/link/net.safetensors
		export --checkpoint STEP --out disk/link/net.onnx
		export --checkpoint STEP --out disk/file.onnx
		pack --synthetic 8 --classes 2 --size 28x28 --out disk/link/packed
		pack --synthetic 8 --classes 2 --size 28x28 --out disk/file
		report LOG --out disk/link/page
		report LOG --csv disk/link/table.csv
		report LOG --tensorboard disk/link/events
		preview SHARDS --out disk/link/sheet.png
		predict --checkpoint STEP SHARDS --npy disk/link/rows.npy
		eval --data SHARDS --checkpoint STEP --per-class disk/link/classes.json
		eval --data SHARDS --checkpoint STEP --logits disk/link/logits.npy
		preflight --out disk/link/result.json
	LINES
	check 'nothing is made where they lead' test -z "$(ls "$dir/target")"
	for_user 65533 mkdir "$dir/disk/packed.tmp-pack"
	expect 1 'packed.tmp-pack belongs to user 65533' 'a folder that he has put there is not packed into' \
		for_user 65534 "$dir/program" pack --synthetic 8 --classes 2 --size 28x28 --out "$dir/disk/packed"
	for_user 65534 ln -s ../target "$dir/disk/own"
	check "the user's own link is" run_for 65534 --trace "$dir/disk/own/trace" --metrics "$dir/disk/own/metrics.prom" --log-samples "$dir/disk/own/samples"
	check 'also to a packed dataset' for_user 65534 "$dir/program" pack --synthetic 8 --classes 2 --size 28x28 --out "$dir/disk/own/packed"
	expect 1 'disk/open belongs to user 65533 and is world-writable.*chmod o-w' 'nor is his folder used that all may write' \
		run_for 65534 --checkpoint "$dir/disk/open"
	expect 0 'WARN .*disk/theirs belongs to user 65533' 'a folder that he shares is, with a warning' \
		run_for 65534 --checkpoint "$dir/disk/theirs"
	expect 0 'WARN .*theirs/step-00000001 belongs to user 65534' "so is another user's checkpoint" \
		run_for 65533 --resume "$dir/disk/theirs/step-00000001"
else
	skip 'links and folders of another user' 'needs root and setpriv'
fi

# What is mounted in it cannot be removed, as what has a file open cannot by NFS.
if [ "$(id -u)" = 0 ] && mkdir -p "$dir/busy/step-00000001/in" && mount -t tmpfs -o size=1m none "$dir/busy/step-00000001/in" 2>/dev/null; then
	for step in 3 5; do
		mkdir "$dir/busy/step-0000000$step" && mount -t tmpfs -o size=1m none "$dir/busy/step-0000000$step"
	done
	trap 'umount "$dir"/busy/step-*1*/in "$dir"/busy/step-*[35] "$dir/full" 2>/dev/null; rm -rf "$dir"' EXIT
	expect 0 'cannot remove an old checkpoint yet: cannot remove .*step-00000001' 'an old checkpoint that cannot be removed is a warning' \
		train 2 busy --resume "$dir/whole/step-00000002" --steps 4 --checkpoint-every 1 --keep 1
	check 'so is one checkpoint that cannot be saved' sh -c 'printf %s "$1" | grep -q "checkpoint of step 3: .*the run goes on"' \
		sh "$tap_output"
	check 'the next one is' "$gannet" info "$dir/busy/step-00000004"
	expect 1 'ERROR .*checkpoint of step 5' 'but the last one of a run has to be saved' train 1 busy --resume auto --steps 5
	mkdir "$dir/full" && mount -t tmpfs -o size=2m none "$dir/full"
	expect 1 'full has 2.. MB free, a checkpoint needs 3.4 MB: No space left' 'a folder that is too small for a checkpoint' \
		train 2 full --steps 2
	check 'is found before the first step' sh -c '! grep "\"step\", " "$1"' sh "$dir/full.jsonl"
	check 'and is left empty' sh -c '! ls -A "$1" | grep .' sh "$dir/full"
	umount "$dir/full"
	umount "$dir"/busy/step-00000001*/in "$dir/busy/step-00000003" "$dir/busy/step-00000005"
else
	skip 'what cannot be removed or saved' 'mounting a small tmpfs needs root'
fi
# One rank has nobody to meet: a checkpoint that takes less than a step is there, and told, before the second step after it ends.
check 'more images' "$gannet" pack --out "$dir/many" --synthetic 4096 --classes 4 --size 28x28
check 'a run of long steps' "$gannet" train --data "$dir/many" --model lenet --batch 4096 --steps 9 --lr 0 --threads 1 --loader-threads 1 --log-every 1 \
	--checkpoint "$dir/alone" --checkpoint-every 3 --log "$dir/alone.jsonl"
cat >"$dir/alone.py" <<'PY'
import json, os, sys, time
lines = [json.loads(line) for line in open(sys.argv[1])]
steps, seen = [], 0
for line in lines:
    if line["event"] == "step":
        steps.append(line)
    if line["event"] == "checkpoint" and line["step"] < 9 and line["seconds"] < steps[-1]["time_ms"]["step"] / 2000:
        seen += 1
        assert steps[-1]["step"] <= line["step"] + 2, (steps[-1], line)
began = time.monotonic()
with open(sys.argv[1] + ".disk", "wb") as f:
    f.write(bytes(4 << 20))
    os.fsync(f.fileno())
is_slow = time.monotonic() - began > steps[-1]["time_ms"]["step"] / 20000
assert seen or is_slow, "no checkpoint took less than half a step"
PY
check 'its checkpoints need no third step' python3 "$dir/alone.py" "$dir/alone.jsonl"
finish
