#!/bin/bash
# gannet selftest on the networks that selftest.t leaves out, and on wrong numbers where bounds are wide.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
golden=$GN_SOURCE/tests/golden
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
export OMP_NUM_THREADS=1 # barriers are slow where others use the processors, too
selftest() { timeout -k 5 300 "$gannet" selftest "$@"; }

for file in mobilenet_v3_large-b3-s96-c7 convnext_tiny-b3-s96-c7 vit_b_16-b2-s64-c10 vit_b_16-b3-s96-c17; do
	expect 0 'within all bounds|no larger than' "$file is within all bounds" selftest --brief --golden "$golden/$file.json"
done

# One wrong number alone is a failure.
good=$golden/resnet18-b4-s64-c10.json
wrong() { # NAME PATTERN SED-EXPRESSION OPTION...
	sed "$3" "$good" >"$dir/wrong.json"
	expect 1 "$2 .*FAIL" "$1 is seen" selftest "${@:4}" --golden "$dir/wrong.json"
	case $tap_output in
	*'FAILED, 1 deviations exceed'*) tap_point ok 'and nothing else' ;;
	*) tap_point 'not ok' 'and nothing else' ;;
	esac
}
wrong 'a wrong loss' 'loss +step 1' 's/3.25558/3.25568/'
wrong 'a wrong gradient norm' 'gradient norm +conv1.weight' 's/20.652875/20.752875/'
wrong 'a wrong logit' 'logits ' 's/-0.567162/-0.569162/'
# in bf16 the bounds are wider, and still seen to be passed
if grep -q avx512_bf16 /proc/cpuinfo; then
	wrong 'a wrong gradient norm in bf16' 'gradient norm +conv1.weight' 's/20.652875/80.652875/' --precision bf16
else
	skip 'a wrong gradient norm in bf16 is seen' 'this processor has no instructions for it'
fi
# rounding is no cover for mistakes
sed 's/"l2": 23.1874/"l2": 923.1874/' "$golden/resnet18-b2-s32-c10.json" >"$dir/shaky.json"
expect 1 'gradient norm +fc.weight .*FAIL' 'a wrong gradient is seen where rounding passes the bounds' selftest --golden "$dir/shaky.json"
finish
