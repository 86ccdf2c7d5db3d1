# shellcheck shell=bash disable=SC2154,SC2034,SC2016 # what elastic.sh and the test that sources it have
# Nodes without Slurm for tests of train --elastic: one network, process, IPC and host-name namespace each, and links that can be cut. Source it after
# elastic.sh; needs root.
PATH=$PATH:/usr/sbin:/sbin
lab=gnl$$

nodes_usable() { ((UID == 0)) && ip netns add "$lab-try" 2>/dev/null && ip netns del "$lab-try"; }
# The bridges lie in a namespace of their own: of this machine's network nothing changes, and its addresses do not matter.
nodes_begin() { # COUNT
	local i
	trap 'kill $(jobs -p) 2>/dev/null; nodes_end; rm -rf "$scratch"' EXIT
	ip netns add "$lab-hub" || return 1
	for i in whole apart; do ip -n "$lab-hub" link add $i type bridge && ip -n "$lab-hub" link set $i up || return 1; done
	for ((i = 1; i <= $1; i++)); do
		ip netns add "$lab-$i" && ip -n "$lab-hub" link add "l$i" type veth peer name eth0 netns "$lab-$i" &&
			ip -n "$lab-hub" link set "l$i" master whole up && ip -n "$lab-$i" addr add "10.84.0.$i/24" dev eth0 &&
			ip -n "$lab-$i" link set eth0 up && ip -n "$lab-$i" link set lo up || return 1
	done
}
nodes_end() {
	local ns
	for ns in $(ip netns list 2>/dev/null | awk -v lab="$lab-" 'index($1, lab) == 1 { print $1 }'); do
		ip netns pids "$ns" | xargs -r kill -KILL 2>/dev/null
		ip netns del "$ns"
	done
}
# What nodes that are cut off send to the others is lost without a word, and the reverse; they reach each other.
cut_off() { local i; for i in "$@"; do ip -n "$lab-hub" link set "l$i" master apart; done; } # NODE...
heal() { local i; for i in "$@"; do ip -n "$lab-hub" link set "l$i" master whole; done; } # NODE...
node_of() { echo $(($1 * nodes / $2 + 1)); } # RANK RANKS

# on_node NAME RANK RANKS OPTION...: a rank of a run on its node. Leaves its process in NAME.RANK.pid, and its code in NAME.RANK.code
on_node() {
	local outer node shell
	node=$(node_of "$2" "$3")
	RANK=$2 WORLD_SIZE=$3 MASTER_ADDR=10.84.0.1 MASTER_PORT=$port timeout -k 5 300 nsenter --net="/run/netns/$lab-$node" unshare --uts --ipc --pid \
		--mount --fork --kill-child --mount-proc sh -c 'run=$1; hostname "$0"; shift; "$@"; echo $? >"$run.code"' "l$node" "$scratch/$1.$2" \
		"$gannet" "${train[@]}" "${pipes[@]}" --log "$scratch/$1.jsonl" "${@:4}" &
	outer=$!
	# below timeout and unshare, which nsenter becomes
	until shell=$(pgrep -P "$(pgrep -P $outer)") && pgrep -x -P "$shell" gannet >"$scratch/$1.$2.new"; do
		kill -0 $outer || break
		sleep 0.01
	done 2>/dev/null
	mv "$scratch/$1.$2.new" "$scratch/$1.$2.pid"
	wait $outer
	[[ -s $scratch/$1.$2.code ]] || echo 124 >"$scratch/$1.$2.code"
}
# As begin of elastic.sh; $launcher ends with 124 when a rank had to be ended.
begin_on_nodes() { # NAME RANKS LINES OPTION...
	port=$((10000 + RANDOM % 10000))
	(
		for ((r = 0; r < $2; r++)); do on_node "$1" $r "$2" "${@:4}" & done
		wait
		! grep -qx 124 "$scratch/$1".*.code || exit 124
	) 2>"$scratch/$1.err" &
	launcher=$!
	await_line "$3" '"event": "step"' "$scratch/$1.jsonl"
}
