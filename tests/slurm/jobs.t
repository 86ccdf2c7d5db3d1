#!/bin/bash
# The smaller job scripts: stage.sbatch puts the data on each node's own disk, where train.sbatch finds it; bench-allreduce.sbatch
# measures; what is missing is named.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
export GANNET=$gannet
check "the digits are packed" cluster_digits
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2

# Not sbatch --wait, which looks but every ten seconds.
ended() { on scontrol show job "$1" --oneliner | grep -qE 'JobState=(COMPLETED|FAILED|CANCELLED|NODE_FAIL|TIMEOUT) '; }
submit() { # JOB: waits for its end; its output is in $cluster/JOB.out
	local job code
	rm -f "$cluster/$1.out"
	job=$(on sbatch --parsable --chdir="$cluster" --output="$cluster/$1.out" "$GN_SOURCE/slurm/jobs/$1.sbatch") && until_true ended "$job" || return
	code=$(on scontrol show job "$job" --oneliner | grep -oP ' ExitCode=\K[0-9]+')
	((code == 0)) || cat "$cluster/$1.out"
	return "$code"
}
expect 1 "GANNET_LOCAL.*is needed" "stage.sbatch names the variable that is missing" \
	env -u GANNET_LOCAL GANNET_DATA="$cluster/train" "$GN_SOURCE/slurm/jobs/stage.sbatch"
expect 1 "GANNET_CHECKPOINT.*is needed" "so does train.sbatch" env GANNET_DATA="$cluster/train" "$GN_SOURCE/slurm/jobs/train.sbatch"

export GANNET_DATA=$cluster/train GANNET_MODEL=lenet GANNET_CHECKPOINT=$cluster/run GANNET_LOG_FILE=$cluster/log.jsonl
export GANNET_ARGS="--steps 5 --batch 16 --threads 1 --loader-threads 1"
check "stage.sbatch" submit stage
# shellcheck disable=SC2317 # check calls it
on_both() {
	local node
	for node in n1 n2; do "$gannet" verify "$cluster/vc/node/$node/nvme/gannet-$UID/train-"* || return 1; done
}
check "each node has its own whole copy" on_both
check "train.sbatch" submit train
expect 0 "n2: .*: 0 shards copied .*1 was there" "it finds what stage.sbatch staged" cat "$cluster/train.out"
check "and trains" test "$(last_step "$cluster/log.jsonl")" = 5
theirs=$cluster/vc/node/n2/nvme/gannet-$UID
mv "$theirs" "$theirs.mine" && mkdir "$theirs" && chown 65533 "$theirs"
expect 1 "n2.*gannet-$UID belongs to user 65533, who could" "another user's folder of that name ends train.sbatch, which says whose it is" submit train
rmdir "$theirs" && mv "$theirs.mine" "$theirs"

GANNET_ARGS="--json --max-bytes 512 --iters 3 --warmup 1 --transport tcp"
check "bench-allreduce.sbatch" submit bench-allreduce
# shellcheck disable=SC2317
rows() {
	python3 - "$cluster/bench-allreduce.out" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
assert [row["bytes"] for row in rows] == [8 << i for i in range(7)], rows
for row in rows: assert row["op"] == "allreduce" and row["ranks"] == 4 and row["in_place"]["wrong"] == 0, row
PY
}
check "a JSON object for each size, nothing wrong" rows

# Two fabrics of which these nodes have one.
export GANNET_OUT=$cluster/fabrics GANNET_FABRICS="tcp rc" GANNET_BENCH_ARGS="--min-bytes 64K --max-bytes 64K --iters 3 --warmup 1" GANNET_STEPS=5
export GANNET_ARGS="--batch 16 --threads 1 --loader-threads 1"
expect 1 "report: .*/fabrics/report.md" "ib-vs-eth.sbatch ends with 1 where a fabric is absent" submit ib-vs-eth
expect 0 "^rc was not measured: gannet bench: .*(reach|transports)" "its report says which, and why" cat "$GANNET_OUT/report.md"
expect 0 "^\\| tcp \\|( [0-9.]+ \\|){7}$" "and measures the other's steps" cat "$GANNET_OUT/report.md"
expect 0 "^\\| 64 KiB \\|( [0-9.e-]+ \\|){2}$" "and its allreduce" cat "$GANNET_OUT/report.md"

# The same results, where the first fabric, to which others are compared, is the one that is missing.
first_missing() { GANNET_FABRICS="rc tcp" GANNET_START=false bash "$GN_SOURCE/slurm/jobs/ib-vs-eth.sbatch" && return; cat "$GANNET_OUT/report.md"; }
expect 0 "^Crossover: unknown; only tcp was measured, so nothing could be compared with rc.$" "no crossover with what was not measured" \
	first_missing
check "nor a size of 0 B" bash -c '! grep " 0 B" "$GANNET_OUT/report.md"'
adds_up() { awk -F'|' '$2 == " tcp " { n++; d = $4 - $5 - $6 - $7 - $8 - $9; off += d * d > 0.0016 } END { exit off || !n }' "$GANNET_OUT/report.md"; }
check "the parts of the step add up" adds_up

# Bad data: the code of gannet reaches Slurm, and the job does not come back.
export GANNET_DATA=$cluster/nothing GANNET_LOCAL=
expect 3 "nothing" "a dataset that is not there: code 3, by name" submit train
finish
