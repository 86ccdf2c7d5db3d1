# shellcheck shell=bash
# Part of bench/peers/run: RDMA between the two machines of tests/rdma/cluster, soft RoCE under emulation. Open MPI goes by the same
# UCX, transport and device. Times are those of emulated processors: they compare, and say nothing of real adapters.
: "${top:?}" "${out:?}" "${gannet:?}" "${rounds:?}" "${quick?}"
lab_dir=/tmp/gannet-peers-lab-$$
lab() { "$top/tests/rdma/cluster" "$1" "$lab_dir" "${@:2}"; }

lab_up() {
	export GN_CLUSTER_LIFE=3000 GN_CLUSTER_SECONDS=2900
	lab up 2>"$out/log/lab" || { note "verbs are left out: $(tail -n 1 "$out/log/lab")"; return 1; }
	(umask 077 && head -c 32 /dev/urandom >"$lab_dir/secret")
	lab run 2 "$top/bench/peers/shell" --serve 10.77.0.2 >"$out/log/shell" 2>&1 &
	export GN_CLUSTER_SECONDS=170 top lab_dir
}

in_guests() { # GANNET-COMMAND...
	local rank start code=0
	for rank in 1 0; do
		start=("$top/tests/rdma/cluster" run "$lab_dir" "$((rank + 1))" env "RANK=$rank" WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=10.77.0.1
			MASTER_PORT=29500 GANNET_RAILS=1 GANNET_LOG=warn GANNET_SECRET_FILE="$lab_dir/secret" UCX_WARN_UNUSED_ENV_VARS=n "$gannet" "$@")
		if ((rank)); then "${start[@]}" >/dev/null & else "${start[@]}" || code=$?; fi
	done
	wait $! && return "$code"
}
# As its user would, once.
verbs_tune() {
	in_guests tune --transport rc --max-bytes 4194304 --out "$lab_dir/tuning.jsonl" >"$out/log/tune-verbs" 2>&1 ||
		{ note "gannet tune failed between emulated machines: $(tail -n 1 "$out/log/tune-verbs")"; failed=1; }
}
verbs_gannet() { # ARG...
	in_guests bench allreduce --json --transport rc --tuning "$lab_dir/tuning.jsonl" "$@"
}
verbs_openmpi() { # ARG...
	# shellcheck disable=SC2016 # the guest's own index
	"$top/tests/rdma/cluster" run "$lab_dir" 1 bash -c 'mpirun.openmpi --allow-run-as-root -np 2 --host 10.77.0.1,10.77.0.2 \
		--mca plm_rsh_agent "$0" --mca oob_tcp_if_include eth0 --mca pml ucx --mca btl self --mca osc ucx \
		-x UCX_TLS=rc,self -x UCX_NET_DEVICES=rxe0:1 -x UCX_IB_GID_INDEX "$@"' \
		"$top/bench/peers/shell" "$out/openmpi" --nodes 2 "$@"
}
export -f in_guests verbs_gannet verbs_openmpi
export gannet

in_verbs() {
	local round program
	local many=(--min-bytes 8 --max-bytes 4194304 --factor 2 --iters 100 --warmup 5 --row-ms 300 --place in)
	[[ ! $quick ]] || many=(--min-bytes 8 --max-bytes 2097152 --factor 8 --iters 50 --warmup 3 --row-ms 200 --place in)
	is_there openmpi || { note "verbs are left out: nobody to compare with"; return; }
	verbs_tune
	for ((round = 1; round <= rounds; round++)); do
		say "verbs between 2 emulated machines, round $round"
		for program in openmpi gannet; do
			measure verbs "$program" "$round" bash -c "verbs_$program \"\$@\"" "$program" "${many[@]}"
		done
	done
}
