#!/bin/bash
# gannet exec on one machine: alone, under gannet launch, by the environment, and under mpirun when there.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
prober=$GN_SOURCE/tests/jobs/exec_probe
export GANNET_LOG=warn
unset CUDA_VISIBLE_DEVICES UCX_NET_DEVICES NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME TF_CONFIG

alone() { timeout -k 5 300 "$gannet" exec "$@"; }
ranks() { launch "$1" "$gannet" exec "${@:2}"; } # N ARG...
right() { # N FRAMEWORK: every process finds itself in the right world
	ranks "$1" --as "$2" "$prober" "$2" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	[[ $(grep -c "probe $2: rank [0-9]* of $1 on 1 nodes is right" "$scratch/out") == "$1" ]]
}
for framework in torch tf horovod deepspeed mpi lightning; do
	check "4 ranks of $framework find each other" right 4 $framework
done
expect 0 "rank 0 of 1 on 1 nodes is right" "a process alone is a world of one" alone "$prober" torch
by_variables() {
	local port r
	port=$(free_port)
	for r in 0 1; do
		RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port alone sh -c 'echo "$RANK of $WORLD_SIZE at $MASTER_PORT"' \
			>"$scratch/$r" 2>&1 &
	done
	wait
	[[ $(cat "$scratch/0" "$scratch/1") == "0 of 2 at $port"$'\n'"1 of 2 at $port" ]] || { cat "$scratch/0" "$scratch/1"; return 1; }
}
check "RANK, WORLD_SIZE and MASTER_* that are set already are where it meets, and stay" by_variables
if command -v mpirun >/dev/null; then
	under_mpirun() {
		timeout -k 5 300 mpirun --allow-run-as-root --oversubscribe -n 3 "$gannet" exec "$prober" torch >"$scratch/out" 2>&1 ||
			{ cat "$scratch/out"; return 1; }
		[[ $(grep -c "rank [0-2] of 3 on 1 nodes is right" "$scratch/out") == 3 ]]
	}
	check "under mpirun" under_mpirun
else
	skip "under mpirun" "it is not installed"
fi
expect 0 "allreduce: 2 ranks" "a program that uses PMIx itself still can" ranks 2 "$gannet" bench allreduce --max-bytes 1K --iters 2
# Rank 1's must not take what rank 0's exec has left with PMIx for the word of rank 0's, which begins when rank 1's waits: at twenty
# looks, one after the other, it is bench and asleep.
late() {
	# shellcheck disable=SC2016
	ranks 2 sh -c 'file=$0; if [ "$RANK" = 1 ]; then echo $$ >"$file.new"; mv "$file.new" "$file"; exec "$@"; fi
		until [ -e "$file" ]; do sleep 0.02; done
		asleep=0; while [ $asleep -lt 20 ]; do sleep 0.02
			if grep -q "(gannet) S" "/proc/$(cat "$file")/stat"; then asleep=$((asleep + 1)); else asleep=0; fi; done
		exec "$@"' "$scratch/first" "$gannet" bench allreduce --max-bytes 1K --iters 2
}
expect 0 "allreduce: 2 ranks" "also where rank 0's is late" late

# --- what is set, and what is said ---
expect 0 "^export RANK=1$" "--dry-run prints each rank's variables" ranks 2 --dry-run --as torch false
# shellcheck disable=SC2016
sources() { ranks 2 --dry-run false >"$scratch/env" && [[ $(. "$scratch/env" && python3 -c 'import json, os; print(json.loads(os.environ["TF_CONFIG"])["task"])') == "{'type': 'worker', 'index': 1}" ]]; }
check "as a shell reads them" sources
keeps() { NCCL_SOCKET_IFNAME=ib7 GANNET_LOG=info alone sh -c 'test "$NCCL_SOCKET_IFNAME" = ib7'; }
expect 0 "set before, and kept: NCCL_SOCKET_IFNAME=ib7 \(not =lo\)" "what the user has set is kept, and said" keeps
printf 'import os\nfrom tensorflow import keras\n' >"$scratch/train.py"
script() { GANNET_LOG=info alone sh -c 'env' "$scratch/train.py"; }
expect 0 "train.py imports tf$" "auto looks at what a script imports" script
plain_tf() { GANNET_LOG=info alone sh -c 'test "$TF_CONFIG" && ! test "$RANK"' "$scratch/train.py"; }
check "and sets nothing of the others" plain_tf
expect 0 "^1: out$" "--label begins lines with the rank" ranks 2 --label -- sh -c 'echo out; echo err >&2'
lost_output() { "$gannet" exec --label -- echo x >/dev/full; }
expect 1 "exit code 0, but cannot write standard output: No space left" "output that is lost is a failure" lost_output
expect 0 "^0: err$" "on standard error, too" ranks 2 --label -- sh -c 'echo out; echo err >&2'
per_node() {
	ranks 3 --per-node sh -c 'echo "$NODE_RANK/$NNODES $PET_NPROC_PER_NODE ${RANK-no} ${PMIX_RANK-no}"' >"$scratch/out" || return 1
	[[ $(cat "$scratch/out") == "0/1 3 no no" ]]
}
check "--per-node starts one launcher, without variables of a rank" per_node
shares() {
	local all
	all=$(nproc)
	((all > 1)) || return 0
	[[ $(ranks "$all" sh -c 'grep Cpus_allowed_list /proc/self/status' | sort -u | wc -l) == "$all" &&
		$(ranks "$all" --bind none nproc | sort -u) == "$all" ]]
}
bound() { timeout -k 5 300 "$gannet" launch -n "$(nproc)" --bind none -- "$gannet" exec sh -c 'grep Cpus_allowed_list /proc/self/status' | sort -u | wc -l; }
expect 0 "^$(nproc)$" "processes share the processors" bound

# --- a wrong world is refused before anything starts ---
refused() { # SETTING... -- ARG...: for two ranks
	rm -f "$scratch/started"
	local set=()
	while [[ $1 != -- ]]; do set+=("$1"); shift; done
	env "${set[@]}" timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" exec "${@:2}"
	local code=$?
	[[ ! -e $scratch/started ]] || echo "it was started"
	return $code
}
start=(touch "$scratch/started")
expect 2 "PMIx says there are 2 ranks but WORLD_SIZE=4" "WORLD_SIZE that disagrees" refused RANK=0 WORLD_SIZE=4 -- "${start[@]}"
expect 2 "rank 1 on .*nowhere.invalid.*cannot find the address.*unset MASTER_ADDR" "a MASTER_ADDR that does not resolve" \
	refused MASTER_ADDR=nowhere.invalid MASTER_PORT=29500 -- "${start[@]}"
expect 2 "rank 0 on .*MASTER_PORT=70000 is no port" "a MASTER_PORT that is none" refused MASTER_PORT=70000 -- "${start[@]}"
taken() {
	perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 1, LocalAddr => "0.0.0.0") or exit 9; $ENV{MASTER_PORT} = $s->sockport;
		exit(system(@ARGV) >> 8)' timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" exec "${start[@]}"
}
expect 2 "MASTER_PORT: cannot listen on port [0-9]*: Address already in use; unset it" "a MASTER_PORT that is taken" taken
expect 2 "rank 0 on .*: there is no program nosuchprogram in PATH" "a program that is not there" refused X=1 -- nosuchprogram
printf '#!/no/such/python3 -u\n' >"$scratch/nowhere.py"
printf '#!/bin/sh\r\n' >"$scratch/crlf.sh"
printf '#!/usr/bin/env -S A=1 sh\r\n' >"$scratch/env.sh"
printf '#!/usr/bin/env sh\ntest "$1" = x\n' >"$scratch/right.sh"
chmod +x "$scratch"/{nowhere.py,crlf.sh,env.sh,right.sh}
expect 2 "rank 0 on .*: line 1 of .*nowhere.py names the interpreter /no/such/python3, which is not there on this host: install it" \
	"a script whose interpreter is not there" refused X=1 -- "$scratch/nowhere.py"
for name in crlf env; do
	expect 2 "names the interpreter (/bin/)?sh.x0d, which .*: the file has line ends of Windows.*: sed -i 's/.r[$]//' .*/$name.sh$" "$name.sh with CR LF" \
		refused X=1 -- "$scratch/$name.sh"
done
check "env with LF is fine" alone "$scratch/right.sh" x
gone() { mkdir "$scratch/gone" && cd "$scratch/gone" && rmdir "$scratch/gone" && "$@"; }
expect 2 "no program that can be run here: No such file or directory; the working folder of this process does not exist any more" "a working folder that was removed" \
	gone alone ./program
expect 0 "WARN .* exec: the working folder of this process does not exist any more" "which the program may not need" gone alone true
expect 2 "SLURM_NTASKS=4, but this is one process" "one process where four were meant" env SLURM_JOB_ID=1 SLURM_NTASKS=4 "$gannet" exec true
expect 0 "" "unless --single says that it is meant" env SLURM_JOB_ID=1 SLURM_NTASKS=4 "$gannet" exec --single true
expect 2 "SLURM_STEP_NUM_TASKS=4 but there is no PMIx" "a step without PMIx" env SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 "$gannet" exec true
expect 2 "--ps 3 leaves no chief and worker among 4 ranks" "too many parameter servers" ranks 4 --ps 3 true
once() { [[ $(refused MASTER_PORT=70000 -- true 2>&1 | grep -c 'gannet exec') == 1 ]]; }
check "a refusal is said once" once

# --- failures ---
expect 7 "rank 2 on .* failed first, after [0-9.]* s: exit code 7; its last lines:" "the rank that fails is named, its code is exec's" \
	ranks 4 "$prober" torch 2 7
expect 7 "^gannet exec:   RuntimeError: as asked$" "with its last lines" ranks 4 "$prober" torch 2 7
expect 137 "rank 0 on .* failed first, .*: killed by signal 9 \(Killed\)" "a signal is named, the code is 128 and its number" \
	ranks 2 "$prober" torch 0 -9
told_once() { [[ $(ranks 4 sh -c 'exit 3' 2>&1 | grep -c "failed first") == 1 ]]; }
check "when all fail, one is told of" told_once
# Rank 1 ignores SIGTERM before rank 0 fails, and never ends by itself.
stubborn() {
	# shellcheck disable=SC2016
	UP=$scratch/up ranks 2 --grace 1 sh -c 'if [ "$RANK" = 0 ]; then until [ -e "$UP" ]; do sleep 0.02; done; exit 9; fi
		trap "" TERM; : >"$UP"; while :; do sleep 0.02; done'
}
expect 9 "rank 0 on .* failed first" "one that does not end by SIGTERM is killed" stubborn
orphans() {
	# shellcheck disable=SC2016
	alone sh -c 'setsid sleep 1000 & echo $! >"$0"' "$scratch/pid" && ! kill -0 "$(cat "$scratch/pid")" 2>/dev/null
}
check "nothing that the program starts outlives exec" orphans
lost() {
	timeout -k 5 300 "$gannet" launch -n 2 -- sh -c 'echo "$PMIX_RANK $$" >>"$0"; exec "$@"' "$scratch/pids" "$gannet" exec sleep 1000 2>"$scratch/err" &
	local pid=$! victim
	await_line 2 . "$scratch/pids" || return 1
	victim=$(awk '$1 == 1 { print $2 }' "$scratch/pids")
	until pgrep -x -P "$victim" sleep >/dev/null; do kill -0 "$victim" || return 1; sleep 0.05; done
	kill -9 "$victim"
	wait $pid
	cat "$scratch/err"
	grep -q "gannet exec: rank 1 on .* is lost: its connection closed" "$scratch/err" && ! pgrep -P "$victim" >/dev/null
}
check "an exec that is killed takes its program along, and the others are told" lost
passes_on() { # SIGNAL CODE
	rm -f "$scratch/out"
	# shellcheck disable=SC2016
	timeout -k 5 300 "$gannet" exec sh -c 'trap "echo got; exit $1" "$0"; echo up; while :; do sleep 0.05; done' "$1" "$2" >"$scratch/out" 2>&1 &
	local pid=$!
	await_line 1 '^up' "$scratch/out" || return 1
	kill -"$1" "$(pgrep -P $pid)"
	wait $pid
	[[ $? == "$2" && $(grep -c got "$scratch/out") == 1 ]]
}
for signal in TERM INT USR1 USR2 HUP; do
	check "SIG$signal is passed on, once" passes_on $signal 5
done

interrupted() {
	rm -f "$scratch/out"
	timeout -k 5 300 "$gannet" exec sh -c 'echo up; exec sleep 1000' >"$scratch/out" 2>&1 &
	local pid=$!
	await_line 1 '^up' "$scratch/out" || return 1
	kill -INT "$(pgrep -P $pid)"
	wait $pid
	[[ $? == 130 ]] && grep -q 'stopped by signal 2 (Interrupt), which gannet exec received' "$scratch/out"
}
check "an interrupt is not called a failure of the program" interrupted

# --- out of memory ---
group=
for parent in "/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)" "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)"; do
	[[ ! $group && -e $parent/cgroup.procs ]] && mkdir "$parent/gn-exec-$$" 2>/dev/null && group=$parent/gn-exec-$$
done
limit() { echo 100663296 >"$group/memory.limit_in_bytes" || echo 100663296 >"$group/memory.max"; }
if [[ $group && ! ${GN_SANITIZED:-} ]] && limit 2>/dev/null; then
	hungry() { # exec or launch
		# shellcheck disable=SC2016
		sh -c 'echo $$ >"$0/cgroup.procs" && shift && exec timeout -k 5 300 "$@"' "$group" x "$gannet" "$@" python3 -c 'b"x" * (1 << 30)'
	}
	expect 137 "rank 0 on .*: killed by signal 9 \(Killed\): out of memory, its cgroup's limit is 0.09 GiB" "out of memory is named" hungry exec
	expect 4 "rank 0 was killed by signal 9 \(Killed\): out of memory, its cgroup's limit is 0.09 GiB" "by launch, too" hungry launch -n 1 --
else
	skip "out of memory is named, by launch, too" "no control group can be made here, or a sanitizer needs more"
fi
[[ ! $group ]] || rmdir "$group"
finish
