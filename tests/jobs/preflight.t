#!/bin/bash
# gannet preflight on one machine: wrong options are named before or instead of nodes, unmeasured values are null.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
gannet=$GN_BUILD/gannet
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset GANNET_LOCAL
export GANNET_LOG=error

# Measuring writes a file into the folder of --local, and removes it: the folder has another time then.
measured() { [[ $(stat -c %Y "$scratch/local") != 978307200 ]]; }
mkdir "$scratch/local" && timeout -k 5 300 "$gannet" preflight --seconds 0.01 --local "$scratch/local" >/dev/null 2>&1
check "measurements can be seen" measured
unmeasured() { # OPTION...
	local code
	touch -d @978307200 "$scratch/local"
	timeout -k 5 300 "$gannet" preflight --seconds 0.01 --local "$scratch/local" "$@"
	code=$?
	measured || echo "not measured"
	return $code
}
expect 1 "--out .*/none/result: cannot write in .*/none: No such file" "--out is tried" unmeasured --out "$scratch/none/result"
expect 0 "^not measured$" "before the measurements" printf '%s\n' "$tap_output"
expect 2 "--local .*/nmve: no such folder on any of the nodes" "a mistyped --local is the option's fault" \
	timeout -k 5 300 "$gannet" preflight --seconds 0.01 --local "$scratch/nmve"
named() { GANNET_LOCAL=$scratch/nmve timeout -k 5 300 "$gannet" preflight --seconds 0.01; }
expect 2 "GANNET_LOCAL .*/nmve: no such folder" "or the variable's" named
expect 2 "--local" "with two ranks, too" timeout -k 5 300 "$gannet" launch -n 2 "$gannet" preflight --seconds 0.01 --local "$scratch/nmve"
expect 2 "--mount .*/data: nothing is mounted there on any of the nodes" "a mistyped --mount is the option's fault" \
	timeout -k 5 300 "$gannet" preflight --seconds 0.01 --mount / --mount "$scratch/data"
echo '{"hosts": [{}]}' >"$scratch/good.json" && ln "$scratch/good.json" "$scratch/same.json"
expect 2 "--out .*/same.json is the file of --baseline" "a result does not replace its baseline" \
	unmeasured --baseline "$scratch/good.json" --out "$scratch/same.json"
expect 0 "^not measured$" "which is found before the measurements" printf '%s\n' "$tap_output"
nulls() {
	timeout -k 5 300 "$gannet" preflight --seconds 0.01 --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
h = r["hosts"][0]
print([k for k, v in h.items() if v is None and k not in ("memlock_bytes", "nofile") and not k.startswith("gpu")], r["rate_gbit_per_s"])'
}
expect 0 "\\['disk_write_mb_per_s', 'disk_read_mb_per_s', 'disk_free_gb', 'network_out_gbit_per_s', 'network_in_gbit_per_s', 'latency_us'\\] \\[\\[None\\]\\]" \
	"what was not measured is null" nulls
if "${CC:-cc}" -shared -fPIC -o "$scratch/libnvidia-ml.so.1" "$GN_SOURCE/tests/jobs/emulate_nvml.c" 2>"$scratch/cc"; then
	gpus() { env ${1:+EMULATE_NVML="$1"} LD_LIBRARY_PATH="$scratch" timeout -k 5 300 "$gannet" preflight --seconds 0.01; }
	expect 0 "^GPUs: 4 on 1 node, memory errors and clocks looked at$" "GPUs that are well" gpus "4 0 4 -1"
	expect 6 ": GPUs: 2 uncorrected memory errors \(ECC\) since the driver was loaded$" "memory errors are named" gpus "4 2 0 -1"
	expect 6 ": GPUs: clocks are reduced by heat hardware slowdown$" "so are reduced clocks" gpus "4 0 48 -1"
	expect 6 ": GPU 3: GPU is lost$" "a GPU that has fallen off the bus" gpus "4 0 0 3"
	expect 0 "^GPUs: 0 on 1 node, " "a library without a driver is no fault" gpus
else
	skip "GPUs that are emulated" "no compiler: $(head -n 1 "$scratch/cc")"
fi
finish
