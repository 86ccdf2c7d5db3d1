#!/bin/bash
# The virtual cluster: comes up, runs steps, keeps nodes apart, comes back after a crash, and leaves nothing.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin

expect 2 "nodes" "0 nodes are refused" vc up --nodes 0
expect 2 "rate" "a rate that tc does not know is refused" vc up --rate fast
expect 2 "rails" "5 rails are refused" vc up --rails 5
expect 2 "dir" "a directory with a space is refused" "$GN_SOURCE/slurm/vcluster" up --dir "/tmp/a b"
expect 2 "what is" "an unknown option is refused" vc up --colour
# From a copy: the source may lie where nobody else can read.
cp -r "$GN_SOURCE/slurm" "$cluster/scripts"
as_nobody() { setpriv --reuid nobody --regid nogroup --clear-groups "$@"; }
nobody() { as_nobody "$cluster/scripts/vcluster" up --dir "$cluster/vc"; }
expect 2 "root" "an ordinary user is told that root is needed" nobody

# What another user has prepared: root must neither take his configuration nor follow his links.
mkdir -m 1777 "$cluster/open"
as_nobody bash -c "cd '$cluster/open' && mkdir -p his/conf his/in && ln -s '$cluster/target' link && ln -s '$cluster/mine' way && chmod 777 his/in &&
	echo Prolog=/bin/false >his/conf/slurm.conf"
mkdir "$cluster/target" "$cluster/mine" "$cluster/mine/all" "$cluster/mine/locked" "$cluster/open/his/in/mine" && chmod 777 "$cluster/mine/all"
echo kept >"$cluster/kept" && ln -s "$cluster/kept" "$cluster/mine/locked/lock"
refused() { # DIR PATTERN NAME
	local verb
	for verb in up down status; do
		expect 1 "$2" "$verb refuses $3" timeout -k 5 300 "$GN_SOURCE/slurm/vcluster" "$verb" --dir "$1"
	done
	expect 1 "$2" "run refuses $3" timeout -k 5 300 "$GN_SOURCE/slurm/vcluster" run --dir "$1" -- true
}
refused "$cluster/open/his" "open/his belongs to user" "a folder of somebody else"
refused "$cluster/open/his/in/mine/" "open/his belongs to user" "one in a folder of somebody else"
refused "$cluster/open/link" "is a link" "a link"
refused "$cluster/open/way/deep" "link .*open/way belongs to user" "a link of somebody else on the way"
refused "$cluster/mine/all" "all can be written by others" "a folder that all may write"
expect 1 "lock is no regular file" "a lock that is a link is not followed" timeout -k 5 300 "$GN_SOURCE/slurm/vcluster" up --dir "$cluster/mine/locked"
check "what it leads to is kept" grep -qx kept "$cluster/kept"
check "nothing was made for somebody else" test ! -e "$cluster/open/his/vcluster.state" -a ! -e "$cluster/mine/deep"
expect 1 "down" "status before up says down" vc status
expect 0 "" "down before up does nothing" vc down

expect 0 "up in" "two nodes come up" vc up --nodes 2 --cpus-per-node 2 --requeue-delay 5
expect 0 "up already" "a second up leaves them as they are" vc up --nodes 2 --cpus-per-node 2 --requeue-delay 5
expect 2 "take it down" "another shape is refused while it is up" vc up --nodes 3
expect 0 "n2 idle" "status shows the nodes" vc status

check "others can pass its folder, and neither list nor write it" test "$(stat -c %a "$cluster/vc")" = 711
hosts() { [[ $(on srun -N2 hostname | sort | tr '\n' ' ') == "n1 n2 " ]]; }
check "srun reaches both nodes" hosts
# From a folder that he can enter.
user() { [[ $(cd / && on setpriv --reuid nobody --regid nogroup --clear-groups srun -N2 id -un | sort -u) == nobody ]]; }
check "so does another user's" user
# sbatch and requeue; what the job does after the delay comes below.
cat >"$cluster/again.sbatch" <<'JOB'
#!/bin/bash
#SBATCH -N2 --open-mode=append
echo "start ${SLURM_RESTART_COUNT:-first}"
if [[ ! ${SLURM_RESTART_COUNT:-} ]]; then scontrol requeue "$SLURM_JOB_ID"; exec sleep infinity; fi
srun -N2 hostname
echo end
JOB
delays() { # JOB: the seconds from when it was queued again to when it may start, as Slurm has them
	on scontrol show job "$1" --oneliner | sed -n 's/.* Restarts=1 .* SubmitTime=\([^ ]*\) EligibleTime=\([^ ]*\) .*/\1 \2/p' | {
		read -r queued eligible && echo $(($(date -d "$eligible" +%s) - $(date -d "$queued" +%s)))
	}
}
delayed() {
	local job
	job=$(on sbatch --parsable --chdir="$cluster" --output="$cluster/again.log" "$cluster/again.sbatch") && until_true delays "$job" &&
		delays "$job" | grep -E '^([5-9]|10)$'
}
check "a requeued batch job is delayed by --requeue-delay, not by Slurm's 120 s" delayed

# shellcheck disable=SC2016 # for the nodes' shells
apart() {
	on srun -N2 sh -c 'hostname >"$GANNET_LOCAL/who" && hostname >"$GANNET_SHARED/$(hostname)" && hostname >/dev/shm/x' &&
		[[ $(on srun -N2 sh -c 'cat "$GANNET_LOCAL/who" /dev/shm/x' | sort | tr '\n' ' ') == "n1 n1 n2 n2 " ]] &&
		[[ $(cat "$cluster"/vc/node/n{1,2}/nvme/who "$cluster"/vc/shared/n{1,2} | tr '\n' ' ') == "n1 n2 n1 n2 " ]]
}
check "each node has its own GANNET_LOCAL and memory, all have one GANNET_SHARED" apart
code() { on srun -N2 sh -c 'exit 5'; }
expect 5 "" "srun passes an exit code on" code
# shellcheck disable=SC2016
pmix() { on srun -N2 --ntasks-per-node=2 --mpi=pmix sh -c 'echo "rank=$PMIX_RANK"' | sort -u | wc -l | grep -qx 4; }
check "srun --mpi=pmix numbers four ranks" pmix
# There may be another cluster on this machine.
id=$(printf '%s' "$cluster/vc" | md5sum | cut -c1-6)
link() { tc -s qdisc show | grep "tbf .* rate 1Gbit" | grep -c "dev gnv$id-" | grep -qx 2; }
check "the links have their rate" link

# shellcheck disable=SC2016 # for the job's shell
array() {
	on sbatch --wait --array=1-3 --output="$cluster/array-%a" --wrap 'echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"' &&
		[[ $(cat "$cluster"/array-[123] | tr '\n' ' ') == "1 of 3 2 of 3 3 of 3 " ]]
}
check "a job array" array

# exec above: a shell whose sleep is ended first would go on to its end.
ended_again() { { until_true grep -qx end "$1" && grep -qx "start [1-9]" "$1"; } || { cat "$1"; return 1; }; }
check "the requeued batch job starts again" ended_again "$cluster/again.log"
expect 0 "start first" "--open-mode=append keeps what the first start said" cat "$cluster/again.log"

crash() {
	kill -KILL "$(awk '$1 == "slurmctld" { print $2 }' "$cluster/vc/vcluster.state")" && on srun -N2 hostname
	! vc status && OMP_NUM_THREADS=1 vc up --nodes 3 --rate none --rails 2 && [[ $(on srun -N3 hostname | sort | tr '\n' ' ') == "n1 n2 n3 " ]]
}
check "after a crash, up clears the remains and comes up in another shape" crash
expect 0 "rails=2" "status tells of the rails" vc status
# nproc answers for OpenMP
processors() { [[ $(on sinfo -h -N -o %c | sort -u) == "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" ]]; }
check "a node has all processors, however many threads OpenMP may use" processors
# shellcheck disable=SC2016
both_rails() {
	[[ $(on srun -w n3 ip -4 -o addr show | grep -cE ' eth[01] .*inet 10\.8[34]\.[0-9]+\.3/24 ') == 2 ]] &&
		on srun -w n1 bash -c 'net=$(ip -4 -o addr show eth1 | sed -n "s/.* inet \(.*\)\.1\/24 .*/\1/p")
			timeout -k 5 300 bash -c "exec 3<>/dev/tcp/$net.3/1" 2>&1 | grep refused'
}
check "each node has a second link, which reaches the others" both_rails

# --- a slow link, a drained node, jobs that give way ---
expect 2 "node-rate" "a rate of a node that is not there is refused" vc up --nodes 2 --node-rate n3=10mbit
expect 2 "cpu-share" "and a share of its processors" vc up --nodes 2 --cpu-share n3=50
expect 2 "cpu-share" "a share is from 1 to 99 percent" vc up --nodes 2 --cpu-share n2=100
expect 2 "drain" "so is draining it" vc up --nodes 2 --drain n3
vc down
shares="--cpu-share n1=50 --cpu-share n2=40,duty"
# shellcheck disable=SC2086 # a list
check "three nodes, one slow, two with a share of their processors, one drained, and a partition that preempts" \
	vc up --nodes 3 --cpus-per-node 2 --node-rate n2=50mbit --drain n3 --preempt --requeue-delay 5 $shares
# shellcheck disable=SC2016
given_up() {
	on sbatch --chdir="$cluster" --output="$cluster/low" --open-mode=append --exclusive -N2 \
		--wrap 'echo "start ${SLURM_RESTART_COUNT:-first}"; [ "${SLURM_RESTART_COUNT:-}" ] || exec sleep infinity; echo end' &&
		until_true grep -qx "start first" "$cluster/low" && on srun -p urgent -N2 --exclusive hostname
}
check "a job of urgent takes the nodes of one of main" given_up
expect 0 "rate 50Mbit" "the link of one node has its own rate" on srun -w n2 tc qdisc show dev eth0
expect 0 "rate 1Gbit" "the others have theirs" on srun -w n1 tc qdisc show dev eth0
expect 0 "^n3 drain" "a drained node is no fault of the cluster" vc status
# shellcheck disable=SC2086 # a list
expect 0 "up already" "nor for up" vc up --nodes 3 --cpus-per-node 2 --node-rate n2=50mbit --drain n3 --preempt --requeue-delay 5 $shares
expect 0 "^n2 share of processors: duty cycle" "status says what keeps a node to its share" vc status
# What keeps to the share is seen at work on a step that never sleeps: the quota of a control group, or stops of all processes.
# shellcheck disable=SC2016
busy() { on srun -w "$1" -J "busy-$1" sh -c 'while :; do :; done'; }
pid_of_busy() { # NODE
	local pid
	for pid in $(pgrep -x sh); do
		{ tr '\0' '\n' <"/proc/$pid/environ" | grep -cxF -e "SLURM_CONF=$cluster/vc/conf/slurm.conf" -e "SLURM_JOB_NAME=busy-$1" | grep -qx 2; } 2>/dev/null && echo "$pid" && return
	done
	return 1
}
group=$(sed -n 's|^share-n1 \(/.*\)|\1|p' "$cluster/vc/vcluster.state")
# Half of a third of the machine's processors, or of the node's two if that is less, in a period of 20 ms.
quota=$(awk -v n="$(nproc --all)" 'BEGIN { n /= 3; printf "%d", (n < 2 ? n : 2) * 0.5 * 20000 }')
has_quota() { [[ $(cat "$group/cpu.max" 2>/dev/null || echo "$(cat "$group/cpu.cfs_quota_us") $(cat "$group/cpu.cfs_period_us")") == "$quota 20000" ]]; }
throttled() { awk '$1 == "nr_throttled" { n = $2 } END { exit n < 5 }' "$group/cpu.stat"; }
held() {
	busy n1 >/dev/null 2>&1 &
	until_true pid_of_busy n1 && until_true grep -qx "$(pid_of_busy n1)" "$group/cgroup.procs" && until_true throttled
}
if [[ $group ]]; then
	check "n1 has a quota of half of its part of the machine" has_quota
	check "which holds its steps back" held
else
	skip "n1 has a quota of half of its part of the machine" "no control group can be made here"
fi
stopped() { grep -q '^State:.T' "/proc/$1/status"; }
goes_on() { grep -q '^State:.[RS]' "/proc/$1/status"; }
stops() {
	local pid
	busy n2 >/dev/null 2>&1 &
	until_true pid_of_busy n2 && pid=$(pid_of_busy n2) && until_true stopped "$pid" && until_true goes_on "$pid" && until_true stopped "$pid"
}
check "n2 has a duty cycle of 40 %" grep -qx "share-n2 duty=40" "$cluster/vc/vcluster.state"
check "which stops its steps and lets them go on" stops
on scancel --name=busy-n1
on scancel --name=busy-n2
resumed() { on scontrol update NodeName=n3 State=RESUME && [[ $(on srun -w n3 hostname) == n3 ]]; }
check "a drained node takes jobs once it is resumed" resumed
check "the job of main was queued again" ended_again "$cluster/low"

# As hard as it gets: the record is lost and a job is running.
on srun -N3 sleep 600.$$ >/dev/null 2>&1 &
until_true pgrep -fx "/[a-z/]*sleep 600[.]$$" || true
rm -f "$cluster/vc/vcluster.state"
expect 0 "" "down works without its record" vc down
expect 0 "" "and a second time" vc down
wait
left() {
	ip netns list | grep "gn$id-"
	ip -o link | grep "gn[bv]$id"
	grep -h "$cluster" /proc/mounts
	local p
	for p in /proc/[0-9]*; do
		tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep "$cluster/vc" | grep -v vcluster.t
	done
}
id=$(printf '%s' "$cluster/vc" | md5sum | cut -c1-6)
nothing() { local l; l=$(left); [[ ! $l ]] || { echo "$l"; false; }; }
check "down leaves no namespace, link, mount or process" nothing
check "down keeps what users wrote" test -s "$cluster/vc/shared/n1"
finish
