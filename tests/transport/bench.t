#!/bin/bash
# gannet bench allreduce: rows, JSON, and a transport that is not the one named.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"

# Loopback of its own, where that is possible: other tests' traffic would count, too.
quiet=()
((UID == 0)) && unshare --net true 2>/dev/null && quiet=(unshare --net sh -c 'ip link set lo up; exec "$@"' sh)
bench() { # N ARG...
	timeout -k 5 120 "${quiet[@]}" "$gannet" launch -n "$1" -- "$gannet" bench allreduce --iters 3 --warmup 1 "${@:2}"
}

json() { # N TRANSPORT ALGO
	bench "$1" --transport "$2" --algo "$3" --json --min-bytes 8 --max-bytes 4M --factor 32 >"$scratch/out" 2>"$scratch/err" ||
		{ cat "$scratch/err"; return 1; }
	perl -MJSON::PP -e '
		my ($n, $transport, $algo) = splice @ARGV, 0, 3;
		my $rows = 0;
		while (<STDIN>) {
			my $r = decode_json($_);
			die "wrong row: $_" unless $r->{op} eq "allreduce" && $r->{bytes} == 8 * 32 ** $rows && $r->{transport} eq $transport
				&& $r->{algo} eq $algo;
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
expect 0 "#wrong" "a table for people" bench 2 --max-bytes 1K
expect 1 "did not go by tcp: the ranks of .* sent [0-9]+ bytes" "tcp that was shared memory is found out" \
	env UCX_TLS=sm,self "${quiet[@]}" "$gannet" launch -n 2 -- \
	"$gannet" bench allreduce --transport tcp --max-bytes 64K --min-bytes 64K --iters 3
expect 1 "did not go by shm" "shared memory that was tcp is found out" \
	env UCX_TLS=tcp,self "${quiet[@]}" "$gannet" launch -n 2 -- \
	"$gannet" bench allreduce --transport shm --algo ring --foreign --max-bytes 4M --min-bytes 4M --iters 3
expect 2 "one rank alone" "one rank proves no transport" bench 1 --transport tcp
expect 0 "1 ranks" "one rank alone" bench 1 --max-bytes 1K
expect 2 "above" "an upside-down range" bench 1 --min-bytes 8 --max-bytes 4
expect 2 "no mode" "an unknown mode" "$gannet" bench allgather
if [[ ! -d /sys/class/infiniband ]]; then
	expect 1 "" "rc where there is no RDMA device fails" bench 2 --transport rc --max-bytes 1K
fi
finish
