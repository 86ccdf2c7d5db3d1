#!/bin/sh
# Options from a file, and those of a run repeated from the file that it leaves beside its checkpoints.
set -u
. "$GN_SOURCE/tests/train/common.sh"

check 'made-up images are packed' "$gannet" pack --out "$dir/train" --synthetic 64 --classes 4 --size 28x28
cat >"$dir/lenet.options" <<END
# LeNet, two epochs
data = $dir/train
model = lenet
batch = 8
epochs = 2
recipe = goyal
lr = 0.01
no-overlap
END
train() { timeout -k 5 300 "$gannet" train --threads 1 --loader-threads 1 "$@"; }
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256; }

check 'a run of options from a file' train --options "$dir/lenet.options" --lr 0.02 --checkpoint "$dir/one" --log "$dir/one.jsonl"
check 'the command line wins' grep -qx 'lr = 0.02' "$dir/one/options"
check 'where it wrote is not repeated' sh -c '! grep -Eq "^(checkpoint|log|options) =" "$1"' sh "$dir/one/options"
check 'the values of the recipe are comments' grep -qx '# schedule = step' "$dir/one/options"
check 'the file repeats the run' train --options "$dir/one/options" --checkpoint "$dir/two" --log "$dir/two.jsonl"
check 'a length of the command line' train --options "$dir/one/options" --steps 3 --log "$dir/three.jsonl"
check 'goes before one of another kind' test "$("$jsonl" "$dir/three.jsonl" end step)" = 3
printf 'freeze = conv1.*\nfreeze = conv2.*\n' | cat "$dir/one/options" - >"$dir/frozen.options"
check 'and a list of it before one of the file' train --options "$dir/frozen.options" --freeze 'fc2.*' --steps 1 --checkpoint "$dir/frozen"
check 'as a whole' test "$(grep -c '^freeze' "$dir/frozen/options")" = 1
check 'with the same parameters' test "$(final one)" = "$(final two)"
check 'and leaves the same file' cmp "$dir/one/options" "$dir/two/options"

expect 2 'holds checkpoints already' 'a start that is refused' train --options "$dir/one/options" --lr 0.03 --checkpoint "$dir/two"
check 'leaves the file alone' cmp "$dir/one/options" "$dir/two/options"
echo 'learning-rate = 1' >"$dir/bad.options"
expect 2 'bad.options, line 1: unknown option --learning-rate' 'an unknown option is named with its line' \
	train --options "$dir/bad.options"
expect 3 'cannot open .*/none' 'a file that is not there' train --options "$dir/none"
finish
