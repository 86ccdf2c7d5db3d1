#!/bin/sh
# Synchronised batch norm: groups of ranks see the statistics that one rank with all their images would see.
set -u
. "$GN_SOURCE/tests/train/common.sh"

# ranks NAME RANKS BATCH OPTION...: six steps of a network with batch norm, slowly: a fresh residual network blows rounding up,
# at this rate from 1e-7 at step 2 to 1e-5 at step 9, at 0.02 to 1e-3 at step 8. Statistics of one's own differ by 5e-4 at once.
ranks() {
	name=$1 count=$2 batch=$3
	shift 3
	timeout -k 5 300 "$gannet" launch -n "$count" -- "$gannet" train --data "$dir/pictures" --model resnet20 --side 16 \
		--lr 0.001 --schedule constant --batch "$batch" --threads 1 --loader-threads 1 --steps 6 --log-every 1 \
		--log "$dir/$name.jsonl" --checkpoint "$dir/$name" "$@"
}
# Running statistics of both: the mean of each rank's own is not what the whole batch has.
same_statistics() { # NAME NAME BOUND
	for name in "$1" "$2"; do
		rm -f "$dir/$name.safetensors"
		"$gannet" export --checkpoint "$dir/$name" --out "$dir/$name.safetensors" || return 1
	done
	perl -e '
		use strict; use warnings; use JSON::PP;
		sub tensors {
			open my $in, "<:raw", $_[0] or die; local $/; my $all = <$in>;
			my $len = unpack "Q<", $all; my $head = decode_json(substr $all, 8, $len); my %found;
			for my $name (grep { /running_/ } keys %$head) {
				my ($from, $to) = @{$head->{$name}{data_offsets}};
				$found{$name} = [unpack "f<*", substr $all, 8 + $len + $from, $to - $from];
			}
			return \%found;
		}
		my ($a, $b, $bound, $worst) = (tensors($ARGV[0]), tensors($ARGV[1]), $ARGV[2], 0);
		for my $name (keys %$a) {
			for my $i (0 .. $#{$a->{$name}}) {
				my $d = abs($a->{$name}[$i] - $b->{$name}[$i]) / (0.1 + abs $a->{$name}[$i]);
				$worst = $d if $d > $worst;
			}
		}
		print scalar(keys %$a), " statistics, worst difference $worst\n";
		exit !(keys %$a && $worst <= $bound)' "$dir/$1.safetensors" "$dir/$2.safetensors" "$3"
}

check 'pictures' "$gannet" pack --out "$dir/pictures" --synthetic 400 --classes 10 --size 20x20
check 'one rank of 32' ranks one 1 32
check 'four ranks of 8, all together' ranks all 4 8 --sync-bn all
check 'lose the same' same_losses "$dir/one.jsonl" "$dir/all.jsonl" 2e-5
check 'with the same running statistics' same_statistics one all 1e-4
check 'four ranks of 8, together as a node' ranks node 4 8 --sync-bn node
check 'are the same' same_losses "$dir/all.jsonl" "$dir/node.jsonl" 1e-12
check 'over tcp in small buckets' ranks tcp 4 8 --sync-bn all --transport tcp --algo ring --bucket 64K
check 'lose the same, too' same_losses "$dir/one.jsonl" "$dir/tcp.jsonl" 2e-5
check 'four ranks of 8, each its own' ranks own 4 8
expect 1 'differs at step 1 ' 'differ' same_losses "$dir/one.jsonl" "$dir/own.jsonl" 2e-5
expect 1 'worst' 'and so do their statistics' same_statistics one own 1e-4
check 'two ranks of 16, each its own' ranks two 2 16
check 'four ranks of 8 in groups of two' ranks pairs 4 8 --sync-bn 2
check 'lose as two ranks of 16' same_losses "$dir/two.jsonl" "$dir/pairs.jsonl" 2e-5
check 'with the same statistics' same_statistics two pairs 1e-4
check 'groups of one change nothing' ranks single 4 8 --sync-bn 1
check 'nothing at all' same_losses "$dir/own.jsonl" "$dir/single.jsonl" 0
expect 2 'a divisor of them' 'groups that do not divide the ranks' ranks none 4 8 --sync-bn 3
expect 2 'write all, node' 'groups of nothing' ranks none 2 8 --sync-bn some
finish
