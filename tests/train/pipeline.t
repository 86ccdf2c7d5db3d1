#!/bin/bash
# Pipelines: the bits of one rank that accumulates as many micro-batches, checkpoints from mesh to mesh, a mesh that is chosen, losses named by stage.
set -u
# shellcheck source=tests/train/pipeline.sh
. "$GN_SOURCE/tests/train/pipeline.sh"

# One rank, four batches a step, and the same as micro-batches of one.
mix='--mixup 0.2 --ema 0.9'
# shellcheck disable=SC2086 # options
{
	check 'lenet on one rank' net lenet1 1 lenet --batch 4 --accumulate 4 --steps 6 $mix
	check 'by micro-batches' net lenetm 1 lenet --batch 16 --micro-batches 4 --steps 6 $mix
	check 'the same bits' same lenet1 lenetm
	for schedule in gpipe 1f1b; do
		check "two stages, $schedule" net lenet2-$schedule 2 lenet --batch 16 --micro-batches 4 --steps 6 $mix \
			--parallel data=1,pipeline=2 --cut conv2 --pipe-schedule $schedule
		check 'the same bits' same lenet1 lenet2-$schedule
		check 'of the average, too' cmp "$(weights lenet1 ema)" "$(weights lenet2-$schedule ema)"
	done
	check 'three stages, two batches a step' net lenet3 3 lenet --batch 8 --micro-batches 2 --accumulate 2 --steps 6 $mix \
		--parallel pipeline=3 --cut conv2,fc1
	check 'the same bits' same lenet1 lenet3
	check 'resnet20 on one rank' net res1 1 resnet20 --batch 4 --accumulate 3 --steps 2 $small --val "$scratch/val"
	check 'resnet20 cut at layer2' net res-layer2 2 resnet20 --batch 12 --micro-batches 3 --steps 2 $small --parallel pipeline=2 \
		--cut layer2 --val "$scratch/val"
	check 'the same bits' same res1 res-layer2
	check 'batch norm as well' cmp "$(weights res1)" "$(weights res-layer2)"
	check 'and the same evaluation' test -n "$(score res1)" -a "$(score res1)" = "$(score res-layer2)"
}

# --recompute: the same bits in less memory.
# shellcheck disable=SC2086
{
	two='--parallel pipeline=2 --cut'
	again lenetr-gpipe lenet2-gpipe 50 2 lenet --batch 16 --micro-batches 4 --steps 6 $mix $two conv2 --pipe-schedule gpipe
	check 'the average, too' cmp "$(weights lenet1 ema)" "$(weights lenetr-gpipe ema)"
	check 'the losses, too' test "$("$jsonl" "$scratch/lenet2-gpipe.jsonl" step loss)" = "$("$jsonl" "$scratch/lenetr-gpipe.jsonl" step loss)"
	again lenetr3 lenet3 70 3 lenet --batch 8 --micro-batches 2 --accumulate 2 --steps 6 $mix --parallel pipeline=3 --cut conv2,fc1
}

# Two pipelines are two ranks of data: one state in checkpoints, whatever mesh wrote them, and the samples go on where they were.
go_on() { net "$1" "$2" lenet --steps "$3" --resume auto "${@:4}"; }
# shellcheck disable=SC2086
{
	check 'two ranks of data' net data 2 lenet --batch 4 --accumulate 2 --steps 6 $mix
	check 'two pipelines, where they are cut is chosen' net mesh 4 lenet --batch 8 --micro-batches 2 --steps 6 $mix --parallel data=2,pipeline=2
	check 'the same bits' same data mesh
	check 'a part in two pipelines' net there 4 lenet --batch 8 --micro-batches 2 --steps 3 $mix --parallel data=2,pipeline=2 --cut fc1
	check 'a part on two ranks' net back 2 lenet --batch 4 --accumulate 2 --steps 3 $mix
	check 'the rest on two ranks' go_on there 2 6 --batch 4 --accumulate 2 $mix
	check 'the rest in two pipelines' go_on back 4 6 --batch 8 --micro-batches 2 $mix --parallel data=2,pipeline=2 --cut conv2
	check 'the same bits' same data there
	check 'the other way, too' same data back
	check 'of the average, too' cmp "$(weights data ema)" "$(weights back ema)"
	check 'a part in three stages' net three 3 lenet --batch 16 --micro-batches 4 --steps 3 $mix --parallel pipeline=3 --cut conv2,fc1
	check 'the rest in two' go_on three 2 6 --batch 16 --micro-batches 4 $mix --parallel pipeline=2 --cut fc2 --pipe-schedule gpipe
	check 'the same bits' same lenet1 three
}
# shellcheck disable=SC2086
{
	check 'three batches a step on two ranks of data' net odd2 2 lenet --batch 4 --global-batch 12 --steps 4 $mix
	check 'in two pipelines' net odd4 4 lenet --batch 4 --global-batch 12 --steps 4 $mix --parallel data=2,pipeline=2 --cut conv2
	check 'the same bits' same odd2 odd4
}
# --parallel auto, on links that a table describes as fast as can be, and as slow: as many samples and micro-batches of a step in any mesh. What is
# the fastest on fast links follows from measured layers, so it is asked for the least of what was predicted, and compared with a run that has
# its bits. A message takes .1 ms, and tensor groups send many.
check 'links are measured' launch 2 "$gannet" tune --transport tcp --seconds 0.005 --max-bytes 64K --out "$scratch/table"
rate() { # BYTES_PER_S
	perl -MJSON::PP -i -pe '$t = decode_json($_); $t->{node}{bytes_per_s} = '"$1"'; delete $t->{allreduce};
		%$_ = (%$_, latency_s => 1e-4, s_per_byte => 0, send_s => 0, receive_s => 0) for @{$t->{node}{ranges}}; $_ = encode_json($t) . "\n"' "$scratch/table"
}
auto() { net "$1" 2 lenet --steps "$2" --batch 16 --accumulate 2 --parallel auto --transport tcp --tuning "$scratch/table" "${@:3}"; }
chosen() { "$jsonl" "$scratch/$1.jsonl" "$2" mesh_choice | grep -o "^.*data=$3.*is the fastest"; }
mesh() { "$jsonl" "$scratch/turn.jsonl" start mesh_choice | sed 's/ is the fastest.*//'; }
least() {
	"$jsonl" "$scratch/turn.jsonl" start mesh_choice | perl -ne 'print; ($mesh, $all) = /^(\S+) is the fastest that fits, a step predicted: (.*)/ or die;
		%ms = map { /^(\S+) ([\d.e-]+) ms/ ? ($1, $2) : () } split /, /, $all; exit !(keys %ms > 1 && !grep { $_ < $ms{$mesh} } values %ms)'
}
same_as_whole() { [[ $(mesh) == *tensor=2* ]] || same there2 turn; } # tensor groups have other bits
predicted() { "$jsonl" "$scratch/$1.jsonl" start mesh_choice | sed 's/.* data=2,pipeline=1 \([0-9.]*\) ms.*/\1/'; }
longer() { awk -v a="$(predicted turn)" -v b="$(predicted large)" 'BEGIN { exit !(a > 0 && b > a) }'; }
# shellcheck disable=SC2086
{
	check 'links on which bytes take no time' rate 1e12
	check 'a mesh is chosen' auto turn 3 $mix
	check 'the one whose step is predicted to be the shortest' least
	check 'and of a global batch' net large 2 lenet --steps 1 --batch 16 --global-batch 512 --parallel auto --transport tcp --tuning "$scratch/table"
	check 'whose step, of eight times as many images, is predicted to be longer' longer
	case $(mesh) in
	data=2,*) check 'on two ranks of data' net there2 2 lenet --batch 16 --accumulate 2 --steps 3 $mix ;;
	*) check 'on one rank' net there2 1 lenet --batch 16 --accumulate 4 --steps 3 $mix ;;
	esac
	check 'the same bits' same_as_whole
	check 'links on which gradients take seconds' rate 1e5
	check 'the run goes on in the mesh of now' auto turn 6 $mix --resume auto
	check 'which is a pipeline' chosen turn resume 1,pipeline=2
	check 'on one rank' go_on there2 1 6 --batch 16 --accumulate 4 $mix
	check 'the same bits' same_as_whole
}
expect 0 'written by 4 ranks in 2 groups, each with a whole network, global batch' 'info counts its ranks' "$gannet" info "$scratch/mesh"
check 'eval reads it' "$gannet" eval --data "$scratch/val" --checkpoint "$scratch/three" --threads 1
check 'export, too' "$gannet" export --checkpoint "$scratch/mesh" --out "$scratch/out.safetensors"
log=$scratch/mesh.jsonl
check 'the log has the mesh' test "$("$jsonl" "$log" start mesh.data mesh.pipeline mesh.schedule mesh.micro_batches)" = '2 2 1f1b 2'

told() {
	GANNET_LOG=debug net told 2 lenet --batch 8 --micro-batches 2 --steps 2 --parallel pipeline=2 --cut fc1 2>"$scratch/told.err" &&
		test "$(grep -ao 'parameters after step 2: .*' "$scratch/told.err")" = "parameters after step 2: $(digest told)"
}
check 'the digest of all parameters is told by the rank that has them, alone' told
check 'and what the global batch is made of' grep -q 'global batch 8 (1 pipeline x 4 x 2 accumulated)' "$scratch/told.err"
check 'and how long a stage waited' grep -q 'stage 1 of 2 waited [0-9]* % of the steps. time for its neighbours, by formula 33 %; it sent' "$scratch/told.err"

# Stages that take longer than others are no slow ranks.
check 'stages of different times' net uneven 2 lenet --batch 16 --micro-batches 2 --steps 8 --parallel pipeline=2 --cut fc2 --log-every 2 --slow-steps 2
check 'name no slow rank' test "$(grep -c '"event": "slow"' "$scratch/uneven.jsonl")" = 0

# Norms are of all stages: clipping, and what is skipped.
check 'clipped on one rank' net clip1 1 lenet --batch 8 --accumulate 2 --steps 4 --clip 0.5 --optimizer lars --lr 2
check 'clipped in a pipeline' net clip2 2 lenet --batch 16 --micro-batches 2 --steps 4 --clip 0.5 --optimizer lars --lr 2 --parallel pipeline=2 --cut fc1
check 'within 1e-6' "$GN_SOURCE/tests/train/apart" "$(weights clip1)" "$(weights clip2)" 1e-6
expect 1 'not finite' 'gradients of a stage that overflow' net skip 2 lenet --batch 8 --steps 30 --lr 1e6 --parallel pipeline=2 --cut fc1

# A rank that is killed: the others end with 4 and say which stage it was.
kills() { # VICTIM
	local name=kill$1
	# shellcheck disable=SC2016
	timeout -k 5 300 "$gannet" launch -n 4 --keep-going -- sh -c 'run=$1; shift; "$@" 2>"$run.$PMIX_RANK.err" &
		echo $! >"$run.$PMIX_RANK.pid"; wait $!; code=$?; echo $code >"$run.$PMIX_RANK.code"; exit $code' sh "$scratch/$name" \
		"$gannet" train --data "$scratch/train" --model lenet --lr 0.02 --threads 1 --loader-threads 1 --batch 8 --micro-batches 2 --epochs 1000 \
		--parallel data=2,pipeline=2 --cut conv2 --log-every 5 --log "$scratch/$name.jsonl" >"$scratch/$name.err" 2>&1 &
	local launcher=$!
	await_line 3 '"event": "step"' "$scratch/$name.jsonl" || return 1
	kill -KILL "$(cat "$scratch/$name.$1.pid")"
	wait "$launcher"
	true
}
for victim in 1 2; do
	check "rank $victim is killed" kills $victim
	for rank in 0 1 2 3; do
		[ $rank = $victim ] || check "rank $rank ends with 4" test "$(cat "$scratch/kill$victim.$rank.code")" = 4
	done
	check 'with the stage' grep -q "rank $victim, stage $((victim % 2)) of 2 of pipeline $((victim / 2)), is lost" "$scratch/kill$victim.0.err"
done

# What cannot be is said before the run begins.
refuse() { expect 2 "$1" "$2" "$gannet" train --data "$scratch/train" --model lenet "${@:3}"; }
refuse 'micro-batches 3 does not divide --batch 16' 'micro-batches that do not fit' --batch 16 --micro-batches 3 --parallel pipeline=2
refuse '65536 x --micro-batches 65536: a step has at most' 'more batches than can be counted' --batch 65536 --accumulate 65536 \
	--micro-batches 65536 --parallel pipeline=2
refuse 'what is trained depends on the mesh' 'auto and updates without a pause' --parallel auto --pipe-schedule pipedream
refuse 'each mesh has cuts of its own' 'cuts for all meshes' --parallel auto --cut fc1
refuse '.--parallel auto and --sync-bn cannot be combined: which batches are of one statistic' 'auto and statistics over meshes' --parallel auto \
	--sync-bn all
refuse '.--parallel auto and --compress topk:0.1 cannot be combined' 'auto and what is compressed together' --parallel auto --compress topk:0.1
refuse '.--parallel auto and --shard gradients cannot be combined' 'auto and what pipelines cannot' --parallel auto --shard gradients
refuse '--cut is where stages of a pipeline begin' 'a cut without a pipeline' --cut fc1
refuse '--recompute is of stages, and needs a pipeline' 'nothing to recompute' --recompute
refuse '.--recompute and --parallel auto cannot' 'auto, which does not know of it' --recompute --parallel auto
refuse 'pipedream and --recompute cannot be combined: a stage has updated' 'parameters that have changed' --recompute --pipe-schedule pipedream \
	--parallel pipeline=2
refuse '--pipe-schedule is of pipelines' 'a schedule without a pipeline' --pipe-schedule gpipe
refuse 'pipeline=2 and --shard gradients cannot be combined: a stage' 'gradients of micro-batches on several ranks' --parallel pipeline=2 \
	--shard gradients
refuse 'pipeline=2 and --compress auto cannot' 'a method for one stage' --parallel pipeline=2 --compress auto
refuse 'pipedream and --shard cannot be combined' 'versions of parts' --parallel pipeline=2 --pipe-schedule pipedream --shard optimizer
refuse 'data=2,pipeline=2, --shard and --elastic cannot be combined' 'parts that are lost' --parallel data=2,pipeline=2 --shard optimizer --elastic 2 \
	--checkpoint "$scratch/parts"
refuse 'the number of ranks changes' 'a number of ranks that may be lost' --parallel data=1,pipeline=1 --elastic 2
refuse 'form pipelines of as many stages as before' 'a mesh that would be chosen again' --parallel auto --elastic 2 --checkpoint "$scratch/auto"
refuse 'none of data=N' 'another word' --parallel experts=2
refuse '2 ranks' 'too few ranks' --parallel data=1,pipeline=2
expect 1 'name with --cut where stages begin' 'layers that are not measured' net ref 2 lenet --parallel pipeline=2 --device ref
# As many ranks as N of data=N are no pipeline: what pipelines refuse is taken, and gives the bits of a run without --parallel.
plain_data() { # NAME RANKS MODEL OPTION...
	check "data=2 with ${*:4}" net "of-$1" "$2" "$3" --steps 2 "${@:4}" --parallel data=2
	check 'without' net "no-$1" "$2" "$3" --steps 2 "${@:4}"
	check 'the same bits' same "of-$1" "no-$1"
}
plain_data freeze 2 lenet --batch 4 --freeze 'conv1.*'
plain_data local 2 lenet --batch 4 --local-steps 2
plain_data gradients 2 lenet --batch 4 --shard gradients
plain_data server 3 lenet --batch 4 --update sync --servers 1
plain_data near 2 lenet --batch 4 --checkpoint-local "$scratch/near"
plain_data sizes 2 resnet20 --batch 4 --channels 1 --side 28 --resize-schedule 0:20,1:28
expect 2 'local-steps cannot be combined: stages of one network' 'data=2 of four ranks is a pipeline' net four 4 lenet --steps 2 --batch 4 --local-steps 2 \
	--parallel data=2
expect 2 'recompute is of stages, and needs a pipeline: give --parallel pipeline=N, too' 'a mesh without stages' net stages 2 lenet --parallel data=2 --recompute
expect 2 'lenet cannot be cut before' 'a cut in a wrong place' net cut 2 lenet --parallel pipeline=2 --cut conv1
finish
