#!/bin/bash
# Random faults in runs with --elastic: one to three ranks are killed, stopped for good, or stopped for a while, after a random step or while
# the others recover. The run ends; ranks end with code 0, or 4 where they were stopped or too few were left; all that end well hold the
# same parameters; those of a run of as many ranks at each step that was stopped and started again; and each sample was used once.
# GN_FAULTS runs (6; 100 in tests/long), GN_SEED the first; each is repeated by its own seed. GN_WITH: more options of the runs.
set -u
# shellcheck source=tests/train/elastic.sh
. "$GN_SOURCE/tests/train/elastic.sh"
faults=(kill kill kill stop pause pause)
steps=150 last=90 # faults begin after a step up to the second

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
# shellcheck disable=SC2206
train+=(${GN_WITH:-})

code_of() { cat "$scratch/$1.$2.code" 2>/dev/null; }
seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }
# strike NAME RANK: after it was drawn when and how
strike() {
	local fault=${faults[RANDOM % ${#faults[@]}]} ms=$((RANDOM % 3 ? RANDOM % 60 : RANDOM % 1500)) pause=$((RANDOM % 5000 + 100))
	echo "$fault: rank $2 after $ms ms more (pause: $pause ms)"
	sleep "$(seconds $ms)"
	case $fault in
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
ended() { # NAME
	local digest same
	digest=$(field "$1" end params_sha256)
	same=$(grep -o "parameters after step $steps: [0-9a-f]*" "$scratch/$1.err" | sort -u)
	[[ $same == "parameters after step $steps: $digest" ]] || { echo "ranks hold different parameters: $same"; return 1; }
	as_planned "$1" || { echo 'parameters are not those of a stop and a start'; return 1; }
	"$gannet" info "$scratch/$1" >/dev/null
}
fault() { # SEED
	local name=$1 ranks victims after r rank code good=0 stopped=()
	RANDOM=$1
	ranks=$((RANDOM % 4 + 2)) victims=$((RANDOM % 3 + 1)) after=$((RANDOM % last + 1))
	((victims < ranks)) || victims=$((ranks - 1))
	echo "$ranks ranks, $victims faults after step $after"
	GANNET_LOG=debug begin "$name" $ranks $after --steps $steps --log-every 1 --elastic 1 --heartbeat-timeout 2 --checkpoint "$scratch/$name" \
		--checkpoint-every 40 || { cat "$scratch/$name.err"; return 1; }
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
		ended "$name" || { cat "$scratch/$name.err"; return 1; }
	elif ((2 * victims < ranks)); then
		echo 'enough ranks were left to go on'
		cat "$scratch/$name.err"
		return 1
	fi
	echo $good >>"$scratch/good"
	wait # for pauses
	rm -rf "${scratch:?}/$name" "$scratch/$name".*
}
seed=${GN_SEED:-$((RANDOM + 1))} count=${GN_FAULTS:-6}
echo "# GN_SEED=$seed GN_FAULTS=$count"
for ((i = seed; i < seed + count; i++)); do
	check "random faults, GN_SEED=$i GN_FAULTS=1" fault $i
done
touch "$scratch/good"
echo "# $(grep -vc '^0$' "$scratch/good") of $count runs went on to their end, $(grep -c '^0$' "$scratch/good") ended with too few ranks"
finish
