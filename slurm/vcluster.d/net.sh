# shellcheck shell=bash disable=SC2154 # dir, nodes, id and the rest are set in slurm/vcluster
# Namespaces, bridges and links. Every name holds the cluster's id, made from --dir, so that down finds them without a record.

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
		[[ $routes == *" $net."* || $listening == *":$port "* || $listening == *":$((port + 1)) "* || $listening == *":$((port + 2)) "* ]] || return 0
	done
	die 1 "no free network among 10.83.1.0/24 to 10.83.250.0/24"
}

limit_rate() { # RATE DEVICE [COMMAND-PREFIX...]
	local rate=$1 device=$2
	shift 2
	[[ $rate == none ]] || "$@" tc qdisc add dev "$device" root tbf rate "$rate" burst 256kb latency 50ms
}

# A node's link to the bridge of a rail. Only the first rail's bridge has an address: Slurm uses that network, and the others
# disturb nobody's.
link_up() { # NODE RAIL BRIDGE NETWORK
	local ns=gn$id-n$1 device=eth$2 outside=gnv$id-$1 word its_rate=$rate
	(($2 == 0)) || outside+=-$2
	ip link add "$outside" type veth peer name "$device" netns "$ns"
	ip link set "$outside" master "$3" up
	ip -n "$ns" addr add "$4.$1/24" dev "$device"
	ip -n "$ns" link set "$device" up
	for word in $node_rates; do [[ $word != "n$1="* ]] || its_rate=${word#*=}; done
	limit_rate "$its_rate" "$outside"
	limit_rate "$its_rate" "$device" ip netns exec "$ns"
}

net_up() {
	local i rail bridge
	# Not in /run/lock: others may write there.
	exec 7>/run/gannet-vcluster.lock
	flock -w 60 7 || die 1 "another vcluster holds /run/gannet-vcluster.lock for a minute now"
	pick_net
	ip link add "gnb$id" type bridge
	ip addr add "$net.254/24" dev "gnb$id"
	exec 7>&-
	for ((i = 1; i <= nodes; i++)); do
		ip netns add "gn$id-n$i"
		ip -n "gn$id-n$i" link set lo up
		# The same on every machine, and the one whose streams share a link most evenly: what is measured here is compared with
		# predictions. Where this machine's is BBR, two trees of 8 MiB over 100 Mbit/s take 1.33 s and not 1.18.
		ip netns exec "gn$id-n$i" sh -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control' 2>/dev/null || true
	done
	for ((rail = 0; rail < rails; rail++)); do
		bridge=gnb$id
		if ((rail)); then
			bridge+=-$rail
			ip link add "$bridge" type bridge
		fi
		ip link set "$bridge" up
		for ((i = 1; i <= nodes; i++)); do link_up "$i" "$rail" "$bridge" "10.$((83 + rail)).${net##*.}"; done
	done
	echo "net $net" >>"$dir/vcluster.state"
}

# All rails of a node: its processes go on, and their packets are lost without a word.
link() {
	local verb=${command[0]:-} name=${command[1]:-} outside
	need_root
	[[ $verb =~ ^(on|off)$ && $name =~ ^n[1-8]$ && ${#command[@]} == 2 ]] || die 2 "link on NODE or link off NODE; see slurm/vcluster --help"
	daemons_alive || die 1 "down ($dir)"
	ip netns list | grep "^gn$id-$name\b" >/dev/null || die 2 "there is no node $name"
	for outside in $(ip -o link | awk -F'[ :@]+' -v p="^gnv$id-${name#n}(-|\$)" '$2 ~ p { print $2 }'); do
		ip link set "$outside" "$([[ $verb == on ]] && echo up || echo down)"
	done
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
