#!/bin/bash
# The control plane with many ranks: they start and end, and rank 0 stays small. tests/transport/scale shows how long that takes; by
# how many messages is asserted in test_bootstrap (start) and test_hub (end).
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
scale=$GN_BUILD/tests/transport/scale_probe
export MASTER_ADDR=127.0.0.1
many=512 some=64 mb=100
[[ -z ${GN_SANITIZED:-} ]] || many=48 some=16 mb=400

# below MB COMMAND...: rank 0 takes less; shows what the probe prints
below() {
	local row
	row=$(timeout -k 5 300 "${@:2}") || return
	echo "ranks, s to start, s to end, MB, idle %: $row"
	awk -v mb="$1" '{ exit !($4 < mb) }' <<<"$row"
}
meet() { MASTER_PORT=$(free_port) below $mb "$scale" fork $many 0; }
check "$many ranks by MASTER_ADDR" meet
check "$some ranks under gannet launch" below $mb "$scale" launch $some "$gannet"

# Most systems allow 1,024 open files, and many more to who asks.
low() { ulimit -Sn $((some + 20)) && "$@"; }
too_low() { ulimit -n $((some + 20)) && "$@"; }
alone() { MASTER_PORT=$(free_port) below $mb "$scale" fork $some 0; }
check "more ranks than the soft limit of open files, by MASTER_ADDR" low alone
check "more ranks than the soft limit of open files, under gannet launch" low below $mb "$scale" launch $some "$gannet"
PROBE_TIMEOUT_MS=2000 expect 1 "rank 0 of $some needs [0-9]+ open files and may have [0-9]+: .*ulimit -n" \
	"more ranks than the hard limit of open files, by MASTER_ADDR" too_low alone
expect 1 "gannet launch: the launcher needs [0-9]+ open files and may have [0-9]+: .*ulimit -n" \
	"more ranks than the hard limit of open files, under gannet launch" too_low "$scale" launch $some "$gannet"
finish
