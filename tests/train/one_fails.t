#!/bin/sh
# One rank fails, before it meets the others or while it trains: its reason is told once, and all end at once with its code. The limits are
# longer than anybody waits here: who waited for the others would not end.
set -u
. "$GN_SOURCE/tests/train/common.sh"
export GANNET_JOIN_TIMEOUT=900 GANNET_STALL_TIMEOUT=900
host=$(uname -n)

# some N SELECTED OPTION... -- COMMAND...: N ranks; the ones that the case pattern selects have the options, too
some() {
	n=$1 selected=$2 more=
	shift 2
	while test "$1" != --; do more="$more $1"; shift; done
	shift
	# shellcheck disable=SC2016 # the rank's shell expands it
	SELECTED=$selected MORE=$more timeout -k 5 300 "$gannet" launch -n "$n" --grace 300 -- sh -c '
		case $PMIX_RANK in $SELECTED) set -- "$@" $MORE ;; esac; exec "$@"' sh "$@"
}
# told CODE LINES PATTERN COMMAND...: ends with CODE, and LINES lines at most of what the ranks print hold PATTERN
told() {
	code=$1 lines=$2 pattern=$3
	shift 3
	"$@" >"$dir/out" 2>&1
	got=$?
	cat "$dir/out"
	test "$got" = "$code" && test "$(grep -c -e "$pattern" "$dir/out")" = "$lines"
}
check 'the digits' pack_digits
lenet="train --data $dir/train --model lenet --batch 16 --steps 5 --threads 1"

# shellcheck disable=SC2086 # lists
both() { # COMMAND...: by the rank that has it, with its host, and by rank 0
	told 2 2 'unknown option --no-such-option' some 3 1 --no-such-option -- "$gannet" "$@" &&
		grep -q "rank 1 on $host: unknown option --no-such" "$dir/out" && grep -q 'rank 1 failed: unknown option --no-such' "$dir/out"
}
# shellcheck disable=SC2086
check 'train: a wrong option of one rank' both $lenet
check 'bench' both bench allreduce --max-bytes 1K
check 'preflight' both preflight
check 'tune' both tune --out none --seconds 0.001 --max-bytes 64
check 'stage --tree' both stage --tree --from "$GN_SOURCE/data/digits" --to "$dir/tree"
# shellcheck disable=SC2086
first() { told 2 1 'unknown option --no-such-option' some 3 0 --no-such-option -- "$gannet" $lenet; }
check 'of rank 0, which alone tells it' first
# shellcheck disable=SC2086
all() { told 2 1 'unknown option --no-such-option' some 3 '*' --no-such-option -- "$gannet" $lenet; }
check 'of all ranks: once' all
# shellcheck disable=SC2086
differ() {
	# shellcheck disable=SC2016
	told 2 3 'unknown option' timeout -k 5 300 "$gannet" launch -n 3 --grace 300 -- sh -c 'exec "$@" --wrong-$PMIX_RANK' sh "$gannet" $lenet
}
check 'each another one: each tells its own' differ
# shellcheck disable=SC2086
others() { told 2 1 "rank 1 on $host: its options are not those of rank 0: --batch 16, here 8; --lr 0.1, here 0.3; " some 3 1 --lr 0.3 --batch 8 -- "$gannet" $lenet; }
check 'options that are not those of rank 0 are named' others
# shellcheck disable=SC2086
kinds() { # PATTERN OPTION...: of rank 1 alone
	pattern=$1
	shift
	told 2 1 "rank 1 on $host: its options are not those of rank 0: $pattern; start the same command everywhere" some 3 1 "$@" -- "$gannet" $lenet
}
check 'nor those of how ranks meet' kinds '--transport auto, here tcp' --transport tcp
check 'nor --elastic' kinds '--elastic (none), here 1' --elastic 1
check 'nor a folder for checkpoints' kinds '--checkpoint (none), here (a folder)' --checkpoint "$dir/c1"
# shellcheck disable=SC2016,SC2086
command() { # PATTERN COMMAND...: rank 1 runs it, the others train
	pattern=$1
	shift
	told 2 1 "rank 1 on $host runs gannet $pattern, and rank 0 on $host gannet train: start the same command everywhere" \
		env OTHER="$*" timeout -k 5 300 "$gannet" launch -n 3 --grace 300 -- sh -c '[ "$PMIX_RANK" != 1 ] || exec "$1" $OTHER; exec "$@"' sh "$gannet" $lenet
}
check 'another command' command bench bench allreduce --max-bytes 1K
check 'or exec' command exec exec true
# shellcheck disable=SC2086,SC2016
build() {
	told 2 1 "rank 1 on $host differs from 2 of 3 ranks in its program ([0-9.]*, commit .*, sources 0123456789abcdef instead of .*, which rank 0 on $host has)" \
		timeout -k 5 300 "$gannet" launch -n 3 --grace 300 -- sh -c '[ "$PMIX_RANK" = 1 ] && program=$1 || program=$2
		shift 2; exec "$program" "$@"' sh "$dir/other-build" "$gannet" $lenet
}
sources=$("$gannet" --version | sed -n 's/^sources  *//p')
sed "s/$sources/0123456789abcdef$(echo "$sources" | cut -c17-)/" "$gannet" >"$dir/other-build" && chmod +x "$dir/other-build"
check 'a rank of another build: both are named' build
# shellcheck disable=SC2086
file() { told 3 2 "cannot open $dir/nowhere" some 2 1 --options "$dir/nowhere" -- "$gannet" $lenet; }
check 'a file of options that one node does not have' file
# shellcheck disable=SC2086
key() { told "$1" 2 "$dir/nokey" some 2 1 --checkpoint "$dir/c" --checkpoint-key "$dir/nokey" -- "$gannet" $lenet; }
check 'a key that one node does not have' key 3

# shellcheck disable=SC2086
late() { # the rank that fails waits until the others have come
	# shellcheck disable=SC2016
	DIR=$dir told 2 2 'unknown option --wrong' timeout -k 5 300 "$gannet" launch -n 3 --grace 300 -- sh -c '
		if test $PMIX_RANK = 1; then until grep -q "limits: 900 s" "$DIR/out"; do sleep 0.02; done; set -- "$@" --wrong; fi
		exec "$@"' sh env GANNET_LOG=info "$gannet" $lenet
}
check 'a rank that fails after the others have begun to wait' late
# shellcheck disable=SC2086
early() { # the others come when the one that fails has said why by itself
	# shellcheck disable=SC2016
	DIR=$dir told 2 2 'unknown option --wrong' timeout -k 5 300 "$gannet" launch -n 3 --grace 300 -- sh -c '
		if test $PMIX_RANK = 1; then set -- "$@" --wrong; else until grep -q "rank 1 on" "$DIR/out"; do sleep 0.02; done; fi
		exec "$@"' sh "$gannet" $lenet
}
check 'a rank that fails before the others come' early

# The same where RANK and MASTER_ADDR say who takes part.
(umask 077 && head -c 32 /dev/urandom >"$dir/secret")
free_port() { perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => "0.0.0.0")->sockport'; }
# by_address NAME CODE OPTION...: the two ranks end with CODE; rank 1 has the options
by_address() {
	name=$1 code=$2 port=$(free_port) pids='' bad=0
	shift 2
	for r in 0 1; do
		test $r = 0 || set -- "$@" --no-such-option
		# shellcheck disable=SC2086
		GANNET_SECRET_FILE=$dir/secret RANK=$r WORLD_SIZE=2 MASTER_ADDR=$name MASTER_PORT=$port timeout -k 5 300 "$gannet" $lenet "$@" >"$dir/out.$r" 2>&1 &
		pids="$pids $!"
	done
	for p in $pids; do wait "$p"; test $? = "$code" || bad=1; done
	cat "$dir/out.0" "$dir/out.1"
	return $bad
}
addressed() { by_address 127.0.0.1 2 && grep -q 'rank 1 failed: unknown option' "$dir/out.0" && grep -q 'rank 1 on .*: unknown option' "$dir/out.1"; }
check 'a wrong option of one rank that MASTER_ADDR connects' addressed
one_by_one() { # rank 2 comes when rank 1 has ended for the same reason, which rank 0 alone tells
	port=$(free_port) first='' bad=0
	for r in 0 1 2; do
		test $r != 2 || wait "$p" || test $? = 2 || bad=1
		# shellcheck disable=SC2086
		GANNET_SECRET_FILE=$dir/secret RANK=$r WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -k 5 300 "$gannet" $lenet --no-such-option \
			>"$dir/out.$r" 2>&1 &
		p=$! first=${first:-$!}
	done
	for p in "$first" "$p"; do wait "$p"; test $? = 2 || bad=1; done
	cat "$dir"/out.[012]
	grep -q 'unknown option --no-such-option' "$dir/out.0" && test ! -s "$dir/out.1" && test ! -s "$dir/out.2" && test $bad = 0
}
check 'a wrong option of all, who come one by one' one_by_one
unknown() { # both say so before anything else
	port=$(free_port) pids=
	for r in 0 1; do
		# shellcheck disable=SC2086
		GANNET_SECRET_FILE=$dir/secret RANK=$r WORLD_SIZE=2 MASTER_ADDR=no-such-host.invalid MASTER_PORT=$port timeout -k 5 300 "$gannet" \
			$lenet >"$dir/out.$r" 2>&1 &
		pids="$pids $!"
	done
	for r in 0 1; do until_true grep -q "rank $r: MASTER_ADDR=no-such-host.invalid: cannot find the address" "$dir/out.$r" || bad=1; done
	# shellcheck disable=SC2086
	kill $pids
	wait
	cat "$dir/out.0" "$dir/out.1"
	return "${bad:-0}"
}
check 'a MASTER_ADDR that nobody knows is told at once' unknown
# shellcheck disable=SC2086
expect 2 'no other rank has come: MASTER_ADDR=no-such-host.invalid' 'and is the reason in the end' env GANNET_SECRET_FILE="$dir/secret" RANK=0 WORLD_SIZE=2 \
	MASTER_ADDR=no-such-host.invalid MASTER_PORT="$(free_port)" timeout -k 5 300 "$gannet" $lenet --join-timeout 1

# While ranks train.
damage() {
	cp -r "$dir/train" "$dir/bad" && shard=$(find "$dir/bad" -name '*.h5' | sort | tail -n 1) && head -c 6000 /dev/zero | tr '\0' x |
		dd of="$shard" bs=1 seek=20000 conv=notrunc 2>/dev/null
}
check 'a shard is damaged' damage
bad="train --data $dir/bad --model lenet --batch 8 --epochs 1 --threads 1 --prefetch 1K"
# shellcheck disable=SC2086
damaged() { # OPTION...: by the rank that finds it, and rank 0
	for _ in 1 2 3 4 5; do
		timeout -k 5 300 "$gannet" launch -n 3 --grace 300 -- "$gannet" $bad "$@" >"$dir/out" 2>&1
		code=$?
		cat "$dir/out"
		test $code = 3 && test "$(grep -c 'ERROR.*\.h5' "$dir/out")" -le 2 || return 1
	done
}
check 'bad data that one rank finds: code 3, in each of five runs' damaged
check 'also when another would have noticed first that it is gone' damaged --parallel data=1,pipeline=3 --micro-batches 4 --pipe-schedule pipedream
check 'and with servers' damaged --update async --servers 1

# What options alone cause: once, with code 2, however many ranks have it.
once() { told 2 1 ERROR "$@"; }
refused() { timeout -k 5 300 "$gannet" launch -n 2 --keep-going -- "$gannet" train --data "$dir/train" --model lenet --batch 8 --steps 2 "$@"; }
for _ in 1 2 3; do check 'refused by workers of servers' once refused --update sync --servers 1 --lr-scale nothing=2; done
check 'before ranks meet' told 2 1 '--algo shared and --transport tcp cannot be combined' refused --algo shared --transport tcp
check 'by ranks of an elastic run' once refused --elastic 1:4 --checkpoint "$dir/e"
finish
