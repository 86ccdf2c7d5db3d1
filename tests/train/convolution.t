#!/bin/sh
# --convolution: which algorithm convolutions of 3 x 3 take is in the log and in the checkpoint, stays what it was in a run that goes on, is
# one for all ranks, and gives the same bits each time.
set -u
. "$GN_SOURCE/tests/train/common.sh"
export OMP_NUM_THREADS=1
train() { # NAME OPTION...
	name=$1
	shift
	timeout -k 5 300 env GANNET_LOG=info "$gannet" train --data "$dir/train" --model resnet20 --lr 0.05 --schedule constant --batch 8 --threads 1 \
		--loader-threads 1 --log "$dir/$name.jsonl" --log-every 1 "$@" 2>"$dir/$name.err" || { cat "$dir/$name.err"; return 1; }
}
final() { "$jsonl" "$dir/$1.jsonl" end params_sha256; }
same() { test -n "$(final "$1")" && test "$(final "$1")" = "$(final "$2")"; }
differ() { ! same "$@"; }
begins() { # NAME EVENT CONVOLUTION WINOGRAD: what the log says of it
	[ "$("$jsonl" "$dir/$1.jsonl" "$2" convolution winograd)" = "$3 $4" ] || { grep "\"$2\"" "$dir/$1.jsonl"; return 1; }
}
says() { grep -q -e "$2" "$dir/$1.err" || { cat "$dir/$1.err"; return 1; }; }
silent() { ! says "$@" >/dev/null; }

check 'made-up images are packed' "$gannet" pack --out "$dir/train" --synthetic 64 --classes 4 --size 32x32
avx2=$(grep -c -m 1 'avx2.*fma\|fma.*avx2' /proc/cpuinfo)
if [ "$avx2" = 0 ]; then
	check 'without AVX2 convolutions are direct' train old --steps 2 --convolution winograd
	check 'with a warning' says old 'WARN.*convolutions are direct, not winograd'
	finish
	exit
fi

# By the rule all: 64 x 8 x 8 is just large enough.
check 'a run by the rule' train auto --steps 4
check 'the log says so, and of how many convolutions' begins auto start auto-1 16
check 'the same run' train again --steps 4
check 'has the same bits' same auto again
check 'all by Winograd' train winograd --steps 4 --convolution winograd
check 'which are 16, of 19' begins winograd start winograd 16
check 'direct ones' train direct --steps 4 --convolution direct --checkpoint "$dir/d4"
check 'which are counted, too' begins direct start direct 0
check 'round in another way' differ auto direct

check 'a direct run stops' train part --steps 2 --convolution direct --checkpoint "$dir/d"
check 'and goes on without the option' train rest --steps 4 --checkpoint "$dir/d" --resume auto
check 'as it was' begins rest resume direct 0
check 'with the bits of one that was not stopped' same rest direct
check 'which is told' says rest 'go on as before: direct'

# As versions before wrote it.
forget() { python3 -c '
import json, sys
m = json.load(open(sys.argv[1]))
del m["convolution"]
json.dump(m, open(sys.argv[1], "w"))' "$1"; }
check 'a checkpoint that does not say' forget "$dir/d4/step-00000004/manifest.json"
check 'is gone on with' train older --steps 5 --checkpoint "$dir/d4" --resume auto
check 'by direct ones, which it had' begins older resume direct 0
check 'another on request' train other --steps 6 --checkpoint "$dir/d4" --resume auto --convolution winograd
check 'which is used' begins other resume winograd 16
check 'and told' says other 'were direct until now, and are winograd'
check 'and stays' train stays --steps 7 --checkpoint "$dir/d4" --resume auto
check 'without the option' begins stays resume winograd 16

# A processor without it, alone and beside others.
check 'a checkpoint by the rule' train rule --steps 2 --checkpoint "$dir/r"
older() { (export ONEDNN_MAX_CPU_ISA=SSE41 && train "$@"); }
check 'on an older processor' older sse --steps 3 --checkpoint "$dir/r" --resume auto
check 'by direct ones' begins sse resume direct 0
check 'with a warning' says sse 'WARN.*convolutions are direct, not auto-1'
two() { # NAME ISA OPTION...: the second rank has no more than that
	name=$1 isa=$2
	shift 2
	timeout -k 5 300 env GANNET_LOG=info "$gannet" launch -n 2 -- sh -c 'if [ "$PMIX_RANK" = 1 ]; then export ONEDNN_MAX_CPU_ISA='"$isa"'; fi; exec "$@"' sh \
		"$gannet" train --data "$dir/train" --model resnet20 --lr 0.05 --batch 8 --threads 1 --loader-threads 1 --steps 3 \
		--log "$dir/$name.jsonl" --log-every 1 "$@" 2>"$dir/$name.err" || { cat "$dir/$name.err"; return 1; }
}
check 'two ranks, of which one has no AVX2' two mixed SSE41
check 'compute alike' begins mixed start direct 0
check 'and say why' says mixed 'not all processors have AVX2'
check 'two ranks of AVX2 and of what is here' two near AVX2
check 'both have it' begins near start auto-1 16
check 'and do not warn of it' silent near 'not all processors'
finish
