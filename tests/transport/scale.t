#!/bin/bash
# The control plane with many ranks: the short form of tests/transport/scale. On two processors that others used, too (load 20 to 40),
# 512 ranks started in 1.9 to 2.2 s and ended in 0.2 to 0.4 s; an end at which rank 0 tells each rank of each that leaves took 5.5 s.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
scale=$GN_BUILD/tests/transport/scale_probe
export MASTER_ADDR=127.0.0.1
many=512 some=64 mb=100
[[ -z ${GN_SANITIZED:-} ]] || many=48 some=16 mb=400

# within START_S END_S MB COMMAND...: what the probe prints
within() {
	local row
	row=$(timeout -k 5 300 "${@:4}") || return
	echo "ranks, s to start, s to end, MB, idle %: $row"
	awk -v start="$1" -v end="$2" -v mb="$3" '{ exit !($2 < start && $3 < end && $4 < mb) }' <<<"$row"
}
meet() { MASTER_PORT=$(free_port) within 15 2.5 $mb "$scale" fork $many 500; }
check "$many ranks by MASTER_ADDR" meet
check "$some ranks under gannet launch" within 15 2.5 $mb "$scale" launch $some "$gannet"

# Most systems allow 1,024 open files, and many more to who asks.
low() { ulimit -Sn $((some + 20)) && "$@"; }
too_low() { ulimit -n $((some + 20)) && "$@"; }
alone() { MASTER_PORT=$(free_port) within 15 2.5 $mb "$scale" fork $some 0; }
check "more ranks than the soft limit of open files, by MASTER_ADDR" low alone
check "more ranks than the soft limit of open files, under gannet launch" low within 15 2.5 $mb "$scale" launch $some "$gannet"
PROBE_TIMEOUT_MS=2000 expect 1 "rank 0 of $some needs [0-9]+ open files and may have [0-9]+: .*ulimit -n" \
	"more ranks than the hard limit of open files, by MASTER_ADDR" too_low alone
expect 1 "gannet launch: the launcher needs [0-9]+ open files and may have [0-9]+: .*ulimit -n" \
	"more ranks than the hard limit of open files, under gannet launch" too_low "$scale" launch $some "$gannet"
finish
