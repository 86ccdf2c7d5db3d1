#!/bin/bash
# gannet selftest: a reference file is met; unusable ones are said to be so, with exit code 3.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
good=$GN_SOURCE/tests/golden/resnet18-b4-s64-c10.json
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export OMP_NUM_THREADS=1 # barriers are slow where others use the processors, too

# with FILE SED-EXPRESSION: the good file, changed
with() { sed "$2" "$good" >"$dir/$1"; }

run() { "$gannet" selftest "$@" >"$dir/out" 2>&1; }
check 'resnet18 is taken' run --golden "$good"
expect 0 'within all bounds' 'and within all bounds' cat "$dir/out"
expect 0 'gradient norm +layer3.1.conv2.weight .* ok' 'every deviation is printed' cat "$dir/out"
expect 0 '"quantity": "loss"' 'as JSON, too' "$gannet" selftest --json --golden "$good"

# The others: selftest_networks.t
for network in mobilenet_v2 efficientnet_b0; do
	expect 0 'within all bounds|no larger than' "$network is within all bounds" timeout -k 5 300 "$gannet" selftest --brief \
		--golden "$GN_SOURCE/tests/golden/$network-b3-s96-c7.json"
done

# A check that can fail: one wrong digit in a loss, a gradient, a logit. Each of them counts.
with wrong.json 's/3.25558/3.25568/; s/20.652875/20.752875/; s/-0.567162/-0.569162/'
wrong() { run --golden "$dir/wrong.json"; code=$?; cat "$dir/out"; return $code; }
expect 1 'FAILED, 3 deviations exceed' 'three wrong numbers are three deviations' wrong
expect 0 'loss +step 1 .*FAIL' 'a wrong loss is seen' cat "$dir/out"
expect 0 'gradient norm +conv1.weight .*FAIL' 'a wrong gradient norm is seen' cat "$dir/out"
expect 0 'logits  .*FAIL' 'a wrong logit is seen' cat "$dir/out"

# The same code as above, in minutes with sanitizers.
if [[ ! ${GN_SANITIZED:-} ]]; then
	# A network that float rounding alone moves beyond the bounds: said so, and counted on request. selftest_networks.t: it is no
	# cover for mistakes.
	shaky=$GN_SOURCE/tests/golden/resnet18-b2-s32-c10.json
	expect 1 'gradient norm +[a-z0-9.]+ .* rounding$' 'rounding is told from wrong, and counts with --strict' \
		"$gannet" selftest --strict --golden "$shaky"
fi

# in bf16 the bounds are wider
if grep -q avx512_bf16 /proc/cpuinfo; then
	expect 0 'within all bounds' 'resnet18 in bf16 is within all bounds' "$gannet" selftest --precision bf16 --golden "$good"
else
	expect 1 'no instructions for bfloat16' 'bf16 is refused here' "$gannet" selftest --precision bf16 --golden "$good"
fi
expect 1 'only in double precision' 'the oracle has no bf16' "$gannet" selftest --device ref --precision bf16 --golden "$good"

head -c 9000 "$good" >"$dir/short.json"
expect 3 'is not JSON: line' 'truncated' "$gannet" selftest --golden "$dir/short.json"
: >"$dir/empty.json"
expect 3 'is not JSON' 'empty' "$gannet" selftest --golden "$dir/empty.json"
echo '[1, 2]' >"$dir/list.json"
expect 3 '"model" is missing' 'no object' "$gannet" selftest --golden "$dir/list.json"
with model.json 's/"resnet18"/"resnet19"/'
expect 3 "unknown model 'resnet19'" 'unknown model' "$gannet" selftest --golden "$dir/model.json"
with other.json 's/"resnet18"/"resnet34"/'
expect 3 '"grads" lacks layer1.2.conv1.weight' 'another network than its tensors' "$gannet" selftest --golden "$dir/other.json"
with field.json 's/"losses"/"lossless"/'
expect 3 '"losses" is no list' 'missing field' "$gannet" selftest --golden "$dir/field.json"
with batch.json 's/"batch": 4/"batch": 2000000000/'
expect 3 '"batch" is 2000000000' 'absurd batch' "$gannet" selftest --golden "$dir/batch.json"
with side.json 's/"side": 64/"side": 8192/'
expect 3 'GB of memory' 'more than the machine has' "$gannet" selftest --golden "$dir/side.json"
with tiny.json 's/"side": 64/"side": -64/'
expect 3 '"side" is -64' 'negative side' "$gannet" selftest --golden "$dir/tiny.json"
with classes.json 's/"classes": 10/"classes": 11/'
expect 3 'logits of image 0|dimension 0 is 10 there' 'other classes than its tensors' "$gannet" selftest --golden "$dir/classes.json"
with label.json '0,/^  5,/s//  10,/'
expect 3 'label 0 is not a number from 0 to 9' 'label out of range' "$gannet" selftest --golden "$dir/label.json"
expect 3 'missing.json' 'missing file' "$gannet" selftest --golden "$dir/missing.json"
expect 2 'device' 'unknown device' "$gannet" selftest --device abacus
finish
