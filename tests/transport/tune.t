#!/bin/bash
# gannet tune: measures, writes a table that reads back, keeps other fabrics' lines, leaves what is no table alone.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
table=$scratch/config/gannet/tuning.jsonl
quick() { launch 2 env XDG_CONFIG_HOME="$scratch/config" "$gannet" tune --seconds 0.005 --max-bytes 64K "$@"; }
unset GANNET_TUNING

expect 2 "a single rank" "one rank has nothing to measure" "$gannet" tune
expect 0 "rendezvous above [0-9]+ bytes" "shared memory is measured" quick --transport shm
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
# A shaped link's burst is used up before each timing: so many bytes more are sent, the same number of times.
burst() {
	local none some
	none=$(launch 2 "$GN_BUILD/tests/transport/trial_probe" 0) && some=$(launch 2 "$GN_BUILD/tests/transport/trial_probe" 1000000) || return 1
	echo "sent without a burst: $none, with one of 1 MB: $some"
	((some > none * 3 / 2))
}
check "a burst is used up before each timing" burst
check "pieces are what was tried" pieces 8 piece_bytes 65536
check "or one" pieces 1 piece_bytes 1099511627776
check "older tables leave that to the model" pieces '[0-9]*'
runs() { GANNET_LOG=info launch 2 env XDG_CONFIG_HOME="$1" "$gannet" bench allreduce --max-bytes 64 --iters 1; }
sysv() {
	quick --transport shm --out "$scratch/old/gannet/tuning.jsonl" && sed -i 's,within: posix/,within: sysv/,' "$scratch/old/gannet/tuning.jsonl" &&
		grep -q "within: sysv/" "$scratch/old/gannet/tuning.jsonl" && runs "$scratch/old"
}
expect 0 "measured costs from .*/old/gannet" "a table that names sysv, as before, holds for posix" sysv
# used_at NODES: a table of this fabric with another number of nodes, by messages, with something tried
used_at() {
	rm -f "$scratch/nodes" && quick --transport tcp --out "$scratch/nodes" && perl -MJSON::PP -i -pe '$t = decode_json($_); $t->{signature} =~ s/^1 /'"$1"' /;
		$t->{allreduce} = [{bytes => 1024, algorithm => "recursive-doubling", seconds => 1e-3}]; $_ = encode_json($t) . "\n"' \
		"$scratch/nodes" && grep -q "\"$1 nodes of 2" "$scratch/nodes" &&
		GANNET_LOG=info GANNET_TUNING=$scratch/nodes launch 2 "$gannet" bench allreduce --transport tcp --max-bytes 64 --iters 1
}
expect 0 "measured costs from .*/nodes, tuned on 3 nodes, used on 1$" "a table of another number of nodes holds" used_at 3
expect 0 "tuned on 5 nodes, used on 1: the cost model selects" "of so many that what was tried does not, the model chooses" used_at 5
# a link to itself is as unreadable as another user's file, for root, too
mkdir -p "$scratch/theirs/gannet" && ln -s tuning.jsonl "$scratch/theirs/gannet/tuning.jsonl"
expect 0 "WARN .* estimated costs: cannot .*theirs/gannet/tuning.jsonl.*; GANNET_TUNING names" "a default table that cannot be read is a warning" \
	runs "$scratch/theirs"
named() { GANNET_TUNING=$scratch/theirs/gannet/tuning.jsonl runs "$scratch/config"; }
expect 1 "cannot .*tuning.jsonl" "one that was named is an error" named
masked() { umask 027 && rm -f "$table" && quick --transport shm && [[ $(stat -c %a "$table") == 640 ]]; }
check "the umask holds" masked
printf '{"signature": "other"}\n{"sig' >"$table"
expect 3 "tuning.jsonl:2: " "a damaged table is named by line" quick --transport shm
check "and left alone" test "$(wc -c <"$table")" = 28
elsewhere() { GANNET_TUNING=$scratch/mine quick --transport shm && [[ -s $scratch/mine ]]; }
check "GANNET_TUNING names the file" elsewhere
for n in 1 2; do
	expect 3 "cannot open /nowhere" "a named table that is not there ($n ranks)" \
		launch "$n" "$gannet" bench allreduce --tuning /nowhere --max-bytes 1K --iters 1
done
without_rows() { # as the command ends, unless it has measured
	local rc=0
	"$@" >"$scratch/said" 2>&1 || rc=$?
	cat "$scratch/said"
	! grep -q "rendezvous above" "$scratch/said" && return $rc
}
expect 1 "cannot" "an output that cannot be is an error, before anything is measured" without_rows quick --transport shm --out /proc/none/t.jsonl
finish
