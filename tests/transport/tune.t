#!/bin/bash
# gannet tune: measures, writes a table that reads back, keeps other fabrics' lines, leaves what is no table alone.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
table=$scratch/config/gannet/tuning.jsonl
quick() { launch 2 env XDG_CONFIG_HOME="$scratch/config" "$gannet" tune --seconds 0.005 --max-bytes 64K "$@"; }
unset GANNET_TUNING

expect 2 "one rank alone" "one rank has nothing to measure" "$gannet" tune
expect 0 "above [0-9]+ bytes messages wait" "shared memory is measured" quick --transport shm
check "and kept where runs look" test -s "$table"
check "over tcp, too" quick --transport tcp --samples
lines() { perl -MJSON::PP -ne '
	$t = decode_json($_); $n++;
	die "version" unless $t->{gannet_tuning} == 1 && $t->{signature} =~ /^1 nodes of 2; within: \S+/;
	die "rates" unless $t->{node}{bytes_per_s} > 1e6 && $t->{reduce_bytes_per_s} > 1e6;
	for (@{$t->{node}{ranges}}) { die "residual" unless defined $_->{residual_rms} && $_->{samples} > 0 }
	END { exit($n != 2) }' "$table"; }
check "each fabric has its line" lines
again() { quick --transport tcp && [[ $(grep -c ^ "$table") == 2 ]]; }
check "a second time the line is replaced" again
json() { quick --transport tcp --json --out none | perl -MJSON::PP -ne 'exit !decode_json($_)->{node}{measured}[3]{one_way_s}'; }
check "the same as JSON" json
# pieces COUNT MEMBER...: a ring of two that was tried with 1 MiB, as the table would say it, is what a run takes
pieces() {
	local count=$1 found
	shift
	quick --transport tcp --out "$scratch/tried" || return 1
	perl -MJSON::PP -i -pe 'BEGIN { %more = splice @ARGV, 0, @ARGV - 1 } $t = decode_json($_);
		$t->{allreduce} = [{bytes => 1 << 20, algorithm => "ring", seconds => 1e-3, map { $_ => $more{$_} + 0 } keys %more}];
		$_ = encode_json($t) . "\n"' "$@" "$scratch/tried"
	found=$(launch 2 "$gannet" bench allreduce --json --transport tcp --tuning "$scratch/tried" --min-bytes 1M --max-bytes 1M --iters 1 \
		--place in | grep -o '"algo": "ring", "pieces": [0-9]*')
	echo "found: $found"
	# shellcheck disable=SC2053 # a pattern
	[[ $found == *'"pieces": '$count ]]
}
check "pieces are what was tried" pieces 8 piece_bytes 65536
check "or one" pieces 1 piece_bytes 1099511627776
check "older tables leave that to the model" pieces '[0-9]*'
masked() { umask 027 && rm -f "$table" && quick --transport shm && [[ $(stat -c %a "$table") == 640 ]]; }
check "the umask holds" masked
printf '{"signature": "other"}\n{"sig' >"$table"
expect 3 "tuning.jsonl:2: " "a damaged table is named by line" quick --transport shm
check "and left alone" test "$(wc -c <"$table")" = 28
elsewhere() { GANNET_TUNING=$scratch/mine quick --transport shm && [[ -s $scratch/mine ]]; }
check "GANNET_TUNING names the file" elsewhere
expect 1 "cannot" "an output that cannot be is an error" quick --transport shm --out /proc/none/t.jsonl
finish
