# shellcheck shell=bash
# What tests of train --elastic and of lost workers share: runs under gannet launch, signals to their ranks, and what came of them. Source it.
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
jsonl=$GN_SOURCE/tests/cmd/jsonl
export UCX_WARN_UNUSED_ENV_VARS=n GANNET_LOG=warn OMP_NUM_THREADS=1
train=(train --data "$scratch/train" --model lenet --lr 0.02 --batch 16 --threads 1 --loader-threads 1 --schedule constant)
pipes=() # of more than one rank
planned=() # of planned runs

# begin NAME RANKS LINES OPTION...: a run in the background, until NAME.jsonl has so many steps. Each rank leaves its process in NAME.RANK.pid,
# and its code in NAME.RANK.code
on_node=() # what puts a rank on a node of its own
begin() {
	# shellcheck disable=SC2016
	timeout -k 5 300 "$gannet" launch -n "$2" --keep-going -- sh -c 'run=$1; shift; "$@" &
		echo $! >"$run.$PMIX_RANK.pid"; wait $!; code=$?; echo $code >"$run.$PMIX_RANK.code"; exit $code' sh "$scratch/$1" \
		"${on_node[@]}" "$gannet" "${train[@]}" "${pipes[@]}" --log "$scratch/$1.jsonl" "${@:4}" 2>"$scratch/$1.err" &
	launcher=$!
	await_line "$3" '"event": "step"' "$scratch/$1.jsonl"
}
# more_steps NAME COUNT: until the log has so many lines of steps more than now
more_steps() { await_line $(($2 + $(grep -c '"event": "step"' "$scratch/$1.jsonl"))) '"event": "step"' "$scratch/$1.jsonl"; }
send() { # SIGNAL NAME RANK...
	local rank pids=()
	for rank in "${@:3}"; do pids+=("$(cat "$scratch/$2.$rank.pid")"); done
	kill -"$1" "${pids[@]}"
}
# kills NAME RANKS VICTIMS OPTION...: ranks of a run that does not end by itself, so that none comes too late; when the others have gone on for some
# steps, all of them are asked to stop.
kills() {
	local rank rest=()
	begin "$1" "$2" 2 --steps 1000000 "${@:4}" || return 1
	# shellcheck disable=SC2086 # a list
	send KILL "$1" $3
	for ((rank = 0; rank < $2; rank++)); do [[ " $3 " == *" $rank "* ]] || rest+=("$rank"); done
	until_true over_or_went_on "$1" || return 1
	! kill -0 "$launcher" 2>/dev/null || { more_steps "$1" 3 && send TERM "$1" "${rest[@]}"; }
	wait "$launcher"
	true
}
over_or_went_on() { ! kill -0 "$launcher" || grep -q '"event": "resume"' "$scratch/$1.jsonl"; }
codes() { # NAME RANKS
	for ((r = 0; r < $2; r++)); do cat "$scratch/$1.$r.code"; done | tr '\n' ' '
}
field() { "$jsonl" "$scratch/$1.jsonl" "${@:2}"; }
# as_planned NAME [back]: the parameters are those of a run of as many ranks at each step that is stopped and started again. With sanitizers the
# ledger alone: that run loses nobody, and bits are compared in every other build.
as_planned() {
	local ranks until
	"$GN_SOURCE/tests/train/elastic_ledger" "$scratch/$1.jsonl" ${2:+"$2"} >"$scratch/$1.worlds" || return 1
	cat "$scratch/$1.worlds"
	[[ ! ${GN_SANITIZED:-} ]] || return 0
	while read -r ranks until; do
		((ranks > 1)) || local pipes=()
		timeout -k 5 300 "$gannet" launch -n "$ranks" -- "${on_node[@]}" "$gannet" "${train[@]}" "${pipes[@]}" "${planned[@]}" --global-batch "$(field "$1" start global_batch)" --steps "$until" \
			--checkpoint "$scratch/$1.planned" --resume auto --log "$scratch/$1.planned.jsonl" || return 1
	done <"$scratch/$1.worlds"
	[[ $(cat <(field "$1" end params_sha256) <(field "$1" stop params_sha256)) == "$(field "$1.planned" end params_sha256 | tail -n 1)" ]]
}
