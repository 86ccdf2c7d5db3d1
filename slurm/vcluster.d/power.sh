# shellcheck shell=bash disable=SC2154 # dir, nodes, here and the rest are set in slurm/vcluster
# Nodes that slurmctld turns off when they have been idle, and on when a job needs them (--power-save).

# slurm.conf names programs without arguments: these call the example's with this cluster's power switch.
power_conf() {
	local name
	printf '#!/bin/bash\nexec %q power --dir %q "$@"\n' "$here/vcluster" "$dir" >"$dir/conf/power"
	for name in resume suspend; do
		printf '#!/bin/bash\nexport GANNET_POWER=%q SLURM_CONF=%q\nexec %q "$@" >>%q 2>&1\n' "$dir/conf/power" "$dir/conf/slurm.conf" \
			"$here/power/$name" "$dir/log/power.out" >"$dir/conf/power-$name"
	done
	chmod 755 "$dir/conf/power" "$dir/conf/power-resume" "$dir/conf/power-suspend"
	cat >>"$dir/conf/slurm.conf" <<CONF
ResumeProgram=$dir/conf/power-resume
SuspendProgram=$dir/conf/power-suspend
SuspendTime=$power_save
# from the call to when the node has to be gone, or be there
SuspendTimeout=10
ResumeTimeout=60
ResumeRate=0
SuspendRate=0
CONF
}

# The command that a power switch is: a node's processes end as if it lost its power, and start as if it booted.
power() {
	local verb=${command[0]:-} name=${command[1]:-}
	need_root
	[[ $verb =~ ^(on|off)$ && $name =~ ^n[1-8]$ && ${#command[@]} == 2 ]] || die 2 "power on NODE or power off NODE; see slurm/vcluster --help"
	daemons_alive || die 1 "down ($dir)"
	take_lock
	[[ $(state_get shape) == *" power_save="* ]] || die 2 "this cluster is not up with --power-save"
	ip netns list | grep "^gn$id-$name\b" >/dev/null || die 2 "there is no node $name"
	kill_pids "$(recorded_alive "$name" || true)"
	kill_pids "$(ip netns pids "gn$id-$name" | tr '\n' ' ')"
	sed -i "/^$name /d" "$dir/vcluster.state"
	[[ $verb == off ]] || start_node "$name" boot
}
