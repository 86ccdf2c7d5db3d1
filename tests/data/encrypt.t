#!/bin/sh
# Encrypted datasets: nothing of an image on the disk, the same training, and each wrong key, changed or moved sample named.
set -u
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
umask 077
pattern=PLANTED-PATTERN-0123456789
mkdir src && tar -C src --strip-components=1 -xf "$GN_SOURCE/data/digits/digits-val.tar.xz" || exit 1
for file in src/3/*.jpg; do # a JPEG comment in each of a class, no shorter than an AES block
	perl -e 'undef $/; open my $f, "+<:raw", $ARGV[0] or die; my $b = <$f>; seek $f, 0, 0;
		print $f substr($b, 0, 2), "\xff\xfe", pack("n", 2 + length $ARGV[1]), $ARGV[1], substr($b, 2)' "$file" "$pattern" || exit 1
done
tar -cf src.tar src
head -c 32 /dev/urandom >key && head -c 32 /dev/urandom >other
head -c 31 key >short && cp key open && chmod 644 open

flip() { # FILE OFFSET: inverts one bit
	perl -e 'open my $f, "+<:raw", $ARGV[0] or die; seek $f, $ARGV[1], 0; read $f, my $b, 1; seek $f, $ARGV[1], 0;
		print $f chr(ord($b) ^ 16)' "$1" "$2"
}
holds() { # FOLDER: whether a file in it has the pattern
	grep -rqaF "$pattern" "$1"
}
lacks() {
	test -d "$1" && ! holds "$1"
}
train() { # NAME OPTION...: prints the digest of the parameters
	name=$1
	shift
	timeout -k 5 300 "$gannet" train --model lenet --batch 32 --steps 4 --seed 1 --threads 1 --log "$name.jsonl" "$@" >"$name.out" 2>&1 || {
		code=$?
		cat "$name.out"
		return "$code"
	}
	"$GN_SOURCE/tests/cmd/jsonl" "$name.jsonl" end params_sha256 >"$name.digest"
}

# packing
check 'a plain dataset' "$gannet" pack --out plain --shard-bytes 300K src.tar
check 'has the pattern' holds plain
check 'an encrypted dataset of an archive' "$gannet" pack --out enc --encrypt key --shard-bytes 300K src.tar
check 'has it in no byte' lacks enc
check 'another, of a folder' "$gannet" pack --out folder --encrypt key src
check 'nor has this' lacks folder
expect 1 'differ' 'the same images never give the same ciphertext' cmp folder/shard-00000.h5 enc/shard-00000.h5
: >src/3/bad.jpg
tar -cf bad.tar src
expect 3 'tmp-pack keeps the good images' 'a pack that leaves a folder' "$gannet" pack --out again --encrypt key bad.tar
check 'which holds images' test -s again.tmp-pack/spool
check 'encrypted' lacks again.tmp-pack
cp -r again.tmp-pack third.tmp-pack
expect 0 'resuming an earlier pack: 1000 images are done' 'resumes' "$gannet" pack --skip-bad --out again --encrypt key bad.tar
check 'rightly' "$gannet" verify --decode --key-file key again
expect 0 'starting from the beginning' 'but not with another key' "$gannet" pack --skip-bad --out third --encrypt other bad.tar
check 'rightly' "$gannet" verify --decode --key-file other third
check 'a split' "$gannet" pack --out two --split val=0.2 --encrypt key src.tar
check 'whose second part is right, too' "$gannet" verify --decode --key-file key two/val

# key files
expect 2 'open has mode 0644' 'a key that others can read' "$gannet" pack --out no --encrypt open src.tar
expect 2 'short has 31 bytes, not 32' 'a short key' "$gannet" pack --out no --encrypt short src.tar
expect 3 'the key file none' 'no key' "$gannet" pack --out no --encrypt none src.tar
expect 2 'not a regular file' 'a key that is a folder' "$gannet" pack --out no --encrypt src src.tar
foreign=/etc/passwd
[ "$(id -u)" -ne 0 ] || { cp key foreign && chown 12345 foreign && foreign=foreign; }
expect 2 'belongs to user' 'the key of another user' "$gannet" verify --key-file "$foreign" enc
expect 2 'open has mode 0644' 'train, before the start' "$gannet" train --data enc --model lenet --key-file open
for command in 'train --model lenet --steps 1 --data enc' 'preview --model lenet --out sheet.png enc' 'bench decode --data enc' \
	'verify --decode enc'; do
	# shellcheck disable=SC2086
	expect 2 'enc is encrypted.*--key-file' "${command%% *} without a key" timeout -k 5 300 "$gannet" $command
	# shellcheck disable=SC2086
	expect 2 'other: it is not the key that enc was' "${command%% *} with a wrong key" timeout -k 5 300 "$gannet" $command --key-file other
done
expect 2 'plain is not encrypted' 'a key for a plain dataset' "$gannet" verify --key-file key plain
expect 0 'encrypted  AES-256-GCM, key [0-9a-f]{16}' 'info needs no key' "$gannet" info enc
expect 0 '"encrypted": true' 'also as JSON' "$gannet" info --json enc
expect 2 'it is not the key' 'and tells a wrong one' "$gannet" info --key-file other enc

# use
check 'stage needs no key' "$gannet" stage --from enc --to copy
expect 0 'digests and checksums, no key' 'nor has verify, which says so' "$gannet" verify copy
expect 0 '"encrypted": true, "authenticated": false' 'and in JSON' "$gannet" verify --json copy
expect 0 'by the key manifest and images' 'verify authenticates' "$gannet" verify --decode --key-file key copy
check 'trains on plain images' train plain --data plain --val plain --checkpoint run
check 'and on encrypted' train enc --data copy --val enc --key-file key
check 'a digest' test -s plain.digest
check 'which is the same' cmp plain.digest enc.digest
"$gannet" eval --data plain --checkpoint run >plain.eval 2>eval.out
check 'evaluates the same' sh -c '"$0" eval --data enc --key-file key --checkpoint run >enc.eval && cmp plain.eval enc.eval' "$gannet"
predict() { # DATA OPTION...
	"$gannet" predict --checkpoint run --csv "$@" | sed 's,^[^/]*/,,'
}
predict plain >plain.csv 2>predict.out && predict enc --key-file key >enc.csv 2>>predict.out
check 'predicts' test "$(wc -l <enc.csv)" -gt 1000
check 'the same' cmp plain.csv enc.csv
expect 2 'enc is encrypted' 'predict without a key' "$gannet" predict --checkpoint run enc
check 'draws' "$gannet" preview --model lenet --key-file key --out sheet.png enc

# damage
offset=$("$gannet" info --json copy/shard-00001.h5 | grep -o '"data_offset": [0-9]*' | tr -dc 0-9)
flip copy/shard-00001.h5 "$((offset + 5))"
expect 3 'copy/shard-00001.h5: sample 0 \(.*\) fails its checksum' 'a flipped bit is named without the key' "$gannet" verify copy
expect 3 'shard-00001.h5: sample 0 \(.*\) fails its checksum' 'and in training' train broken --data copy --epochs 1 --steps 0 --key-file key
rm -rf copy && cp -r enc copy && cp enc/shard-00000.h5 copy/shard-00001.h5
expect 3 'shard-00001.h5' 'an exchanged shard' "$gannet" verify --key-file key copy
finish
