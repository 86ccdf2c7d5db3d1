#!/bin/bash
# bench/peers/run: whatever peers this machine has, results are checked, ratios printed, absent ones named.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
peers=$GN_SOURCE/bench/peers/run

expect 0 "^## Shared memory, 2 ranks, in place" "one quick round" \
	timeout -k 5 300 "$peers" --shm --quick --rounds 1 --gannet "$gannet" --out "$scratch/out"
expect 0 "Every result was checked" "results were checked" cat "$scratch/out/report.md"
rows() {
	perl -MJSON::PP -e 'while (<>) { my $r = decode_json($_); $n{"$r->{setting} $r->{program}"}++; $w += $r->{in_place}{wrong} }
		for (map { ("shm-2 $_", "shm-4 $_") } qw(gannet foreign floor)) { die "$_: ", $n{$_} // 0, " rows\n" unless ($n{$_} // 0) == 8 }
		die "wrong" if $w' "$scratch/out/rows.jsonl"
}
check "each program gave a row a size" rows
expect 0 "^<svg" "a plot" head -n 1 "$scratch/out/report.svg"
# what Gannet said, for whoever needs no more of it than that
cat >"$scratch/said" <<END
#!/bin/sh
sed -n 's/^{"setting": "shm-2", "program": "gannet",.*"apart_ns": [^]]*], /{/p' "$scratch/kept"
END
chmod +x "$scratch/said" && cp "$scratch/out/rows.jsonl" "$scratch/kept"
# Where processors were moved meanwhile in all runs of Gannet, nothing of them counts.
mkdir "$scratch/moved"
sed '/"program": "gannet"/s/"apart_ns": [[][^]]*]/"apart_ns": [10, 100000]/' "$scratch/kept" >"$scratch/moved/rows.jsonl"
expect 0 "moved meanwhile and do not count" "runs whose processors were moved" "$GN_SOURCE/bench/peers/report" "$scratch/moved"
# a peer that lies: one wrong element in the rows is a failure
sed 's/"wrong": 0/"wrong": 1/' "$scratch/out/rows.jsonl" >"$scratch/rows" && mv "$scratch/rows" "$scratch/out/rows.jsonl"
expect 1 "WRONG RESULTS" "wrong results are a failure" "$GN_SOURCE/bench/peers/report" "$scratch/out"
mkdir "$scratch/bin"
for tool in bash perl gcc awk sed grep tail cut dirname basename realpath mkdir nproc timeout date mktemp as ld rm sort head cat tr; do
	ln -s "$(command -v $tool)" "$scratch/bin/" 2>/dev/null
done
expect 0 "mpich is left out: no mpicc.mpich; apt-get install mpich libmpich-dev" "an absent peer is named with its package" \
	env PATH="$scratch/bin" timeout -k 5 300 "$peers" --shm --quick --rounds 1 --gannet "$scratch/said" --out "$scratch/out2"
expect 1 "no .*/nothing" "no Gannet to compare" "$peers" --gannet "$scratch/nothing"
expect 2 "Usage" "an unknown option" "$peers" --sure
finish
