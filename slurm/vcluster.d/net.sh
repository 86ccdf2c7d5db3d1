# shellcheck shell=bash disable=SC2154 # dir, nodes, id and the rest are set in slurm/vcluster
# Namespaces, bridge and links. Every name holds the cluster's id, made from --dir, so that down finds them without a record.

namespaces() { ip netns list | awk -v p="^gn$id-" '$1 ~ p { print $1 }'; }

# Sets net (the first three numbers of the addresses) and port (the first of the cluster's).
pick_net() {
	local start=$((16#${id:0:2})) i third routes listening
	routes=$(ip -4 -o addr; ip -4 route)
	listening=$(ss -Hltn)
	for ((i = 0; i < 250; i++)); do
		third=$(((start + i) % 250 + 1))
		net=10.83.$third
		port=$((20000 + third * 4))
		[[ $routes == *" $net."* || $listening == *":$port "* || $listening == *":$((port + 1)) "* ]] || return 0
	done
	die 1 "no free network among 10.83.1.0/24 to 10.83.250.0/24"
}

limit_rate() { # DEVICE [COMMAND-PREFIX...]
	local device=$1
	shift
	[[ $rate == none ]] || "$@" tc qdisc add dev "$device" root tbf rate "$rate" burst 256kb latency 50ms
}

net_up() {
	local i ns
	exec 7>/run/lock/gannet-vcluster.lock
	flock -w 60 7 || die 1 "another vcluster holds /run/lock/gannet-vcluster.lock for a minute now"
	pick_net
	ip link add "gnb$id" type bridge
	ip addr add "$net.254/24" dev "gnb$id"
	ip link set "gnb$id" up
	exec 7>&-
	for ((i = 1; i <= nodes; i++)); do
		ns=gn$id-n$i
		ip netns add "$ns"
		ip link add "gnv$id-$i" type veth peer name eth0 netns "$ns"
		ip link set "gnv$id-$i" master "gnb$id" up
		ip -n "$ns" link set lo up
		ip -n "$ns" addr add "$net.$i/24" dev eth0
		ip -n "$ns" link set eth0 up
		limit_rate "gnv$id-$i"
		limit_rate eth0 ip netns exec "$ns"
	done
	echo "net $net" >>"$dir/vcluster.state"
}

# Ends every process in the cluster's namespaces, then removes them with their links.
net_down() {
	local ns link
	for ns in $(namespaces); do
		kill_pids "$(ip netns pids "$ns" | tr '\n' ' ')"
		ip netns del "$ns"
	done
	for link in $(ip -o link | awk -F'[ :@]+' -v p="^gn[bv]$id" '$2 ~ p { print $2 }'); do
		ip link del "$link" 2>/dev/null || true # the namespace's end may have taken it along
	done
}
