#!/bin/bash
# gannet summary with real accounting: slurmdbd and MariaDB of a virtual cluster, a job that is queued again, an array, and a job that only
# sacct knows still.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
missing=$("$GN_SOURCE/slurm/install-packages" --missing accounting) || { echo "1..0 # SKIP not installed: $missing"; exit 0; }
cluster_begin
export GANNET_JOBS=$GN_SOURCE/slurm/jobs GANNET_LOG=warn
check "two nodes and accounting come up" vc up --nodes 2 --cpus-per-node 2 --requeue-delay 5 --accounting
expect 0 "accounting=1" "status tells of it" vc status
cd "$cluster" || exit 1
# The first start fails so that the job is queued again; the second takes 100 MB and BURN_S (2) seconds of a processor, and says how much by getrusage.
cat >burn.py <<'PY'
import os, resource, sys
if not int(os.environ.get("SLURM_RESTART_COUNT") or 0):
    sys.exit(5)
memory = b"x" * 100000000
while sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) < float(os.environ.get("BURN_S", "2")):
    pass
with open("used." + os.environ["RANK"], "w") as out:
    out.write(str(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])))
PY
# sets id, for a check's own shell and by file
# shellcheck disable=SC2015 # cat does not fail
submit() { on "$gannet" submit "$@" >id 2>err && id=$(cat id) || { cat err; return 1; }; }
states() { [[ $(on sacct -n -X -P -o State -j "$id" | sort -u) == COMPLETED ]]; }
completed() { until_true states || { on sacct -j "$id"; cat ./*/*.out; return 1; }; }
again() { submit --dir again -N 2 --ppn 2 --retries 1 --sbatch=--mem=1G -- exec python3 "$cluster/burn.py" && completed; }
check "a job that is queued again" again
again=$(cat id)
on "$gannet" summary --json "$again" >summary.json
cat >check.py <<'PY'
import glob, json, sys
s = json.load(open("summary.json"))["slurm"]
used = sum(float(open(name).read()) for name in glob.glob("used.*"))
print("%.2f s by sacct, %.2f s by getrusage" % (s["core_hours_used"] * 3600, used), s)
assert s["restarts"] == 1 and s["nodes"] == 2 and s["state"] == "COMPLETED", s
assert s["waited_s"] >= 5, s           # the delay after it was queued again
# the batch script, srun, gannet exec and the interpreters of the first start are no part of it
assert used * 0.98 <= s["core_hours_used"] * 3600, s
assert s["core_hours"] >= s["core_hours_used"] and s["elapsed_s"] >= 1, s
assert s["memory_asked_bytes_per_node"] == 1 << 30, s
# two ranks on a node
assert s["max_rss_bytes"] > 100e6 and s["node_rss_bytes"] > 200e6, s
PY
check "summary: restart, waiting, core hours, memory of a node" python3 check.py
expect 0 "^job $again, COMPLETED, 2 nodes, 4 processors, queued again 1 time$" "as text" on "$gannet" summary "$again"
expect 0 "^  memory of a node: asked for 1.07 GB, 0\\.[2-9][0-9]* GB used at most" "with what was asked for" on "$gannet" summary "$again"
# Of a step alone the two agree, but for what slurmstepd and the interpreter use before burn.py counts and after it: 0.07 s of a processor
# a task on a quiet machine, and more on a slow or busy one, which 1.5 s a task leave room for. Counted twice it would be 4.
step() {
	# shellcheck disable=SC2016
	on srun -N2 -J step env SLURM_RESTART_COUNT=1 BURN_S=4 sh -c 'RANK=step$SLURM_PROCID exec python3 "$0"' "$cluster/burn.py" || { echo "srun ended with $?"; return 1; }
	until_true step_is_told || { on sacct -P -o JobID,State,TotalCPU --name step; cat "$cluster/told"; return 1; }
}
step_is_told() {
	# shellcheck disable=SC2016
	local id
	on sacct -n -P -X -o JobID,State --name step | grep COMPLETED >"$cluster/step" || return 1
	id=$(cut -d '|' -f 1 "$cluster/step")
	[[ $id ]] && on "$gannet" summary --json "$id" | python3 -c '
import json, sys
told = json.load(sys.stdin)["slurm"]["core_hours_used"] * 3600
used = [float(open(name).read()) for name in sys.argv[1:]]
print("told", told, "s, used", used, file=open("told", "w"))
sys.exit(not 0.98 * sum(used) <= told <= 1.02 * sum(used) + 1.5 * len(used))' "$cluster"/used.step[01]
}
check "core hours of a step of srun are those of getrusage and its ends" step
array() { submit --dir array --array 1-3 -- exec true && completed && on "$gannet" summary "$id"; }
expect 0 "queued again 0 times" "tasks of an array are no restarts" array
# As weeks later: scontrol knows nothing.
mkdir only
for name in sacct timeout; do ln -s "$(command -v $name)" only/$name; done
later() { on env PATH="$cluster/only" "$gannet" summary "$again"; }
expect 0 "^job $again, COMPLETED, 2 nodes, 4 processors, queued again 1 time$" "the same from sacct alone" later
expect 3 "neither scontrol nor sacct knows it" "a job that was not" on "$gannet" summary 999999
vc down
left() { pgrep -x 'mariadbd|slurmdbd' | while read -r pid; do tr '\0' ' ' <"/proc/$pid/cmdline" | grep -F "$cluster"; done; }
ended() { [[ ! $(left) ]]; }
check "down ends both" ended
finish
