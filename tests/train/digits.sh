# What tests of ways to share a step have in common: the digits packed, a run of LeNet on them with a log by name, and whether two runs
# ended with the same parameters.
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
jsonl=$GN_SOURCE/tests/cmd/jsonl
export UCX_WARN_UNUSED_ENV_VARS=n GANNET_LOG=warn OMP_NUM_THREADS=1

check 'digits are packed' "$gannet" pack --out "$scratch/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
check 'and those to evaluate on' "$gannet" pack --out "$scratch/val" "$GN_SOURCE/data/digits/digits-val.tar.xz"
lenet() { # NAME RANKS OPTION...
	launch "$2" "$gannet" train --data "$scratch/train" --model lenet --lr 0.02 --batch 16 --threads 1 \
		--loader-threads 1 --schedule constant --log "$scratch/$1.jsonl" "${@:3}"
}
digest() { "$jsonl" "$scratch/$1.jsonl" end params_sha256 | tail -1; }
same() { test -n "$(digest "$1")" && test "$(digest "$1")" = "$(digest "$2")"; }
score() { "$jsonl" "$scratch/$1.jsonl" eval top1 top5 loss | awk '{ printf "%s %s %.12g\n", $1, $2, $3 }'; } # sums over ranks have an order
# The definition of pipedream, run serially, and whether a run ended with its parameters.
oracle() { "$GN_BUILD/tests/train/pipedream_oracle" "$scratch/train" "$@" >"$scratch/oracle"; }
is_oracle() { test -n "$(digest "$1")" && test "$(digest "$1")" = "$(sed -n 1p "$scratch/oracle")"; }
