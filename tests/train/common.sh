# What the training tests share: the digits packed, a lenet run, and two logs compared.
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
jsonl=$GN_SOURCE/tests/cmd/jsonl
dir=$(mktemp -d "${TMPDIR:-/tmp}/gannet-train.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP
export UCX_WARN_UNUSED_ENV_VARS=n GANNET_LOG=${GANNET_LOG:-warn}

pack_digits() {
	"$gannet" pack --out "$dir/train" "$GN_SOURCE/data/digits/digits-train.tar.xz" &&
		"$gannet" pack --out "$dir/val" "$GN_SOURCE/data/digits/digits-val.tar.xz"
}

# lenet RANKS BATCH OPTION...: trains under gannet launch, 120 s at most. At this rate, the usual one for LeNet, rounding
# stays rounding; from 0.02 on it is blown up to 1e-5 within 35 steps and to 1e-3 within 50, whatever sums are exact.
lenet() {
	ranks=$1 batch=$2
	shift 2
	timeout -k 5 300 "$gannet" launch -n "$ranks" -- "$gannet" train --data "$dir/train" --model lenet --lr 0.01 \
		--batch "$batch" --threads 1 --loader-threads 1 "$@"
}

# same_losses LOG LOG BOUND: the step lines of both have the same steps, and losses within BOUND relative
same_losses() {
	"$jsonl" "$1" step step loss >"$dir/a.txt" && "$jsonl" "$2" step step loss >"$dir/b.txt" || return 1
	paste -d ' ' "$dir/a.txt" "$dir/b.txt" | awk -v bound="$3" '
		{ d = $2 - $4; if (d < 0) d = -d; if ($2 > 0 && d / $2 > worst) worst = d / $2
		  if ($1 != $3 || !(d <= bound * $2)) { print "differs at step", $1, $3 ":", $2, $4; bad = 1 } }
		END { print NR, "steps, worst relative difference", worst + 0; exit bad || NR == 0 }'
}
