#!/bin/bash
# gannet stage over several nodes: one reading of the source in all, also when nodes die.
set -u
tree_mb=24 tree_files=100
# shellcheck source=tests/data/tree.sh
. "$GN_SOURCE/tests/data/tree.sh"
# Each rank is a node with a name of its own. What it read is in /proc until it is waited for.
cat >node <<'END'
use strict; my ($gannet, @arg) = @ARGV; my $rank = $ENV{PMIX_RANK};
system('hostname', "node$rank") == 0 or die;
my $pid = fork // die;
my @dies = grep { /^\Q$rank\E:/ } split ' ', $ENV{DIES} // '';    # RANK:CALLS: it is killed there
my @before = @dies ? ($ENV{KILLER}, "$ENV{WORK}/$ENV{TO}/n$rank.gannet-part", $dies[0] =~ /:(.*)/) : ();
if (!$pid) { exec @before, $gannet, 'stage', '--json', '--to', "$ENV{TO}/n$rank", @arg or die }
open my $f, '>', "pid.$rank.tmp" or die; print $f $pid; close $f; rename "pid.$rank.tmp", "pid.$rank";
syscall 247, 1, $pid, my $info = "\0" x 128, 0x01000004, 0;    # waitid(P_PID, WEXITED | WNOWAIT)
if (open my $io, '<', "/proc/$pid/io") {
	my ($read) = join('', <$io>) =~ /rchar: (\d+)/;
	open my $o, '>', "rchar.$rank"; print $o $read // '';
}
waitpid $pid, 0;
exit($? & 127 ? 9 : $? >> 8);
END
dies='' # RANK:CALLS...: that rank is killed right before its call of that number which changes its copy
nodes() { # TO RANKS ARG...
	rm -f rchar.* pid.*
	DIES=$dies KILLER=$GN_BUILD/tests/train/kill_at_call WORK=$work TO=$1 timeout -k 5 300 "$gannet" launch -n "$2" --keep-going -- unshare --uts perl node "$gannet" --from src "${@:3}"
}
all_alike() { # TO RANK...
	local n
	for n in "${@:2}"; do alike "$1/n$n" || return 1; done
}
# What the ranks read without the source: libraries, /proc.
read_once() { # DATA-BYTES: at most 5 % and 2 MB a rank of libraries above that
	local sum=0 r
	for r in rchar.*; do sum=$((sum + $(cat "$r"))); done
	echo "read $sum of $1"
	[ "$sum" -ge "$1" ] && [ "$sum" -le $(($1 * 105 / 100 + 4 * 2000000)) ]
}
if [ "$(id -u)" -eq 0 ] && unshare --uts true 2>/dev/null && [ "$(uname -m)" = x86_64 ]; then
	bytes=$(stage src size/to | sed 's/.*"data_bytes": \([0-9]*\).*/\1/')
	expect 0 "\"nodes\": 4, \"failed_nodes\": 0,.*\"source_bytes\": $bytes, \"written_bytes\": $((4 * bytes))," \
		'four nodes read the source once' nodes four 4
	check 'in all, as the kernel counts' read_once "$bytes"
	check 'and have four right copies' all_alike four 0 1 2 3
	rm -rf four/n2 four/n2.*
	expect 0 "\"source_bytes\": 0, \"written_bytes\": $bytes," 'a node without a copy gets it from the others' nodes four 4
	check 'rightly' all_alike four 0 1 2 3

	lose() { # a leader that is killed with its part of the source in hand
		dies=2:100 nodes lost 4 --threads 1 >lost.out 2>lost.err
		cat lost.out lost.err
		grep -q '"nodes": 4, "failed_nodes": 1,' lost.out && grep -q 'node2: not staged: its leader was lost' lost.err
	}
	check 'a node that is killed is named' lose
	check 'the others are complete' all_alike lost 0 1 3
	check 'and it has no copy' test ! -e lost/n2
	expect 0 '"failed_nodes": 0,.*"source_bytes": 0,' 'it gets its copy in the next run' nodes lost 4
	check 'rightly' all_alike lost 2

	kill_all() {
		dies='0:130 1:130 2:130 3:130' nodes dead 4 --threads 1 >/dev/null 2>&1
		! ls -d dead/n[0-3] 2>/dev/null && [ -s dead/n1.gannet-part/journal ]
	}
	check 'all nodes killed' kill_all
	expect 0 '"failed_nodes": 0,.*"kept_bytes": [1-9]' 'go on' nodes dead 4
	check 'rightly' all_alike dead 0 1 2 3
	check 'and tidily' test -z "$(ls -d dead/*part 2>/dev/null)"

	mkdir -p deny && echo x >deny/n1
	expect 1 '"failed_nodes": 1,' 'a node that has other files there fails alone' nodes deny 4
	check 'and keeps them' test "$(cat deny/n1)" = x
	check 'the others have copies' all_alike deny 0 2 3
	rm -f src/big
	ln -s nothing source
	expect 3 'No such file' 'no source ends all nodes' nodes none 4 --from source
else
	skip 'several nodes' 'host names of their own need root'
fi
finish
