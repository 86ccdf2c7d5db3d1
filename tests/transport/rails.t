#!/bin/bash
# Two links a node, each shaped: the bytes go over both by half, and a link that is cut ends the job. How much faster that is on
# a machine with nothing else to do is shown, and not asked for.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "two nodes with two links come up" vc up --nodes 2 --rails 2 --rate 200mbit --cpus-per-node 2
id=$(printf '%s' "$cluster/vc" | md5sum | cut -c1-6)
first=gnv$id-2 second=gnv$id-2-1

ranks=4
step() { on srun -N2 -n$ranks --mpi=pmix "$@"; }
every_way() {
	step "$@" "$GN_BUILD/tests/transport/coll_probe" tcp >"$cluster/out" 2>"$cluster/err" || { cat "$cluster/out" "$cluster/err"; return 1; }
	[[ $(grep -c "of 4 on 2 nodes: 0 wrong" "$cluster/out") == 4 ]] && grep -q "using eth0 at .*, eth1 at " "$cluster/err"
}
check "each collective by each algorithm is right; the line at start names both" every_way
check "the same encrypted" every_way env GN_ENCRYPT_NETWORK=1

# What node n2 has sent by a link.
sent() { ip -s -j link show dev "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["stats64"]["rx"]["bytes"])'; }
bench() { # FILE MODE ARG...: one row of JSON; the bytes over each link in one and two
	one=$(sent "$first") two=$(sent "$second")
	step "$gannet" bench "$2" --transport tcp --json --warmup 1 --iters 2 "${@:3}" >"$cluster/$1" 2>"$cluster/err" || { cat "$cluster/err"; return 1; }
	one=$(($(sent "$first") - one)) two=$(($(sent "$second") - two))
	cat "$cluster/$1"
	echo "$one and $two bytes"
}
value() { # FILE FIELD[.FIELD]
	perl -MJSON::PP -e 'my $v = decode_json(<STDIN>); $v = $v->{$_} for split /\./, shift; print $v' "$2" <"$cluster/$1"
}
at_least() { perl -e 'exit !($ARGV[0] >= $ARGV[1] * $ARGV[2])' "$@"; }
both() {
	bench both allreduce --min-bytes 8M --max-bytes 8M --place in && [[ $(value both rails) == 2 ]] &&
		at_least "$one" 0.8 "$two" && at_least "$two" 0.8 "$one" && ((one + two > 3 * 8 << 20))
}
check "allreduce of 8 MiB: half of the bytes by each link" both
alone() {
	bench alone allreduce --min-bytes 8M --max-bytes 8M --place in --rails 1 && [[ $(value alone rails) == 1 ]] && ((two < 100000)) || return 1
	echo "# bus bandwidth: $(value both in_place.busbw_gb_per_s) GB/s by both links, $(value alone in_place.busbw_gb_per_s) by one"
}
check "--rails 1: all of them by the first" alone
printf '%s\n' "$tap_output" | grep '^#'
message() {
	bench message p2p --min-bytes 4M --max-bytes 4M --factor 2 || return 1
	head -n 1 "$cluster/message" >"$cluster/one-way"
	[[ $(value one-way rails) == 2 ]] && at_least "$one" 0.8 "$two" && at_least "$two" 0.8 "$one"
}
check "one message of 4 MiB is divided, too" message
# The bench measures the links with larger ones, so their counters say nothing here.
small() { # RANKS RAILS
	local ranks=$1
	bench small allreduce --min-bytes 1K --max-bytes 1K && [[ $(value small rails) == "$2" ]]
}
check "small messages of a node's two ranks go by both links, as the row says" small 4 2
check "and those of one by the first" small 2 1
named() { UCX_NET_DEVICES=eth1 bench named allreduce --min-bytes 1M --max-bytes 1M && grep -q "using eth1 at" "$cluster/err" && ((one < 1000000)); }
check "UCX_NET_DEVICES goes first" named
# Links that lead nowhere: one0 is n1's alone, eth2 is in one network by its addresses.
dead() { # NODE NAME ADDRESS
	ip -n "gn$id-$1" link add "$2" type veth peer name "${2}p" && ip -n "gn$id-$1" addr add "$3" dev "$2" &&
		ip -n "gn$id-$1" link set "$2" up && ip -n "gn$id-$1" link set "${2}p" up
}
dead n1 one0 10.97.0.1/24 && dead n1 eth2 10.99.0.1/24 && dead n2 eth2 10.99.0.2/24
only() { UCX_NET_DEVICES=$1 step "$gannet" bench allreduce --max-bytes 1K --iters 2; }
expect 1 "rank [23] on n2 failed: UCX_NET_DEVICES=one0 names no network device of n2 that is up; it has .*eth1" \
	"a device that one node alone has is named, with the host that lacks it" only one0
expect 1 "rank [23] on n2 is not reached from n1 by UCX_NET_DEVICES=eth2 \(.*: name devices of one network that connects" \
	"one that leads nowhere is named, with the hosts" only eth2
expect 1 "rank [23] on n2 is not reached from n1 by UCX_NET_DEVICES=lo " "so is loopback" only lo
# With several rails the first that cannot be opened leaves the others closed.
# shellcheck disable=SC2016
closed() {
	step sh -c '[ "$PMIX_RANK" != 1 ] || exec unshare --mount sh -c "mount -t tmpfs -o size=1m none /dev/shm && exec \"\$@\"" x "$@"; exec "$@"' x \
		"$gannet" bench allreduce --max-bytes 1K --iters 2
}
expect 1 "rank 1 on n[12]: UCX needs 4.4 MB of /dev/shm for each rank" "a rank whose rails cannot be opened says so" closed
# shellcheck disable=SC2016
given() { # DEVICES COMMAND...
	[[ $(step "${@:2}" "$gannet" exec --as mpi sh -c 'echo "has $UCX_NET_DEVICES"' 2>/dev/null | grep '^has' | sort -u) == "has $1" ]]
}
check "gannet exec gives programs the devices that a message has passed, and no other" given eth0,eth1 env -u UCX_NET_DEVICES
check "and none where UCX cannot be opened" given "" env -u UCX_NET_DEVICES UCX_TLS=rc
for node in n1 n2; do ip -n "gn$id-$node" link del eth2; done
ip -n "gn$id-n1" link del one0
check "one that is set stays" given eth0 env UCX_NET_DEVICES=eth0
limited() { GANNET_RAILS=1 bench limited allreduce --min-bytes 1M --max-bytes 1M && [[ $(value limited rails) == 1 ]] && ((two < 100000)); }
check "GANNET_RAILS limits them" limited
expect 2 "GANNET_RAILS='many' is not a number" "GANNET_RAILS that is no number" env GANNET_RAILS=many \
	"$GN_SOURCE/slurm/vcluster" run --dir "$cluster/vc" -- srun -N2 -n2 --mpi=pmix "$gannet" bench allreduce --max-bytes 1K

table=$cluster/vc/shared/tuning.jsonl
expect 0 "between: tcp/eth0 \(" "gannet tune --rails 1 measures the first alone" \
	step "$gannet" tune --rails 1 --transport tcp --seconds 0.005 --max-bytes 64K --out none
# 80 Mbit/s, when the second link has 40 and the first 200: parts of a message are as long by each. Of the first alone it would be 400.
rate_of_links() { for link in "gnv$id-1-1" "$second"; do tc qdisc change dev "$link" root tbf rate "$1" burst 256kb latency 50ms || return 1; done; }
uneven() {
	rate_of_links 40mbit && step "$gannet" tune --transport tcp --seconds 0.05 --max-bytes 1M --pairs 1 --json --out none >"$cluster/uneven" || return 1
	rate_of_links 200mbit
	echo "link: $(value uneven link.bytes_per_s) bytes/s"
	at_least "$(value uneven link.bytes_per_s)" 1e6 7 && at_least 1e6 "$(value uneven link.bytes_per_s)" "$(perl -e 'print 1 / 13')"
}
check "gannet tune measures links that differ together" uneven
tried() {
	step "$gannet" tune --transport tcp --seconds 0.005 --max-bytes 4K --out "$table" && rewritten double-tree 4096 && shown double-tree
}
# The table now says that another algorithm is the fastest for 4096 bytes: runs take it.
rewritten() { sed -i -E "s/(\"bytes\": ?$2[.0e+]*, ?\"algorithm\": ?\")[a-z-]+/\1$1/" "$table" && grep -q "$1" "$table"; }
shown() {
	bench picked allreduce --tuning "$table" --min-bytes 4K --max-bytes 4K --place in && [[ $(value picked algo) == "$1" ]] &&
		bench large allreduce --tuning "$table" --min-bytes 64K --max-bytes 64K --place in && [[ $(value large algo) != "$1" ]]
}
check "what gannet tune found by trying is what runs take" tried

# The bridge that Docker puts on each node, with a container's link: it is as fast as memory and leads nowhere.
docker() {
	for node in 1 2; do
		ip -n "gn$id-n$node" link add docker0 type bridge &&
			ip -n "gn$id-n$node" link add container type veth peer name inside &&
			ip -n "gn$id-n$node" link set container master docker0 && ip -n "gn$id-n$node" addr add 172.17.0.1/16 dev docker0 || return 1
		for link in docker0 container inside; do ip -n "gn$id-n$node" link set "$link" up || return 1; done
	done
	ip -n "gn$id-n1" link set eth1 down || return 1
	bench docker allreduce --min-bytes 1M --max-bytes 1M && grep -q "using eth0 at" "$cluster/err" && ip -n "gn$id-n1" link set eth1 up
}
check "a bridge of containers is not taken for the network" docker

# Once the limit has been measured by both links, messages go by the first alone: it carries 20 KB while the second does not 2.
by_the_first_alone() {
	local one two
	one=$(sent "$first") two=$(sent "$second")
	((two > start + (1 << 20))) || return 1
	until_true sent_more "$first" $((one + 20000)) && ! sent_more "$second" $((two + 2000))
}
sent_more() { (($(sent "$1") > $2)); }
# cut_when CONDITION VARIABLE=VALUE ARG...: a bench whose second link is cut once CONDITION holds says what is wrong, and ends. The
# limits that are not the variable's are 600 s, longer than anybody waits here. TCP keepalive goes by that of heartbeats.
cut_when() {
	local pid
	start=$(sent "$second")
	step env GANNET_HEARTBEAT_TIMEOUT=600 GANNET_STALL_TIMEOUT=600 "$2" "$gannet" bench allreduce --transport tcp "${@:3}" >"$cluster/out" 2>"$cluster/err" &
	pid=$!
	until_true "$1" || { cat "$cluster/err"; kill $pid; return 1; }
	ip link set "$second" down
	until_true grep -qE "is lost|has stalled" "$cluster/err" || { cat "$cluster/err"; kill $pid; return 1; }
	wait $pid
	cat "$cluster/err"
	grep -q "Exited with exit code 4" "$cluster/err"
}
cut_idle() {
	local code ranks=2
	cut_when by_the_first_alone GANNET_HEARTBEAT_TIMEOUT=5 --min-bytes 1K --max-bytes 1K --iters 1000000 --place in
	code=$?
	ip link set "$second" up
	((code == 0)) &&
		[[ $(grep -cE "^gannet bench: .*rank [0-3] on n[12] is lost: the connection to it by eth1 broke" "$cluster/err") -ge 1 ]]
}
check "a link cut that nothing goes by just now: the job ends and names it" cut_idle

# What node n1 sends by its second link leaves for a machine that is not there: of the pair, no connection comes about.
astray() {
	local address
	address=$(ip -n "gn$id-n2" -4 -j addr show dev eth1 | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["addr_info"][0]["local"])') &&
		ip -n "gn$id-n1" neigh replace "$address" lladdr "$1" dev eth1 nud permanent
}
unreached() {
	local code real
	real=$(ip -n "gn$id-n2" -j link show dev eth1 | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["address"])')
	astray 02:00:00:00:00:99 || return 1
	bench unreached allreduce --min-bytes 1M --max-bytes 1M --place in
	code=$?
	astray "$real"
	cat "$cluster/err"
	((code == 0)) && [[ $(value unreached rails) == 1 ]] && [[ $(value unreached in_place.wrong) == 0 ]] && ((two < 100000)) &&
		grep -q "WARN.*rail eth1 does not connect n2 to the other nodes and is not used between them" \
			"$cluster/err"
}
check "a link that reaches nobody is left out, and named" unreached

flowing() { (($(sent "$second") > start + (16 << 20))); }
cut_one() {
	cut_when flowing GANNET_STALL_TIMEOUT=5 --min-bytes 4M --max-bytes 4M --iters 100000 &&
		[[ $(grep -cE "^gannet bench: .*(for rank [0-3]|rank [0-3] on n[12] is lost: .*) by eth1" "$cluster/err") == 4 ]]
}
check "one link cut on one node: the job ends and names peer and link" cut_one
finish
