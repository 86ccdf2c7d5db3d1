#!/bin/sh
# The step split: parts add up, minimum, mean and maximum fit each rank's time, efficiencies are shares; one rank has neither.
set -u
. "$GN_SOURCE/tests/train/common.sh"

processors=$(nproc)
check 'digits are packed' pack_digits
check 'three ranks, small buckets' lenet 3 16 --steps 30 --log-every 5 --bucket 256K --transport tcp --tuning none \
	--log "$dir/three.jsonl"
check 'three ranks that measure' lenet 3 16 --steps 60 --log-every 5 --log "$dir/measured.jsonl"
check 'one rank' lenet 1 16 --steps 10 --log-every 5 --log "$dir/one.jsonl"
cat >"$dir/check.py" <<'PY'
import json, sys
ranks = int(sys.argv[2])
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = [line for line in lines if line["event"] == "step"]
assert steps
for line in steps:
    t = line["time_ms"]
    parts = sum(t[k] for k in ("data", "forward", "backward", "communication_exposed", "optimizer"))
    assert abs(parts - t["step"]) < 0.02 * t["step"] + 0.01, (parts, t)
    assert 0 <= t["communication_in_backward"] <= t["communication_exposed"] + 0.001, t
    assert ("ranks" in line) == ("efficiency" in line) == (ranks > 1), line
    if ranks == 1:
        continue
    r, e = line["ranks"], line["efficiency"]
    for key in ("data", "forward", "backward", "communication_exposed", "optimizer", "compute"):
        low, mean, high = r[key]
        assert 0 <= low <= mean + 0.001 and mean <= high + 0.001, (key, r[key])
        # rank 0 is one of them
        if key in t:
            assert low - 0.002 <= t[key] <= high + 0.002, (key, t[key], r[key])
    each = r["each_compute"]
    assert len(each) == ranks and max(each) == each[r["slowest"]] == r["compute"][2] and min(each) == r["compute"][0], r
    assert 0 < e["measured"] <= 1, e
    # A prediction is there unless ways were being tried all the time; no rank hides more than it has.
    assert 0 < e.get("predicted", 1) <= 1, e
# More threads than processors: why there is none.
shared = int(sys.argv[3]) < ranks
assert ranks == 1 or ("unpredicted" if shared else "predicted") in steps[-1]["efficiency"], steps[-1]
assert not shared or ranks == 1 or "predicted" not in steps[-1]["efficiency"] and \
    steps[-1]["efficiency"]["unpredicted"] == f"{ranks} threads of {ranks} ranks share {sys.argv[3]} processor" + "s" * (sys.argv[3] != "1")
assert ranks == 1 or shared or steps[-1]["efficiency"]["costs"] == "guessed" or "--tuning none" not in sys.argv, steps[-1]
PY
check 'its lines make sense' python3 "$dir/check.py" "$dir/three.jsonl" 3 "$processors" '--tuning none'
check 'so do those of the one that measured' python3 "$dir/check.py" "$dir/measured.jsonl" 3 "$processors"
check 'and those of one rank' python3 "$dir/check.py" "$dir/one.jsonl" 1 "$processors"
expect 0 'efficiency [0-9]+ % \(predicted [0-9]+ %, costs (guessed|measured|tried)\)|not predicted: 2 threads of 2 ranks share 1 processor\)' 'people read it, too' env GANNET_LOG=info timeout -k 5 300 \
	"$gannet" launch -n 2 -- "$gannet" train --data "$dir/train" --model lenet --lr 0.01 --threads 1 --steps 20
expect 0 'allreduce|ring|shared' 'gannet sim takes such a log' "$gannet" sim --log "$dir/three.jsonl" --nodes 4
finish
