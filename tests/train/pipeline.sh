# shellcheck shell=bash disable=SC2034 # small is of those who source it
# What tests of pipelines have in common: runs of any network on the digits, their weights, and --recompute. Source it.
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"
net() { # NAME RANKS MODEL OPTION...: in $scratch/NAME
	launch "$2" "$gannet" train --data "$scratch/train" --model "$3" --lr 0.02 --threads 1 --loader-threads 1 --schedule constant \
		--log "$scratch/$1.jsonl" --checkpoint "$scratch/$1" "${@:4}"
}
small='--side 16 --channels 1'
weights() { echo "$scratch/$1/latest/${2:-model}.safetensors"; }

held() { grep -o '"activation_bytes": [0-9]*' "$scratch/$1.jsonl" | sed -n '1s/.* //p'; } # by the first stage
smaller() { awk -v a="$(held "$1")" -v b="$(held "$2")" -v percent="$3" 'BEGIN { exit !(a > 0 && 100 * a < percent * b) }'; }
again() { # NAME OF PERCENT RANKS MODEL OPTION...: the bits of OF, with less than so many percent of its memory
	check "$5 with --recompute, ${*: -1}" net "$1" "$4" "$5" --recompute "${@:6}"
	check 'the same bits' same "$2" "$1"
	check 'batch norm as well' cmp "$(weights "$2")" "$(weights "$1")"
	[ "$3" = - ] || check "less than $3 % of the memory" smaller "$1" "$2" "$3"
}
