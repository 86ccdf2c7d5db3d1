#!/bin/bash
# Parameter servers: the same sums as an allreduce, learning without one, the bound of ssp, checkpoints, and what is refused.
set -u
# shellcheck source=tests/train/digits.sh
. "$GN_SOURCE/tests/train/digits.sh"

# Of two workers every order of a sum gives the same bits; of three recursive doubling does not add in rank order.
check 'two ranks, an allreduce' lenet plain 2 --steps 20 --ema 0.9 --checkpoint "$scratch/plain"
for servers in 1 2 shared; do
	[[ $servers = shared ]] && ranks=2 || ranks=$((2 + servers))
	check "sync with --servers $servers" lenet "sync-$servers" "$ranks" --steps 20 --update sync --servers "$servers" --ema 0.9 \
		--checkpoint "$scratch/sync-$servers"
	check 'gives the same bits' same plain "sync-$servers"
	check 'and the same average' cmp "$scratch/plain/latest/ema.safetensors" "$scratch/sync-$servers/latest/ema.safetensors"
done
for servers in 1 shared; do
	[[ $servers = shared ]] && ranks=3 || ranks=$((3 + servers))
	check "three workers, --servers $servers" lenet "three-$servers" "$ranks" --steps 10 --update sync --servers "$servers"
done
check 'sum in one order, whoever serves' same three-1 three-shared

# State is on the servers, and checkpoints are as without: each goes on from the other's.
check 'servers go on from a checkpoint of an allreduce' lenet from-plain 4 --steps 30 --update sync --servers 2 \
	--resume "$scratch/plain/latest" --ema 0.9
check 'an allreduce from one of servers' lenet from-sync 2 --steps 30 --resume "$scratch/sync-2/latest" --ema 0.9
check 'with the same bits' same from-plain from-sync

learns() { "$jsonl" "$scratch/$1.jsonl" eval top1 | tail -1 | awk '{ exit !($1 >= 0.85) }'; }
for way in 'async 1' 'async shared' 'ssp:2 1'; do
	read -r update servers <<<"$way"
	[[ $servers = shared ]] && ranks=3 || ranks=$((3 + servers))
	check "$update with --servers $servers" lenet "$update-$servers" "$ranks" --epochs 2 --update "$update" --servers "$servers" \
		--val "$scratch/val"
	check 'learns the digits' learns "$update-$servers"
done
expect 0 '^core hours: not in the log, which has the usage of the first worker only$' 'summary knows no core hours of async' \
	"$gannet" summary "$scratch/async-1.jsonl"
# staleness NAME: of the log's last interval: how many pushes there were, and by how many steps a worker was ahead at most
staleness() { perl -MJSON::PP -ne '$last = $_ if /"staleness"/; END { my $s = decode_json($last)->{staleness}; my $sum = 0;
	$sum += $_ for @{$s->{histogram}}; print "$sum $s->{ahead_most}\n" }' "$scratch/$1.jsonl"; }
read -r pushes ahead <<<"$(staleness ssp:2-1)"
check 'staleness of every push is counted' test "$pushes" -ge "$("$jsonl" "$scratch/ssp:2-1.jsonl" end step)"
check 'and no worker was more than two steps ahead' test "$ahead" -le 2
check 'ssp:0 goes on step by step' lenet ssp0 4 --steps 30 --update ssp:0 --servers 1
read -r pushes ahead <<<"$(staleness ssp0)"
check 'all workers together' test "$ahead" = 0

check 'async saves' lenet saved 3 --steps 30 --update async --servers 1 --checkpoint "$scratch/saved" --checkpoint-every 10
check 'each of three is told, and blocked no longer than it took' test \
	"$("$jsonl" "$scratch/saved.jsonl" checkpoint seconds blocked_seconds | awk '$2 > 0 && $2 <= $1' | wc -l)" = 3
check 'async saves on the node first' lenet local 3 --steps 10 --update async --servers 1 --checkpoint "$scratch/local" --checkpoint-every 10 \
	--checkpoint-local "$scratch/disk"
check 'a part of it stays there, and nothing half-written' test "$(ls "$scratch"/disk/*)" = step-00000010-node-00000
check 'async goes on with more workers' lenet saved 5 --steps 40 --update async --servers 2 --checkpoint "$scratch/saved" --resume auto
check 'to the end' test "$("$jsonl" "$scratch/saved.jsonl" end step | tail -1)" = 40

for said in '1 rank 2 holds the parameters and does not train;' 'shared every rank holds a part of the parameters;'; do
	expect 0 "--update async --servers ${said%% *}: ${said#* } a worker's gradients are applied as they come" "--servers ${said%% *} is told" \
		env GANNET_LOG=info "$gannet" launch -n 3 -- "$gannet" train --data "$scratch/train" --model lenet --batch 8 --steps 2 --update async \
		--servers "${said%% *}"
done

refuse() { expect 2 "$1" "$2" "$gannet" train --data "$scratch/train" --model lenet "${@:3}"; }
refuse 'give --servers' 'servers are missing' --update sync
refuse 'serves parameters to nobody' 'nobody uses servers' --servers 1
refuse 'is none of allreduce, sync' 'no such way' --update ssp --servers 1
refuse '.--update async and --clip cannot be combined: the norm is of the whole gradient' 'and --clip' --update async --servers 1 --clip 1
refuse 'cannot be combined: workers do not take their steps' 'and --sync-bn' --update async --servers 1 --sync-bn all
advises() { # whoever ends first gives the code
	launch 2 "$gannet" train --data "$scratch/train" --model lenet --batch 8 --lr 1e6 --steps 30 --update async --servers 1 >"$scratch/out" 2>&1
	cat "$scratch/out"
	grep -q 'not finite at .*: lower --lr, lengthen --warmup-epochs$' "$scratch/out" && ! grep -qe --clip "$scratch/out"
}
check 'advice names no option that servers refuse' advises
refuse 'leaves none of 1 rank to train' 'no rank is left to train' --update sync --servers 1
finish
