#!/bin/bash
# gannet bench: every mode's rows, JSON, limits, and a transport that is not the one named.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"

# Loopback of its own, where that is possible: other tests' traffic would count, too.
quiet=()
((UID == 0)) && unshare --net true 2>/dev/null && quiet=(unshare --net sh -c 'ip link set lo up; exec "$@"' sh)
run() { # N MODE ARG...
	timeout -k 5 300 "${quiet[@]}" "$gannet" launch -n "$1" -- "$gannet" bench "$2" --iters 3 --warmup 1 "${@:3}"
}
bench() { run "$1" allreduce "${@:2}"; }

json() { # N TRANSPORT ALGO
	bench "$1" --transport "$2" --algo "$3" --json --min-bytes 8 --max-bytes 4M --factor 32 >"$scratch/out" 2>"$scratch/err" ||
		{ cat "$scratch/err"; return 1; }
	perl -MJSON::PP -e '
		my ($n, $transport, $algo) = splice @ARGV, 0, 3;
		my $rows = 0;
		while (<STDIN>) {
			my $r = decode_json($_);
			die "wrong row: $_" unless $r->{op} eq "allreduce" && $r->{bytes} == 8 * 32 ** $rows && $r->{transport} eq $transport
				&& $r->{algo} eq $algo && $r->{rails} == ($transport eq "tcp");
			for (qw(in_place out_of_place)) {
				my $t = $r->{$_};
				die "$_: $t->{wrong} wrong" if $t->{wrong};
				my $alg = $r->{bytes} / $t->{time_us} / 1e3;
				die "algbw" if abs($alg / $t->{algbw_gb_per_s} - 1) > 1e-2;
				die "busbw" if abs($alg * 2 * ($n - 1) / $n / $t->{busbw_gb_per_s} - 1) > 1e-2;
				die "p99" unless $t->{p99_us} > 0;
			}
			$rows++;
		}
		die "$rows rows" unless $rows == 4;' "$@" <"$scratch/out"
}
check "JSON rows, 2 ranks, shm, ring" json 2 shm ring
check "JSON rows, 3 ranks, tcp, recursive doubling" json 3 tcp recursive-doubling
in_groups() { # N GROUP TRANSPORT: ranks and groups as asked for, no wrong element in any group
	run "$1" "$4" --group "$2" --transport "$3" --json --max-bytes 1M --factor 64 >"$scratch/out" 2>"$scratch/err" ||
		{ cat "$scratch/err"; return 1; }
	perl -MJSON::PP -e '
		my ($n, $each) = @ARGV;
		while (<STDIN>) {
			my $r = decode_json($_);
			$rows++;
			die $_ if $r->{ranks} != $each || $r->{groups} != $n / $each || $r->{out_of_place}{wrong};
		}
		die "$rows rows" unless $rows == 3;' "$1" "$2" <"$scratch/out"
}
check "allreduce in groups of 2 of 4 ranks" in_groups 4 2 auto allreduce
check "allgather in groups of 3 of 6 ranks over tcp" in_groups 6 3 tcp allgather
expect 2 'not a divisor of 4 ranks' "groups that do not divide the ranks" run 4 allreduce --group 3
expect 2 'collectives in host memory' "no groups of point to point" run 4 p2p --group 2
# bus bandwidth by algorithm bandwidth; the least bytes per byte of message on one node; is there an in-place half?
modes="reduce-scatter:2/3:4:1 allgather:2/3:4:1 broadcast:1:3:1 reduce:1:4:1 all-to-all:2/3:6:0"
mode() { # MODE FACTOR NEEDED IN_PLACE ARG...
	run 3 "$1" --json --min-bytes 4 --max-bytes 300K --factor 64 "${@:5}" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/err"; return 1; }
	perl -MJSON::PP -e '
		my ($op, $factor, $needed, $in_place) = @ARGV;
		my ($rows, $before) = (0, 0);
		while (<STDIN>) {
			my $r = decode_json($_);
			die "wrong row: $_" unless $r->{op} eq $op && $r->{bytes} > $before && $r->{ranks} == 3 && $r->{transport} eq "shm";
			die "no in-place half, or too much of it: $_" unless $in_place == (defined $r->{in_place} ? 1 : 0);
			die "limit: $_" unless $r->{limit}{of} eq "memory" && abs($r->{limit}{needed_bytes} / $r->{bytes} / eval($needed) - 1) < 1e-9;
			for my $t (grep { defined } @$r{qw(in_place out_of_place)}) {
				die "$t->{wrong} wrong" if $t->{wrong};
				die "no algorithm" unless length $t->{algo} && $t->{chunks} >= 1;
				die "busbw" if abs($t->{busbw_gb_per_s} / $t->{algbw_gb_per_s} / eval($factor) - 1) > 1e-6;
				die "percentiles" unless $t->{p99_us} >= $t->{p50_us} && $t->{p50_us} > 0;
				my $share = $r->{limit}{needed_bytes} / $t->{time_us} / 1e3 / $r->{limit}{gb_per_s};
				die "share" if abs($share - $t->{limit_share}) > 2e-4 + 1e-2 * $share;
			}
			$before = $r->{bytes};
			$rows++;
		}
		die "$rows rows" unless $rows == 3;' "${@:1:4}" <"$scratch/out"
}
for each in $modes; do
	IFS=: read -r name factor needed in_place <<<"$each"
	check "$name, 3 ranks" mode "$name" "$factor" "$needed" "$in_place" --transport shm
	check "$name, 3 ranks, foreign buffers, bfloat16, another root" mode "$name" "$factor" "$needed" "$in_place" \
		--transport shm --foreign --type bfloat16 --root 2
done
# all pairs of them: ranks.t
for each in double:max half:avg bfloat16:min int32:avg int64:min; do
	expect 0 "^{" "allreduce of ${each/:/, }" bench 3 --type ${each%:*} --redop ${each#*:} --json --min-bytes 4 --max-bytes 32K --factor 128
done
p2p() {
	run 3 p2p --peer 1 --json --min-bytes 8 --max-bytes 1M --factor 512 --transport "$1" >"$scratch/out" || return 1
	perl -MJSON::PP -e 'my @r = map { decode_json($_) } <STDIN>; my $want = shift;
		join(" ", map { "$_->{bytes} $_->{direction} $_->{rails}" } @r) eq join(" ", map { ("$_ one-way $want", "$_ both-ways $want") } 8, 4096)
			or die "rows"; die "wrong" if grep { $_->{out_of_place}{wrong} || $_->{in_place} } @r' "$2" <"$scratch/out"
}
check "p2p, shm, no rail" p2p shm 0
check "p2p, tcp, one rail" p2p tcp 1
expect 2 "needs at least two ranks" "p2p with oneself" run 1 p2p
expect 2 "rank 3 does not exist" "a peer that is not there" run 3 p2p --peer 3
expect 2 "rank 3 does not exist" "a root that is not there" run 3 broadcast --root 3
expect 2 "no algorithm .* auto, shared, ring" "an unknown algorithm, with those there are" bench 2 --algo best
one_place() { bench 2 --place in --json --max-bytes 8 >"$scratch/out" && grep -q '"in_place"' "$scratch/out" && ! grep -q out_of_place "$scratch/out"; }
check "one place alone" one_place
expect 0 "#wrong" "a table for people" bench 2 --max-bytes 1K
expect 1 "tcp did not carry the traffic: the ranks of .* sent [0-9]+ bytes" "tcp that was shared memory is found out" \
	env UCX_TLS=sm,self "${quiet[@]}" "$gannet" launch -n 2 -- \
	"$gannet" bench allreduce --transport tcp --max-bytes 64K --min-bytes 64K --iters 3
expect 1 "shm did not carry the traffic" "shared memory that was tcp is found out" \
	env UCX_TLS=tcp,self "${quiet[@]}" "$gannet" launch -n 2 -- \
	"$gannet" bench allreduce --transport shm --algo ring --foreign --max-bytes 4M --min-bytes 4M --iters 3
expect 2 "a single rank" "one rank proves no transport" bench 1 --transport tcp
expect 0 "1 rank on 1 node" "one rank alone" bench 1 --max-bytes 1K
expect 2 "above" "an upside-down range" bench 1 --min-bytes 8 --max-bytes 4
expect 2 "no mode 'scatter'; choose one of: allreduce" "an unknown mode" "$gannet" bench scatter
if [[ ! -d /sys/class/infiniband ]]; then
	expect 1 "no way to reach others by rc: $(hostname) has no RDMA device that is up; it has lo" "rc where there is no RDMA device fails" bench 2 --transport rc --max-bytes 1K
fi
for what in "bench allreduce" "bench p2p" "train --data none --model lenet"; do
	# shellcheck disable=SC2086 # several words
	expect 2 '--comm nccl: .*NCCL requires GPU memory' "$what --comm nccl on the host's memory" \
		timeout -k 5 300 "$gannet" $what --comm nccl
done
expect 2 '--device cuda: p2p is measured only on the host' "p2p --device cuda" timeout -k 5 300 "$gannet" bench p2p --device cuda
expect 1 '--device cuda: .*(no CUDA|no NVIDIA driver|no CUDA-capable device|nvidia-smi)' "allreduce of GPU memory without a GPU" \
	env CUDA_VISIBLE_DEVICES='' timeout -k 5 300 "$gannet" bench allreduce --device cuda --max-bytes 8
finish
