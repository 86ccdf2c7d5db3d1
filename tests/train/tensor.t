#!/bin/bash
# Tensor groups, and stages of pipelines that are tensor groups: the results of one rank up to rounding, checkpoints from mesh to mesh, losses
# named by tensor group.
set -u
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"
net() { # NAME RANKS MODEL OPTION...: in $scratch/NAME
	launch "$2" "$gannet" train --data "$scratch/train" --model "$3" --lr 0.01 --threads 1 --loader-threads 1 --schedule constant \
		--log "$scratch/$1.jsonl" --checkpoint "$scratch/$1" "${@:4}"
}
weights() { echo "$scratch/$1/latest/${2:-model}.safetensors"; }
apart() { "$GN_SOURCE/tests/train/apart" "$(weights "$1" "${4:-model}")" "$(weights "$2" "${4:-model}")" "$3"; }

# shellcheck disable=SC2086 # options
{
	mix='--mixup 0.2 --ema 0.9 --accumulate 2'
	check 'lenet on one rank' net one 1 lenet --batch 8 --steps 6 $mix
	two() { GANNET_LOG=info net two 2 lenet --batch 8 --steps 6 $mix --parallel data=1,tensor=2 2>"$scratch/two.err"; }
	check 'divided among two' two
	check 'the same up to rounding' apart one two 1e-5
	check 'of the average, too' apart one two 1e-5 ema
	check 'the log draws the mesh' grep -q 'mesh data=1 x tensor=2: 2 ranks on 1 node' "$scratch/two.err"
	check 'and says what a rank has, at most 0.6 of the parameters' grep -Eq 'MB of parameters, 0\.5[0-9]* of the network' "$scratch/two.err"
	check 'and a line of the log' test "$("$jsonl" "$scratch/two.jsonl" start mesh.data mesh.tensor)" = '1 2'
	check 'lenet on two ranks of data' net data 2 lenet --batch 8 --steps 6 $mix --clip 0.5 --optimizer lars --lr 2
	check 'and two tensor groups' net mesh 4 lenet --batch 8 --steps 6 $mix --clip 0.5 --optimizer lars --lr 2 --parallel data=2,tensor=2
	check 'the same up to rounding: norms are of all slices' apart data mesh 1e-4
	check 'and two pipelines of them, that recompute activations' net eight 8 lenet --recompute --batch 8 --steps 6 $mix --clip 0.5 --optimizer lars --lr 2 \
		--parallel data=2,pipeline=2,tensor=2 --cut conv2
	check 'the same up to rounding: norms are of all slices of all stages' apart data eight 1e-4
	# direct: by the rule a slice and the whole layer may be convolved in two ways, and a relu near 0 makes more of that than 1e-4
	small='--side 16 --channels 1 --ema 0.9 --convolution direct'
	scores() { "$jsonl" "$scratch/$1.jsonl" eval images top1 top5 ema.top1 | grep . || echo "none in $1"; }
	check 'resnet20 on one rank' net res1 1 resnet20 --batch 40 --steps 2 $small --val "$scratch/val"
	check 'divided among two' net res2 2 resnet20 --batch 40 --steps 2 $small --val "$scratch/val" --parallel tensor=2
	check 'the same up to rounding, batch norm as well' apart res1 res2 1e-4
	check 'and as many right, of the average, too' test "$(scores res1)" = "$(scores res2)"
	check 'in a pipeline, too' net res4 4 resnet20 --batch 40 --steps 2 $small --val "$scratch/val" --parallel pipeline=2,tensor=2 --cut layer3
	check 'the same up to rounding' apart res1 res4 1e-4
	check 'and as many right' test "$(scores res1)" = "$(scores res4)"

	# From mesh to mesh.
	go_on() { net "$1" "$2" lenet --batch 8 --steps 6 --resume auto $mix "${@:3}"; }
	check 'a part on one rank' net there 1 lenet --batch 8 --steps 3 $mix
	check 'the rest divided' go_on there 2 --parallel tensor=2
	check 'a part divided among five' net five 5 lenet --batch 8 --steps 3 $mix --parallel tensor=5
	check 'the rest in a pipeline' go_on five 2 --parallel pipeline=2 --cut fc1
	check 'a part in a pipeline of three tensor groups' net six 6 lenet --batch 8 --steps 3 $mix --parallel pipeline=3,tensor=2 --cut conv2,fc2
	rest() { GANNET_LOG=info go_on six 4 --parallel pipeline=2,tensor=2 --cut fc1 2>"$scratch/six.err"; }
	check 'the rest in one of two' rest
	for name in there five six; do check 'the same up to rounding' apart one $name 1e-5; done
	check 'of the average, too' apart one six 1e-5 ema
	check 'the log draws stages in brackets' grep -Eq 'data 0: \(.*\[0\] - .*\[1\]\) -> \(.*\[2\] - .*\[3\]\)' "$scratch/six.err"
	check 'and a line of the log has all of the mesh' test "$("$jsonl" "$scratch/six.jsonl" start mesh.pipeline mesh.tensor mesh.cut)" = '3 2 conv2,fc2'
}
check 'eval reads it' "$gannet" eval --data "$scratch/val" --checkpoint "$scratch/two" --threads 1
check 'export, too' "$gannet" export --checkpoint "$scratch/mesh" --out "$scratch/out.safetensors"
expect 1 'not finite' 'gradients of a slice that overflow' net skip 2 lenet --batch 8 --steps 30 --lr 1e6 --parallel tensor=2

# A processor that computes in other layouts than the group's other ones.
other() {
	# shellcheck disable=SC2016
	launch 2 sh -c 'test $PMIX_RANK = 0 || export DNNL_MAX_CPU_ISA=AVX2; exec "$@"' sh "$gannet" train --data "$scratch/train" --model resnet20 \
		--side 16 --channels 1 --batch 8 --steps 1 --threads 1 --loader-threads 1 --parallel tensor=2
}
if grep -q avx512dq /proc/cpuinfo; then
	expect 1 '.rank 0. and .* .rank 1. compute in different layouts' 'processors of two kinds in one group' other
else
	skip 'processors of two kinds in one group' 'no AVX-512'
fi

# A rank that is killed: the others end with 4 and say which slice it was.
kills() { # VICTIM MESH
	rm -f "$scratch"/kill.*
	# shellcheck disable=SC2016
	timeout -k 5 300 "$gannet" launch -n 4 --keep-going -- sh -c 'run=$1; shift; "$@" 2>"$run.$PMIX_RANK.err" &
		echo $! >"$run.$PMIX_RANK.pid"; wait $!; code=$?; echo $code >"$run.$PMIX_RANK.code"; exit $code' sh "$scratch/kill" \
		"$gannet" train --data "$scratch/train" --model lenet --lr 0.01 --threads 1 --loader-threads 1 --batch 8 --epochs 1000 \
		--parallel "$2" --log-every 5 --log "$scratch/kill.jsonl" >"$scratch/kill.err" 2>&1 &
	local launcher=$!
	await_line 3 '"event": "step"' "$scratch/kill.jsonl" || return 1
	kill -KILL "$(cat "$scratch/kill.$1.pid")"
	wait "$launcher"
	true
}
codes() { cat "$scratch"/kill.[0-2].code | tr '\n' ' '; }
check 'rank 3 is killed' kills 3 data=2,tensor=2
check 'the others end with 4' test "$(codes)" = '4 4 4 '
check 'with the tensor group' grep -q 'rank 3, slice 1 of 2 of tensor group 1, is lost' "$scratch/kill.0.err"
check 'rank 3 of a pipeline is killed' kills 3 pipeline=2,tensor=2
check 'the others end with 4' test "$(codes)" = '4 4 4 '
check 'with stage and slice' grep -q 'rank 3, stage 1 of 2, slice 1 of 2 of pipeline 0, is lost' "$scratch/kill.0.err"

# What cannot be is said before the run begins.
refuse() { expect 2 "$1" "$2" "$gannet" train --data "$scratch/train" --model lenet "${@:3}"; }
refuse '.--parallel pipeline=2,tensor=2 cannot be combined: slices of a stage' 'slices of stages that do not pause' \
	--parallel pipeline=2,tensor=2 --pipe-schedule pipedream
refuse '.--parallel tensor=2 and --compress int8 cannot be combined: what slices' 'copies that are rounded in different ways' --parallel tensor=2 --compress int8
refuse '.--parallel tensor=2 and --device cuda cannot be combined' 'a GPU' --parallel tensor=2 --device cuda
refuse 'cannot be divided by tensor=2' 'too few ranks' --parallel tensor=2
finish
