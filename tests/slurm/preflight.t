#!/bin/bash
# gannet preflight on four virtual nodes: nothing found where all are well; planted faults, each on its node, are named.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
check "four nodes come up" vc up --nodes 4 --cpus-per-node 2 --rate 100mbit
id=$(printf '%s' "$cluster/vc" | md5sum | cut -c1-6)
# inside NODE COMMAND...: in the node's mounts
inside() {
	local pid
	# of the processes in its network, slurmd has the mounts of its tasks
	for pid in $(ip netns pids "gn$id-$1"); do [[ $(cat "/proc/$pid/comm") == slurmd ]] && break; done
	nsenter -t "$pid" --mount --net "${@:2}"
}
# Disks of their own: nodes that share one disturb each other.
for node in n1 n2 n3 n4; do inside $node mount -t tmpfs -o size=300M none "$cluster/vc/nvme"; done
export GANNET_LOCAL=$cluster/vc/nvme
# shellcheck disable=SC2016
preflight() { # GANNET ARG...: n4 runs GANNET-n4, if there is such, and has a clock of its own if there is $cluster/clock.so
	on srun -N4 --ntasks-per-node=1 --mpi=pmix sh -c 'g=$1; shift; [ "$(hostname)" != n4 ] || [ ! -e "$g-n4" ] || g=$g-n4
		[ "$(hostname)" != n4 ] || [ ! -e "$0/clock.so" ] || export LD_PRELOAD="$0/clock.so"
		exec "$g" preflight "$@"' "$cluster" "$@"
}
one() { on srun -N1 --mpi=pmix "$gannet" preflight --seconds 0.05 --min-free 100M "$@"; }
expect 0 "^1 node, [0-9.]* s: nothing found$" "nothing is found on a node that is well" one
# Other programs of this machine are felt on virtual nodes. What follows from measurements tests/jobs/test_preflight shows with given ones.
preflight "$gannet" --min-free 100M --max-skew 1 --out "$cluster/good.json" >"$cluster/good" 2>"$cluster/err"
code=$?
compared() { [[ $(grep -oE '^n[1-4]( +[0-9./e+-]+){7}$' "$cluster/good" | wc -l) == 4 ]] || { cat "$cluster/good" "$cluster/err"; return 1; }; }
check "four nodes are compared" compared
measured() { # CODE: all is measured on all nodes, and only by measurements a node could be found slow
	python3 - "$cluster/good.json" "$1" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
print(r)
names = ["gflop_per_s", "memory_gb_per_s", "disk_write_mb_per_s", "disk_read_mb_per_s", "network_out_gbit_per_s", "network_in_gbit_per_s", "latency_us"]
assert all(h[name] > 0 for h in r["hosts"] for name in names)
assert all(p["text"].split()[0].rstrip(",") in ("processors", "share", "memory", "disk", "network") for p in r["problems"])
assert len(r["hosts"]) == 4 and r["ok"] == (not r["problems"]) and int(sys.argv[2]) == (6 if r["problems"] else 0)
PY
}
check "the result as JSON: no node has anything that others lack" measured $code
narrow() { awk 'length > 80 && !/^n[1-4]: / { exit 1 }' "$cluster/good"; }
check "a table of 80 columns" narrow
expect 3 "is no result of gannet preflight" "a baseline that is none" on srun -N1 --mpi=pmix "$gannet" preflight --baseline "$0"

# n2: its link at a fifth of the rate. n3: its disk full, and a mount point that is missing. n4: another build, and a clock that is 5 s off.
tc qdisc change dev "gnv$id-2" root tbf rate 20mbit burst 64kb latency 50ms
inside n2 tc qdisc change dev eth0 root tbf rate 20mbit burst 64kb latency 50ms
inside n3 dd if=/dev/zero of="$cluster/vc/nvme/full" bs=1M 2>/dev/null
mkdir "$cluster/data"
for node in n1 n2 n4; do inside $node mount -t tmpfs none "$cluster/data"; done
cp "$gannet" "$cluster/gannet"
digest=$("$gannet" --version | sed -n 's/^sources  *//p')
sed "s/$digest/$(rev <<<"$digest")/" "$gannet" >"$cluster/gannet-n4"
chmod +x "$cluster/gannet-n4"
cc -shared -fPIC -o "$cluster/clock.so" -xc - <<'C'
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t which, struct timespec *t)
{
	int failed = (int)syscall(SYS_clock_gettime, which, t);

	if (!failed && which == CLOCK_REALTIME)
		t->tv_sec += 5;
	return failed;
}
C
slow_link="^n2: network (out|in) 0.0[0-3][0-9]* Gbit/s, others 0."
# A link is not blamed where the other links scatter as much, as they do when other programs of this machine take the processors.
for _ in {1..20}; do
	preflight "$cluster/gannet" --min-free 100M --max-skew 1 --mount "$cluster/data" --out "$cluster/bad.json" >"$cluster/found" 2>"$cluster/err"
	code=$?
	! grep -qE "$slow_link" "$cluster/found" || break
done
check "faults give code 6" test $code = 6
found() { expect 0 "$1" "$2" cat "$cluster/found" "$cluster/err"; }
found "$slow_link" "a fifth of the rate of a link"
found "^n3: .*nvme cannot be written: No space left on device" "a full disk"
found "^n3: .*nvme has 0 GB free, --min-free is" "and how much is free"
found "^n3: .*nothing is mounted on $cluster/data" "a mount that is missing"
found "^n4: clock (5|5\.[0-3][0-9]*|4\.[7-9][0-9]*) s ahead of the others'" "a clock"
found "^n4: gannet is 0.2.0 .*, .* on most others" "another build"
# n1, too, where other programs made it slow meanwhile
found "^--exclude=n\[[12]-4\]$" "a line for sbatch"
check "n1 is not blamed for anything that is not measured" bash -c '! grep "^n1:" "$1" | grep -vE "^n1: (processors|share|memory|disk|network)"' x "$cluster/found"
worse() { one --baseline "$cluster/fast.json"; }
python3 - "$cluster/good.json" "$cluster/fast.json" <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
for h in r["hosts"]: h["gflop_per_s"] *= 1000
json.dump(r, open(sys.argv[2], "w"))
PY
expect 6 "^n1: processors .* by the baseline$" "a node is slower than it was" worse
finish
