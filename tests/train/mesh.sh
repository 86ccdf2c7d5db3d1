# shellcheck shell=bash disable=SC2034 # meshes are of those who source it
# What tests of --shard and --compress in meshes have in common: runs of LeNet, three meshes, and compressed runs that go on. Source it.
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"
lenet() { # NAME RANKS OPTION...: in $scratch/NAME
	GANNET_LOG=info launch "$2" "$gannet" train --data "$scratch/train" --model lenet --batch 8 --threads 1 --loader-threads 1 \
		--schedule constant --bucket 200K --log "$scratch/$1.jsonl" --log-every 1 --checkpoint "$scratch/$1" "${@:3}" 2>"$scratch/$1.err" ||
		{ cat "$scratch/$1.err"; return 1; }
}
warns() { grep -q "$2" "$scratch/$1.err"; }

pipe='--parallel data=2,pipeline=2 --cut conv2 --micro-batches 2'
tensor='--parallel data=2,tensor=2'
both='--parallel data=2,pipeline=2,tensor=2 --cut conv2'

# sent NAME: bytes that a rank sends in a step, by the log's event of the start
sent() { sed -n 's/.*gradients are compressed by .*: a rank sends \([0-9.e+-]*\) MB a step, without compression \([0-9.e+-]*\) MB.*/\1 \2/p' "$scratch/$1.err"; }
less() { # NAME FACTOR
	local few many
	read -r few many < <(sent "$1")
	[[ $few && $many ]] && awk -v a="$few" -v b="$many" -v f="$2" 'BEGIN { exit !(a * f < b) }' || { echo "$1: $few MB of $many"; return 1; }
}
# compressed MESH HOW RANKS: four steps with fewer bytes, and again in halves
# shellcheck disable=SC2086
compressed() {
	lenet "$1-$2" "$3" --steps 4 --lr 0.02 ${!1} --compress "$2" --checkpoint-every 2 && less "$1-$2" 1.5 &&
		lenet "$1-$2-r" "$3" --steps 2 --lr 0.02 ${!1} --compress "$2" &&
		lenet "$1-$2-r" "$3" --steps 4 --lr 0.02 --resume auto ${!1} --compress "$2"
}
