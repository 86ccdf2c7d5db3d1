#!/bin/bash
# train --elastic under srun, on four nodes whose links are cut: those that reach each other and are more than half go on
# after the limit of silence, or half of them by the checkpoint folder; the others end with code 4. A link that is mended in time costs no rank.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
silence=6
check "the digits are packed" cluster_digits
check "four nodes come up" vc up --nodes 4 --cpus-per-node 2

id=$(printf '%s' "$cluster/vc" | md5sum | cut -c 1-6) # in the names of links

begin() { # NAME TASKS_PER_NODE OPTION...
	# shellcheck disable=SC2016
	on srun -N4 --ntasks-per-node="$2" --mpi=pmix --no-kill --kill-on-bad-exit=0 --wait=0 --disable-status sh -c \
		'code=$1.$SLURM_PROCID.code; shift; "$@"; echo $? >"$code"' sh "$cluster/$1" "$gannet" train \
		--data "$cluster/train" --model lenet --steps 100000 --batch 4 --lr 0.01 --threads 1 --loader-threads 1 --log-every 5 --elastic 1 \
		--heartbeat-timeout $silence --log "$cluster/$1.jsonl" --checkpoint "$cluster/$1" "${@:3}" >"$cluster/$1.out" 2>&1 &
	run=$!
	until_true reached "$cluster/$1.jsonl" 50
}
worlds() { [ "$(field "$cluster/$1.jsonl" resume world | tail -n 1)" = "$2" ]; } # NAME WORLD
codes() { cat "$cluster/$1".[0-9].code | tr '\n' ' '; }
finish_run() { stop_ranks "$cluster/$1.jsonl" && wait "$run"; } # NAME
recovered() { until_true grep -q '"event": "recovered"' "$cluster/$1.jsonl"; } # NAME
ended() { until_true test -s "$cluster/$1.$2.code"; } # NAME RANK
# What TCP of all nodes has sent again: where links are cut, it tells that something was lost.
resent() {
	local i
	for i in 1 2 3 4; do nsenter --net="/run/netns/gn$id-n$i" awk '/^Tcp: [0-9]/ { print $13 }' /proc/net/snmp; done | awk '{ n += $1 } END { print n }'
}
more_resent() { (($(resent) > $1)); } # THAN

begin one 2
check "eight ranks train on four nodes" test $? = 0
vc link off n1
check "the node of ranks 0 and 1 is cut off, and the others go on" recovered one
check "six of them" test "$(field "$cluster/one.jsonl" resume ranks)" = 6
check "the ranks of that node" ended one 0
check "both of them" ended one 1
vc link on n1
finish_run one
check "end with code 4, the others are stopped" test "$(codes one)" = '4 4 5 5 5 5 5 5 '
check "in one world" test "$(grep -c '"event": "resume"' "$cluster/one.jsonl")" = 1

begin last 1
check "four ranks train" test $? = 0
vc link off n3
check "a node that does not coordinate is cut off, and the others go on" recovered last
vc link on n3
check "its rank is told that it is out when the link is there again" ended last 2
finish_run last
check "and ends with code 4" test "$(codes last)" = '5 5 4 5 '

begin short 1 --heartbeat-timeout 1000
check "four ranks train" test $? = 0
was=$(resent)
vc link off n1
check "links are cut, and what is sent is lost" until_true more_resent "$was"
vc link on n1
check "when they are mended before the limit, the steps go on" until_true reached "$cluster/short.jsonl" $(($(last_step "$cluster/short.jsonl") + 50))
finish_run short
check "without a loss" test "$(codes short) $(grep -c '"event": "resume"' "$cluster/short.jsonl")" = '5 5 5 5  0'

# nodes 1 and 2 reach each other, and 3 and 4
ip link add "gnb$id-2" type bridge && ip link set "gnb$id-2" up
begin half 1
check "four ranks train" test $? = 0
for i in 3 4; do ip link set "gnv$id-$i" master "gnb$id-2"; done
check "two halves are cut off from each other, and one goes on" recovered half
check "with two ranks" test "$(field "$cluster/half.jsonl" resume ranks)" = 2
halves_end() { [[ $(cat "$cluster"/half.[0-9].code 2>/dev/null | tr '\n' ' ') == '4 4 ' ]]; }
check "the two others end with code 4" until_true halves_end
for i in 3 4; do ip link set "gnv$id-$i" master "gnb$id"; done
finish_run half
check "one world went on" test "$(codes half | xargs -n 1 | sort | xargs) $(grep -c '"event": "resume"' "$cluster/half.jsonl")" = '4 4 5 5 1'
check "the last checkpoint is there" "$gannet" info "$cluster/half"
finish
