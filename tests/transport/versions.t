#!/bin/bash
# Ranks of versions that cannot work together: all end at once with code 2, and one sentence names both and their hosts. The other version is
# a copy of the program in which the number of the protocol is changed.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
other=$scratch/gannet-other
perl -pe 's/GNproto\0(.)\0\0\0/"GNproto\0" . chr(1 + ord $1) . "\0\0\0"/e' "$gannet" >"$other"
chmod +x "$other"
check "a copy of another protocol" sh -c '! cmp -s "$1" "$2" && "$2" --version' sh "$gannet" "$other"
cat >"$scratch/rank" <<'RANK'
#!/bin/sh
[ "${PMIX_RANK:-$RANK}" = "$1" ] && program=$3 || program=$2
shift 3
exec "$program" "$@"
RANK
chmod +x "$scratch/rank"
number=$(perl -ne 'print ord $1 if /GNproto\0(.)\0\0\0/' "$gannet")
one="gannet $("$gannet" --version | awk 'NR == 1 { print $2 }') [(]protocol $number, commit [^)]*[)] on $(hostname)"
two="${one/protocol $number/protocol $((number + 1))}"
refused() { # FILE: some rank says it, and none waits
	cat "$1"
	grep -qE "($one cannot work with $two|$two cannot work with $one): start the same program on all nodes" "$1"
}
mixed() { # ODD COMMAND...: 3 ranks under launch
	local began=$SECONDS
	timeout -k 5 300 "$gannet" launch -n 3 -- "$scratch/rank" "$1" "$gannet" "$other" "${@:2}" >"$scratch/out" 2>&1
	[[ $? == 2 ]] && refused "$scratch/out" && ((SECONDS - began < 30)) # of the 60 s that ranks are given to join
}
for odd in 0 1 2; do check "rank $odd of 3 under launch" mixed $odd bench allreduce --max-bytes 1K --iters 2; done
check "preflight" mixed 1 preflight --seconds 0.01 --local "$scratch"
check "exec" mixed 1 exec true
met() { # ODD: 3 ranks with RANK and WORLD_SIZE alone
	local port r pid=() code began=$SECONDS
	port=$(free_port)
	for r in 0 1 2; do
		RANK=$r WORLD_SIZE=3 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -k 5 300 "$scratch/rank" "$1" "$gannet" "$other" \
			bench allreduce --max-bytes 1K --iters 2 >"$scratch/out.$r" 2>&1 &
		pid[r]=$!
	done
	for r in 0 1 2; do
		wait "${pid[r]}"
		code=$?
		[[ $code == 2 ]] && refused "$scratch/out.$r" || { echo "rank $r: code $code"; cat "$scratch/out.$r"; return 1; }
	done
	((SECONDS - began < 30))
}
for odd in 0 1 2; do check "rank $odd of 3 by RANK and WORLD_SIZE, every rank says it" met $odd; done
finish
