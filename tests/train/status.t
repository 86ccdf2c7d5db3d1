#!/bin/sh
# What a run tells others while it goes on: the status file beside its log, and the metrics file for Prometheus.
set -u
. "$GN_SOURCE/tests/train/common.sh"

unset SLURM_JOB_ID
check 'digits are packed' pack_digits
with_umask() { (umask "$1" && shift && "$@"); }
check 'a run' with_umask 077 lenet 2 16 --steps 60 --log-every 5 --log "$dir/log.jsonl" --val "$dir/val" --checkpoint "$dir/run" \
	--metrics "$dir/run.prom"
cat >"$dir/status.py" <<'PY'
import json, os, sys, time
s, log = json.load(open(sys.argv[1] + ".status")), [json.loads(line) for line in open(sys.argv[1])]
steps, evals = ([line for line in log if line["event"] == kind] for kind in ("step", "eval"))
assert s["doing"] == "done" and s["running"] is False and s["step"] == s["total_steps"] == 60, s
assert s["loss"] == steps[-1]["loss"] and s["top1"] == evals[-1]["top1"], s
assert [r["compute_ms"] for r in s["slow"]] == sorted(steps[-1]["ranks"]["each_compute"], reverse=True), (s, steps[-1])
assert s["slow"][0]["rank"] == steps[-1]["ranks"]["slowest"], s
node, = s["nodes"]
memory = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in open("/proc/meminfo")}
assert node["memory_bytes"] == memory["MemTotal"] and 0 < node["memory_used_bytes"] < memory["MemTotal"], node
assert 0 < node["cpu"] <= 1 and 2e7 < node["rss_bytes"] < memory["MemTotal"], node
assert os.path.getmtime(sys.argv[2]) <= s["time"] <= time.time(), s
PY
check 'leaves a status file' python3 "$dir/status.py" "$dir/log.jsonl" "$dir/val/gannet-dataset.json"
echo precious >"$dir/other.prom"
check 'which is for its user alone, as the umask has it' test "$(stat -c %a "$dir/log.jsonl.status")" = 600
check 'and metrics, which the collector can read' test "$(stat -c %a "$dir/run.prom")" = 644
expect 2 'is no metrics file of gannet train' 'another file is not overwritten' lenet 1 16 --steps 1 --metrics "$dir/other.prom"
check 'and is as it was' grep -q '^precious$' "$dir/other.prom"
expect 2 'metrics.*colector is no folder, and no name that ends with .prom' 'a folder that is misspelt is no file' lenet 1 16 --steps 1 --metrics "$dir/colector"
cat >"$dir/metrics.py" <<'PY'
import os, pwd, re, sys
text = open(sys.argv[1]).read()
described, found = {}, {}
for line in text.splitlines():
    if line.startswith("# "):
        _, kind, name, rest = line.split(" ", 3)
        described.setdefault(name, []).append((kind, rest))
    else:
        name, labels, value = re.fullmatch(r'([a-z0-9_]+)\{(run="log",user="%s",jobid="pid[0-9]+",host="[^"]+"(?:,part="[a-z_]+")?)\} (\S+)' % pwd.getpwuid(os.geteuid()).pw_name, line).groups()
        assert [k for k, _ in described[name]] == ["HELP", "TYPE"], name
        assert (described[name][1][1] == "counter") == name.endswith("_total"), name
        assert (name, labels) not in found
        found[name, labels] = float(value)
value = {name: v for (name, labels), v in found.items()}
assert value["gannet_train_step"] == value["gannet_train_steps"] == 60 and value["gannet_train_running"] == 0, value
assert value["gannet_train_evaluations_total"] == 1 and value["gannet_train_checkpoints_total"] == 1, value
assert 0 < value["gannet_train_cpu_seconds_total"] < 1000 and value["gannet_train_top1_ratio"] <= 1, value
parts = sum(v for (name, _), v in found.items() if name == "gannet_train_step_part_seconds")
assert abs(parts - value["gannet_train_step_seconds"]) < 0.02 * parts, (parts, value)
print(len(found), "samples")
PY
check 'the metrics are those of the run' python3 "$dir/metrics.py" "$dir/run.prom"
if python3 -c 'import prometheus_client' 2>/dev/null; then
	check 'that the real parser reads' python3 -c 'import sys; from prometheus_client.parser import text_string_to_metric_families as p
names = {f.name for f in p(open(sys.argv[1]).read())}; assert "gannet_train_loss" in names and len(names) > 15, names' "$dir/run.prom"
else
	skip 'that the real parser reads' 'no prometheus_client (python3-prometheus-client)'
fi
# In a folder each run has a file of its own until it ends; of those that were killed it stays.
mkdir "$dir/collector"
prom() { echo "$dir/collector/gannet-$(id -un)-$1.prom"; }
await_prom() { [ -s "$(prom "$1")" ]; }
SLURM_JOB_ID=12 SLURM_ARRAY_JOB_ID=11 SLURM_ARRAY_TASK_ID=3 timeout -k 5 300 "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --epochs 1000 --batch 16 --threads 1 \
	--loader-threads 1 --metrics "$dir/collector" --log "$dir/killed.jsonl" >"$dir/killed.out" 2>&1 &
killed=$!
check 'a run in a folder has a file of user, job and log there' until_true await_prom 12-killed
expect 0 "^gannet_train_running{run=\"killed\",user=\"$(id -un)\",jobid=\"12\",host=\"[^\"]*\"} 1$" 'with these labels' cat "$(prom 12-killed)"
kill -KILL "$(pgrep -P $killed)" && { wait $killed; } 2>/dev/null
check 'another run beside it' env SLURM_JOB_ID=13 "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --steps 2 --batch 16 --threads 1 --loader-threads 1 --metrics "$dir/collector"
check 'has none any more, and leaves the other' test "$(echo "$dir"/collector/*)" = "$(prom 12-killed)"
if [ "$(id -u)" = 0 ]; then
	chown 12345 "$dir/run.prom"
	expect 2 'run.prom belongs to another user: name another file, or its folder' "another user's file is left alone" lenet 1 16 --steps 1 --metrics "$dir/run.prom"
else
	skip "another user's file is left alone" 'this test is not root'"'"'s'
fi
check 'nothing temporary is left' sh -c '! ls "$1" | grep -q tmp' sh "$dir"
expect 0 'cannot write how the run is doing' 'a file that cannot be written is a warning' \
	lenet 1 32 --steps 5 --metrics "$dir/nowhere/run.prom"

# A rank that stands still for a while: rank 0 waits for it, and the status file says for whom.
# shellcheck disable=SC2016
timeout -k 5 300 "$gannet" launch -n 2 -- sh -c 'echo $$ >"$0.$PMIX_RANK"; exec "$@"' "$dir/pid" "$gannet" train --data "$dir/train" --model lenet \
	--lr 0.01 --epochs 1000 --batch 16 --threads 1 --loader-threads 1 --log-every 5 --log "$dir/still.jsonl" --heartbeat-timeout 1000 >"$dir/still.out" 2>&1 &
still=$!
steps() { [ "$(grep -c '"event": "step"' "$dir/still.jsonl")" -gt "$1" ]; }
# nobody is silent; or rank 1 is
silent() { python3 -c 'import json, sys; s = json.load(open(sys.argv[1])); assert [r["rank"] for r in s["silent"]] == json.loads(sys.argv[2]), s
assert s["silent_count"] == len(s["silent"]), s' "$dir/still.jsonl.status" "$1"; }
check 'a run whose log begins' until_true steps 1
check 'no rank of it is silent' until_true silent '[]'
kill -STOP "$(cat "$dir/pid.1")"
check 'a rank that is stopped is named' until_true silent '[1]'
expect 0 '^silent: rank 1 on .*, no heartbeat for [0-9]+ s$' 'by gannet top, too' "$gannet" top --once "$dir/still.jsonl"
expect 0 '"silent": \[\{"rank": 1, "host": ".*", "silent_s": [0-9.]+\}\], "silent_count": 1' 'and as JSON' "$gannet" top --json "$dir/still.jsonl"
kill -CONT "$(cat "$dir/pid.1")"
check 'it is no longer once it goes on' until_true silent '[]'
now=$(grep -c '"event": "step"' "$dir/still.jsonl")
check 'and the run does' until_true steps "$now"
kill -TERM $still
wait $still
finish
