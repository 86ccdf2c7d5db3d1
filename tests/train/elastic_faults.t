#!/bin/bash
# Random faults in runs with --elastic: one to three ranks are killed, stopped for good, or stopped for a while, or the links of their nodes are cut
# for good or for a while, after a random step and so many waits of the victim, or while the others recover. The run ends; ranks end with code 0, or 4 where they were stopped, cut off
# or too few were left; all that end well hold the same parameters; on one node those of a run of as many ranks at each step that was stopped
# and started again; the loss is that of a run without faults; and each sample was used once, in one world at a time. GN_FAULTS runs (6; 100 in tests/long),
# GN_SEED the first; each is repeated by its own seed. GN_WITH: more options of the runs. As root half of the runs are on several nodes.
# Without GN_WITH, on every third seed the optimizer is sharded, with copies, and on every third there are pipelines of two stages, half of these
# with copies.
set -u
# shellcheck source=tests/train/elastic.sh
. "$GN_SOURCE/tests/train/elastic.sh"
# shellcheck source=tests/train/nodes.sh
. "$GN_SOURCE/tests/train/nodes.sh"
faults=(kill kill kill stop pause pause)
link_faults=(kill kill stop pause cut cut blink blink)
steps=100 last=60 # faults begin after a step up to the second

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
# shellcheck disable=SC2206
train+=(${GN_WITH:-})

code_of() { cat "$scratch/$1.$2.code" 2>/dev/null; }
seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }
# strike NAME RANK: after it was drawn when and how
strike() {
	local fault=${faults[RANDOM % ${#faults[@]}]} waits=$((RANDOM % 3 ? RANDOM % 200 : RANDOM % 3000)) pause=$((RANDOM % 5000 + 100)) node r
	if ((nodes)); then
		fault=${link_faults[RANDOM % ${#link_faults[@]}]} node=$(node_of "$2" "$ranks")
	fi
	echo "$fault: rank $2${node:+ on node $node} after $waits waits more (pause: $pause ms)"
	after_waits "$(cat "$scratch/$1.$2.pid")" "$waits"
	struck+=("$2")
	if [[ $fault == cut || $fault == blink ]]; then
		for ((r = 0; r < ranks; r++)); do ((node != $(node_of $r "$ranks"))) || struck+=("$r"); done
	fi
	case $fault in
	cut) cut_off "$node" ;;
	blink) cut_off "$node" && { sleep "$(seconds $pause)"; heal "$node"; } & ;;
	kill) send KILL "$1" "$2" ;;
	stop) send STOP "$1" "$2" && stopped+=("$2") ;;
	pause) send STOP "$1" "$2" && { sleep "$(seconds $pause)"; send CONT "$1" "$2"; } & ;;
	esac
}
# Until all ranks have ended but those that are stopped, which are then let go.
let_go() { # NAME RANKS
	local r left=1
	while ((left)) && kill -0 "$launcher" 2>/dev/null; do
		left=0
		for ((r = 0; r < $2; r++)); do
			[[ " ${stopped[*]} " == *" $r "* || $(code_of "$1" "$r") ]] || left=1
		done
		sleep 0.05
	done
	for r in "${stopped[@]}"; do send CONT "$1" "$r"; done
}
# The run came to its end.
ended() { # NAME [back]
	local digest same
	digest=$(field "$1" end params_sha256)
	same=$(grep -o "parameters after step $steps: [0-9a-f]*" "$scratch/$1.err" | sort -u)
	[[ $same == "parameters after step $steps: $digest" ]] || { echo "ranks hold different parameters: $same"; return 1; }
	[[ ! ${pipes[*]} || $(field "$1" start mesh.pipeline) == 2 ]] || { echo 'there were no pipelines'; return 1; }
	if ((nodes)); then
		# where ranks are on several nodes their sums have another order than those of a planned run here
		"$GN_SOURCE/tests/train/elastic_ledger" "$scratch/$1.jsonl" ${2:+"$2"} || return 1
	else
		as_planned "$@" || { echo 'parameters are not those of a stop and a start'; return 1; }
	fi
	"$gannet" info "$scratch/$1" >/dev/null
	as_without_faults "$1"
}
mean_loss() { field "$1" step loss | tail -n 20 | awk '{ sum += $1 } END { print sum / NR }'; } # NAME
# The loss is about that of a run without faults: the order of sums differs, and nothing else.
as_without_faults() { # NAME
	local with without
	if [[ ! -e $scratch/$whole.jsonl ]]; then
		timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" "${train[@]}" "${pipes[@]}" --steps $steps --log-every 1 --log "$scratch/$whole.jsonl" || return 1
	fi
	with=$(mean_loss "$1") without=$(mean_loss "$whole")
	echo "loss $with, without faults $without"
	awk -v a="$with" -v b="$without" 'BEGIN { d = a - b; exit !((d < 0 ? -d : d) < 0.05 + 0.1 * b) }'
}
fault() { # SEED
	local name=$1 ranks victims after r rank code good=0 stopped=() struck=() nodes=0 begin=begin train=("${train[@]}") pipes=() more=() back="" whole
	RANDOM=$1
	ranks=$((RANDOM % 4 + 2)) victims=$((RANDOM % 3 + 1)) after=$((RANDOM % last + 1))
	case ${GN_WITH:+none}$(($1 % 3)) in
	1) train+=(--shard optimizer --optimizer adamw --lr 0.002) more=(--redundancy 1) back=1 ;;
	2)
		train+=(--micro-batches 2) pipes=(--parallel pipeline=2 --cut conv2) ranks=$((ranks / 2 * 2)) back=1
		(($1 / 3 % 2)) || more=(--redundancy 1)
		;;
	esac
	whole=whole$ranks-$(($1 % 3))
	((victims < ranks)) || victims=$((ranks - 1))
	if ((RANDOM % 2 && lab_nodes)); then
		nodes=$((RANDOM % 3 + 2)) begin=begin_on_nodes
		((nodes <= ranks)) || nodes=$ranks
		heal {1..4}
	fi
	echo "$ranks ranks, $nodes nodes, $victims faults after step $after ${train[*]:13} ${pipes[*]} ${more[*]}"
	GANNET_LOG=debug $begin "$name" $ranks $after --steps $steps --log-every 1 --elastic 1 --heartbeat-timeout 5 --checkpoint "$scratch/$name" \
		--checkpoint-every 40 "${more[@]}" || { cat "$scratch/$name.err"; return 1; }
	for ((r = 0, rank = RANDOM; r < victims; r++, rank++)); do strike "$name" $((rank % ranks)); done
	let_go "$name" $ranks
	wait "$launcher"
	[[ $? != 124 ]] || { echo 'it hangs'; cat "$scratch/$name.err"; return 1; }
	for ((r = 0; r < ranks; r++)); do
		code=$(code_of "$name" $r)
		echo "rank $r ends with code $code"
		case $code in
		0) good=$((good + 1)) ;;
		4 | 137) ;;
		*) echo 'which is none of 0, 4 and 137'; cat "$scratch/$name.err"; return 1 ;;
		esac
	done
	if ((good)); then
		ended "$name" ${back:+back} || { cat "$scratch/$name.err"; return 1; }
	elif ((2 * $(printf '%s\n' "${struck[@]}" | sort -u | wc -l) < ranks)); then
		echo 'enough ranks were left to go on'
		cat "$scratch/$name.err"
		return 1
	fi
	echo $good >>"$scratch/good"
	wait # for pauses
	rm -rf "${scratch:?}/$name" "$scratch/$name".*
}
lab_nodes=0
if nodes_usable; then
	# not by check, which is a subshell
	nodes_begin 4 && lab_nodes=4
	check 'there are four nodes' test $lab_nodes = 4
fi
seed=${GN_SEED:-$((RANDOM + 1))} count=${GN_FAULTS:-6}
echo "# GN_SEED=$seed GN_FAULTS=$count"
for ((i = seed; i < seed + count; i++)); do
	check "random faults, GN_SEED=$i GN_FAULTS=1" fault $i
done
touch "$scratch/good"
echo "# $(grep -vc '^0$' "$scratch/good") of $count runs went on to their end, $(grep -c '^0$' "$scratch/good") ended with too few ranks"
finish
