#!/bin/bash
# gannet sweep on a virtual cluster: a grid as one array, one trial that fails, its ledger, the best, a report, the failed one again.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
export GANNET_JOBS=$GN_SOURCE/slurm/jobs GANNET_LOG=warn
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2 --requeue-delay 5
cd "$cluster" || exit 1
args=(train --data "$cluster/train" --val "$cluster/val" --model lenet --steps 60 --batch 16 --threads 1 --loader-threads 1)
expect 0 "^gannet sweep: 3 trials, job [0-9]+, in $cluster/sweep$" "a sweep is submitted" \
	on "$gannet" sweep run --grid lr=0.02,0.0001,100000 --max 2 --dir sweep -- "${args[@]}"
states() { "$gannet" sweep status --json sweep | python3 -c 'import json, sys; print(*[json.loads(line)["state"] for line in sys.stdin])'; }
all_over() { [[ $(states) == "end end failed" ]]; }
check "two trials end, one fails" until_true all_over
expect 0 "^    1 end +60/60 " "as a table" "$gannet" sweep status sweep
expect 0 "^lr=0.02$" "the best is the one that learned" bash -c '"$1" sweep best --json sweep | python3 -c "import json, sys; print(json.load(sys.stdin)[\"parameters\"])"' x "$gannet"
expect 0 "" "a report" "$gannet" sweep report sweep
check "of all logs" test -s sweep/report/report.html
expect 0 "^3$" "which one would start again" on "$gannet" sweep rerun --failed --dry-run sweep
expect 0 "trials 3 again, job [0-9]+" "the failed one again" on "$gannet" sweep rerun --failed sweep
started() { (($(grep -c '"event": "start"\|"event": "resume"' sweep/trial-3.jsonl) >= 2)); }
check "it alone starts again" until_true started
check "the others do not" test "$(cat sweep/trial-[12].jsonl | grep -c '"event": "start"\|"event": "resume"')" = 2
expect 1 "is there already" "a second sweep does not take the folder" on "$gannet" sweep run --grid lr=1 --dir sweep -- "${args[@]}"
# One task at a time: while the first runs the second waits; then it stops at half of its steps, and is not queued again.
# No node takes a job until top has been asked.
on scontrol update NodeName=n1,n2 State=DRAIN Reason=test
halved=$(on "$gannet" sweep run --grid lr=0.02,0.0000001 --max 1 --halving 2 --dir halved -- "${args[@]}" 2>/dev/null)
check "a sweep with halving" test -n "$halved"
expect 0 "^job ${halved}_2 is PENDING( \\([A-Za-z]+\\))?" "top tells that a trial waits" on "$gannet" top "${halved}_2"
on scontrol update NodeName=n1,n2 State=RESUME
halved_states() { "$gannet" sweep status --json halved | python3 -c 'import json, sys; print(*["%s:%d" % (t["state"], t["step"]) for t in map(json.loads, sys.stdin)])'; }
both_over() { [[ $(halved_states) == "end:60 pruned:30" ]]; }
check "the worse trial is stopped at half" until_true both_over
expect 0 "^lenet  1 rank on 1 node  job ${halved}_2  pruned" "top finds its log by the job's number" on "$gannet" top "${halved}_2"
expect 0 "^job ${halved}_2, [A-Z]+, 1 node, " "so does summary, with what Slurm says" on "$gannet" summary "${halved}_2"
expect 3 "job 999999: neither scontrol nor sacct knows it" "a job that was not" on "$gannet" summary 999999
finish
