#!/bin/sh
# Encrypted checkpoints: ciphertext wherever they are, the same training, and each missing or wrong key and each change named.
set -u
. "$GN_SOURCE/tests/train/common.sh"
cd "$dir" || exit 1
umask 077
head -c 32 /dev/urandom >key && head -c 32 /dev/urandom >other && cp key open && chmod 644 open
check 'images are packed' "$gannet" pack --out train --synthetic 64 --classes 4 --size 28x28
train() { # RANKS NAME OPTION...
	ranks=$1 name=$2
	shift 2
	lenet "$ranks" 8 --schedule constant --ema 0.9 --checkpoint "$name" --log "$name.jsonl" "$@"
}
final() { "$jsonl" "$1.jsonl" end params_sha256 | tail -1; }
flip() { # FILE OFFSET: inverts one bit
	perl -e 'open my $f, "+<:raw", $ARGV[0] or die; seek $f, $ARGV[1], 0; read $f, my $b, 1; seek $f, $ARGV[1], 0;
		print $f chr(ord($b) ^ 16)' "$1" "$2"
}

# the same training
check 'two ranks without a key' train 2 plain --steps 6
check 'and with one' train 2 run --checkpoint-key key --checkpoint-local disk --steps 4 --checkpoint-every 2
for place in run disk; do
	check "nothing in $place is plain" sh -c 'n=0; for f in $(find "$1" -name "*.safetensors"); do
		n=$((n + 1)); head -c 15 "$f" | grep -q "gannet cipher 1" && ! grep -qa conv1.weight "$f" || exit 1; done; test "$n" -ge 6' sh "$place"
done
cp -a run saved
check 'resumes' train 2 run --checkpoint-key key --checkpoint-local disk --steps 6 --resume auto
check 'to the same parameters' test "$(final run)" = "$(final plain)"
cp -a saved drained && rm -r drained/step-00000004
rm -rf disk/*/step-00000006* && export GANNET_LOG=info
expect 0 'of step 4 was complete on the nodes. disks only' 'parts on the disks are copied to the folder' \
	train 2 drained --checkpoint-key key --checkpoint-local disk --steps 6 --resume auto
check 'and resume' test "$(final drained)" = "$(final plain)"
check 'other ranks resume, divided' train 1 drained --checkpoint-key key --steps 8 --resume auto --shard optimizer
check 'what compression keeps back' train 2 sparse --checkpoint-key key --compress topk:0.1 --steps 2
check 'is ciphertext, too' sh -c 'head -c 15 sparse/latest/compress-00001.safetensors | grep -q "gannet cipher 1"'
check 'and resumes' train 2 sparse --checkpoint-key key --compress topk:0.1 --steps 4 --resume auto

# commands
step=run/step-00000006
expect 0 'sizes and digests verified' 'info needs no key' "$gannet" info run
expect 0 '"encrypted": true' 'and says that it is encrypted' "$gannet" info --json run
check 'with the key it checks the signature' "$gannet" info --checkpoint-key key run
for command in "info $step" "eval --data train --checkpoint run" "predict --checkpoint run train" "export --checkpoint run --out out.safetensors"; do
	# shellcheck disable=SC2086
	expect 2 'written with another key' "${command%% *} names a wrong key" timeout -k 5 300 "$gannet" $command --checkpoint-key other
	# shellcheck disable=SC2086
	expect 2 'open has mode 0644' "${command%% *} and one that others can read" timeout -k 5 300 "$gannet" $command --checkpoint-key open
	[ "${command%% *}" = info ] && continue
	# shellcheck disable=SC2086
	expect 2 'is encrypted: give --checkpoint-key FILE' "${command%% *} and a missing one" timeout -k 5 300 "$gannet" $command
done
evaluate() { "$gannet" eval --data train --checkpoint "$@" | sed 's/"checkpoint.*//'; }
check 'evaluates the same' test "$(evaluate run --ema --checkpoint-key key)" = "$(evaluate plain --ema)"
check 'exports' "$gannet" export --checkpoint run --checkpoint-key key --out run.safetensors
"$gannet" export --checkpoint plain --out plain.safetensors
check 'the same' cmp run.safetensors plain.safetensors
check 'predicts' "$gannet" predict --checkpoint run --checkpoint-key key train

# train
expect 2 'is encrypted: give --checkpoint-key' 'no key' train 1 run --steps 8 --resume auto
expect 2 'written with another key' 'a wrong one' train 1 run --checkpoint-key other --steps 8 --resume auto
expect 2 'plain/step-00000006 is not encrypted' 'a key for plain checkpoints' train 1 plain --checkpoint-key key --steps 8 --resume auto
expect 2 'open has mode 0644' 'an open one' train 1 new --checkpoint-key open --steps 1
expect 2 'is encrypted' 'the weights as --init' train 1 new --steps 1 --init "$step/model.safetensors"
expect 2 'give --checkpoint DIR' 'a key for nothing' lenet 1 8 --steps 1 --checkpoint-key key
cat >by_rank <<'END'
#!/bin/sh
[ "$PMIX_RANK" = 0 ] && exec "$@" --checkpoint-key key
exec "$@" --checkpoint-key other
END
expect 2 'differs .* in its checkpoint key' 'ranks with different keys' timeout -k 5 300 "$gannet" launch -n 2 -- sh by_rank "$gannet" train --data train --model lenet \
	--batch 8 --steps 1 --checkpoint new

# damage
size=$(stat -c %s "$step/model.safetensors")
for offset in 3 40 60 87 88 5000 $((size - 1)); do
	rm -rf bad && cp -a "$step" bad && flip bad/model.safetensors "$offset"
	expect 3 'model.safetensors was changed' "bit $offset is found by the digest, without the key" "$gannet" info bad
	hex=$(sha256sum bad/model.safetensors | cut -c 1-64)
	perl -pi -e 's/("model.safetensors", "bytes": \d+, "sha256": ")[0-9a-f]+/${1}'"$hex"'/' bad/manifest.json
	expect 3 'manifest.json fails its authentication' 'and with a new digest by the signature' "$gannet" info --checkpoint-key key bad
done
rm -rf bad && cp -a "$step" bad && cp bad/ema.safetensors bad/model.safetensors
expect 3 'model.safetensors was changed' 'an exchanged file' "$gannet" info --checkpoint-key key bad
rm -rf bad && cp -a "$step" bad && perl -pi -e 's/"step": 6/"step": 7/' bad/manifest.json
expect 3 'fails its authentication' 'a changed manifest' "$gannet" info --checkpoint-key key bad
rm -rf bad && cp -a "$step" bad && perl -pi -e 's/"salt": "./"salt": "x/' bad/manifest.json
expect 3 'not described as Gannet does it' 'a salt that is none' "$gannet" info --checkpoint-key key bad
rm -rf bad && cp -a "$step" bad && perl -pi -e 's/, "mac".*/}/' bad/manifest.json
expect 3 'not described as Gannet does it' 'a manifest without its signature' "$gannet" info --checkpoint-key key bad
rm -rf bad && cp -a "$step" bad && perl -pi -e 's/, "encryption".*/}/' bad/manifest.json
expect 2 'bad is not encrypted' 'one that no longer says that it is encrypted' "$gannet" info --checkpoint-key key bad

if python3 -c 'import cryptography' 2>/dev/null; then
	mkdir text
	check 'a program in Python reads the documented format' python3 "$GN_SOURCE/tests/train/read_checkpoint" key "$step" text
	check 'and finds the weights' cmp text/model.safetensors plain/step-00000006/model.safetensors
else
	skip 'a program in Python reads the documented format' 'no Python package cryptography'
fi
finish
