#!/bin/bash
# Random deaths while gannet stage runs: one rank, several or all are killed at a random call that changes a copy, once or twice, and the next run goes on.
# A tree on nodes of their own, sometimes over an earlier copy; a packed dataset, by all ranks into one folder; a file from a web server.
# No run hangs; what has its final name is whole, the earlier copy or the new one; the last run makes all copies right.
# GN_FAULTS deaths (9; 200 in tests/long), GN_SEED the first; each is repeated by its own seed.
set -u
# shellcheck source=tests/data/tree.sh
. "$GN_SOURCE/tests/data/tree.sh"
# shellcheck disable=SC2154 # tree.sh sets gannet and work
if [ "$(id -u)" -ne 0 ] || ! unshare --uts true 2>/dev/null; then
	echo "1..0 # SKIP host names of their own need root"
	exit 0
fi
# who is slow on a busy machine is not lost
export UCX_WARN_UNUSED_ENV_VARS=n GANNET_LOG=warn OMP_NUM_THREADS=1 GANNET_JOIN_TIMEOUT=100 GANNET_HEARTBEAT_TIMEOUT=100
kinds=(tree tree update dataset)

odd tree-old 9 40
odd tree-new 14 60
for tree in old new; do
	describe tree-$tree >tree-$tree.is
	grep -av '^[.]|' tree-$tree.is >$tree.is
done
check 'a dataset' "$gannet" pack --out dataset --synthetic 600 --classes 10 --size 96x96 --shard-bytes 1M
head -c 20000000 /dev/urandom >file
dir=$work
# shellcheck source=tests/data/web.sh
. "$GN_SOURCE/tests/data/web.sh"
if [ -z "$no_web" ]; then
	port=$(free_ports 1)
	mkdir www && mv file www && ln -s www/file file && chmod 755 "$work"
	configure nginx <<<"access_log off; server { listen 127.0.0.1:$port; root $work/www; limit_rate 20m; }"
	trap 'stop_servers; chmod -R u+w "$work" 2>/dev/null; rm -rf "$work"' EXIT
	start_server nginx "$port" && kinds+=(web)
fi

# run_stage KIND RANKS ARG...: a rank R with a file die.R is killed right before its call of that number, and leaves dead.R; 0: its calls are
# counted, and are in calls.R
run_stage() {
	# shellcheck disable=SC2016 # for the shell of each rank
	local from=$1 to='at/n$PMIX_RANK' more=()
	case $1 in
	tree | update) from='tree-new' ;;
	dataset) to=at/n0 ;;
	web) from=http://127.0.0.1:$port/file more=(--sha256 "$(sha256sum <file | cut -c 1-64)") ;;
	esac
	rm -f dead.*
	# shellcheck disable=SC2016 # for the shell of each rank
	TO=$to timeout -k 5 300 "$gannet" launch -n "$2" --keep-going --grace 8 -- unshare --uts sh -c 'hostname node$PMIX_RANK; eval "to=$TO"
		[ -e die.$PMIX_RANK ] || exec "$@" --to "$to"
		"$0" "$PWD/at" "$(cat die.$PMIX_RANK)" "$@" --to "$to" >calls.$PMIX_RANK
		code=$?; [ $code != 9 ] || : >dead.$PMIX_RANK; exit $code' "$GN_BUILD/tests/train/kill_at_call" "$gannet" stage --from "$from" "${more[@]}" "${@:3}"
}
# What has a final name is whole.
whole() { # KIND RANKS
	local n shard
	for ((n = 0; n < $2; n++)); do
		[ -e at/n$n ] || continue
		case $1 in
		tree | update)
			# but for the root's own permissions and time, which come last
			describe at/n$n | grep -av '^[.]|' >is
			cmp -s is new.is || { [ "$1" = update ] && cmp -s is old.is; } || { echo "node $n has something else"; return 1; } ;;
		dataset)
			for shard in "at/n$n"/*.h5; do [ ! -e "$shard" ] || cmp "$shard" "dataset/${shard##*/}" || return 1; done
			[ ! -e at/n$n/gannet-dataset.json ] || "$gannet" verify at/n$n || return 1 ;;
		web) cmp at/n$n file || return 1 ;;
		esac
	done
}
complete() { # KIND RANKS
	local n
	for ((n = 0; n < $2; n++)); do
		case $1 in
		tree | update) describe at/n$n >is && cmp is tree-new.is && tidy at/n$n || return 1 ;;
		dataset) "$gannet" verify at/n0 || return 1 ;;
		web) cmp at/n$n file || return 1 ;;
		esac
	done
	[ -z "$(ls -d at/*part at/*fetch* 2>/dev/null)" ]
}
tidy() { [ -e "$1.gannet-stage" ] && [ ! -e "$1.gannet-part" ]; }

# The calls of each rank in a run without a death, once for each kind and number of ranks.
usual_calls() { # KIND RANKS ARG...
	local r
	[ -s "usual.$1.$2" ] || {
		rm -rf at && mkdir at
		for ((r = 0; r < $2; r++)); do echo 0 >die.$r; done
		run_stage "$@" >out 2>&1 || { cat out; return 1; }
		for ((r = 0; r < $2; r++)); do grep -c '^[0-9]' calls.$r; done >"usual.$1.$2"
	}
}
strike() { # KIND RANKS: 0 when a rank has died
	local code
	run_stage "$1" "$2" "${args[@]}" >out 2>&1
	code=$?
	((code != 124 && code != 137)) || { echo 'the run hangs'; cat out; exit 9; }
	rm -f die.*
	compgen -G 'dead.*' >/dev/null
}
# shellcheck disable=SC2030,SC2031 # a subshell, so that each is as its seed says
death() ( # SEED
	RANDOM=$1
	local kind=${kinds[RANDOM % ${#kinds[@]}]} ranks=$((RANDOM % 3 + 2)) usual at victims=() deaths=$((RANDOM % 3 ? 1 : 2)) n r
	args=()
	((RANDOM % 2)) || args=(--threads 1)
	usual_calls "$kind" "$ranks" "${args[@]}" || exit 1
	mapfile -t usual <"usual.$kind.$ranks"
	rm -f die.*
	rm -rf at && mkdir at
	if [ "$kind" = update ]; then
		for ((n = 0; n < ranks; n++)); do stage tree-old at/n$n >out 2>&1 || { cat out; exit 1; }; done
	fi
	for ((; deaths; deaths--)); do
		victims=()
		for ((r = 0; r < ranks; r++)); do ((RANDOM % 3)) || victims+=("$r"); done
		((${#victims[@]})) || victims=($((RANDOM % ranks)))
		for r in "${victims[@]}"; do
			at=$((RANDOM % (usual[r] + 1) + 1))
			echo $at >die.$r
			echo "$kind, $ranks ranks ${args[*]}: $r at call $at of about ${usual[r]}"
		done
		if strike "$kind" "$ranks"; then echo . >>in-time; else echo . >>too-late; fi
		whole "$kind" "$ranks" || { cat out; exit 1; }
	done
	run_stage "$kind" "$ranks" "${args[@]}" >out 2>&1 || { echo "the next run fails"; cat out; exit 1; }
	complete "$kind" "$ranks" || { cat out; ls -la at; exit 1; }
)
# shellcheck disable=SC2031
seed=${GN_SEED:-$((RANDOM + 1))} count=${GN_FAULTS:-9}
echo "# GN_SEED=$seed GN_FAULTS=$count, ${kinds[*]}"
for ((i = seed; i < seed + count; i++)); do check "random deaths, GN_SEED=$i GN_FAULTS=1" death "$i"; done
touch in-time too-late
echo "# $(grep -c . in-time) deaths came while a copy was made, $(grep -c . too-late) when it was over"
((count < 50)) || check 'most come while it is made' test "$(grep -c . in-time)" -gt "$(grep -c . too-late)"
finish
