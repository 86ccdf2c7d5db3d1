#!/bin/bash
# What ranks are told at start about processors and network devices that are far apart: two nodes (of one machine, by their names),
# whose description puts the network on the second NUMA node.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"

# all of them: which one carries messages is for the fabric to find
devices=$(ip -4 -o addr show up scope global 2>/dev/null | awk '{ print $2 }' | sort -u)
address=$(ip -4 -o addr show up scope global 2>/dev/null | awk 'NR == 1 { sub("/.*", "", $4); print $4 }')
if [[ ! $devices ]] || ! unshare --uts true 2>/dev/null || ! taskset -c 1 true 2>/dev/null; then
	skip "what is far apart" "needs root for host names, two processors and a network device"
	finish
	exit
fi

numa() { # NUMBER MASK: a package with one processor, its bridge left open
	local sets="cpuset='$2' complete_cpuset='$2' nodeset='$2' complete_nodeset='$2'"
	echo "<object type='Package' os_index='$1' $sets gp_index='1$1'>
	<object type='NUMANode' os_index='$1' $sets gp_index='2$1'/><object type='PU' os_index='$1' $sets gp_index='3$1'/>
	<object type='Bridge' gp_index='4$1' bridge_type='0-1' depth='0' bridge_pci='000$1:[00-0f]'>"
}
{
	echo "<topology version='2.0'><object type='Machine' os_index='0' cpuset='0x3' complete_cpuset='0x3' allowed_cpuset='0x3' nodeset='0x3'
	complete_nodeset='0x3' allowed_nodeset='0x3' gp_index='1'>"
	numa 0 0x1
	echo '</object></object>'
	numa 1 0x2
	echo "<object type='PCIDev' gp_index='60' pci_busid='0001:02:00.0' pci_type='0200 [15b3:1017] [0000:0000] 00' pci_link_speed='1'>"
	i=61
	for device in $devices; do echo "<object type='OSDev' gp_index='$((i++))' name='$device' osdev_type='2'/>"; done
	echo '</object></object></object></object></topology>'
} >"$scratch/machine.xml"

# nodes CPU...: for each processor a rank on each of two nodes
nodes() {
	local r n=$# port failed=0 pids=()
	port=$(free_port)
	for ((r = 2 * n - 1; r >= 0; r--)); do
		local cpus=("$@")
		HWLOC_XMLFILE=$scratch/machine.xml RANK=$r LOCAL_RANK=$((r % n)) WORLD_SIZE=$((2 * n)) MASTER_ADDR=$address \
			MASTER_PORT=$port timeout -k 5 300 unshare --uts sh -c 'hostname "$0"; exec "$@"' "n$((r / n + 1))" \
			taskset -c "${cpus[r % n]}" "$gannet" bench allreduce --max-bytes 8 --iters 5 >"$scratch/out.$r" 2>"$scratch/err.$r" &
		pids+=($!)
	done
	for r in "${pids[@]}"; do wait "$r" || failed=1; done
	cat "$scratch"/err.*
	return $failed
}
far() {
	nodes 0 1 || return 1
	grep -q "WARN .*rank 0 on n1: its processors 0 (NUMA node 0) are on another NUMA node .* (NUMA node 1): start it on processors 1" \
		"$scratch/err.0" && grep -q 'and the same on 1 other node$' "$scratch/err.0" && [[ $(cat "$scratch"/err.* | grep -c "WARN .*NUMA") == 1 ]]
}
near() {
	nodes 1 || return 1
	! cat "$scratch"/err.* | grep "WARN .*NUMA" &&
		grep -q "rank 0 on n1: processors 1 (NUMA node 1), uses .* (NUMA node 1), nearest network device .* (same NUMA node)" \
			"$scratch/err.0"
}
both() {
	nodes 0,1 || return 1
	! cat "$scratch"/err.* | grep "WARN .*NUMA" && grep -q 'processors 0-1 (several NUMA nodes)' "$scratch/err.0"
}
check "a rank on the other NUMA node than its network device is warned of, once for nodes that are alike" far
check "one on the same is not" near
check "nor one that may run on both" both
finish
