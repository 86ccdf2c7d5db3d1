# shellcheck shell=bash
# For tests/gpu/run, which sources it: rates and times. Of run it uses top, build, gpu, program, part, log and the functions of
# run_results.sh.

# ResNet-50 on one H100 in MLPerf Training, images/s; and, until they are measured, products in 16 bits that an H100 or H200 reaches with
# cuBLAS, and copies.
mlperf=6956 products=790 copies=0
case $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) in
*H200*) copies=4300 ;;
*H100*) copies=3000 ;;
esac
number() { grep -o "\"$1\": [0-9.]*" | head -n 1 | grep -o '[0-9.]*$'; }
divided() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN { if (b > 0) printf "%.2f", a / b; else print "-" }'; }
larger() { printf '%s\n' "${1:-0}" "${2:-0}" | sort -g | tail -n 1; }

# --- PyTorch ---

# Its answers come from one process for each network, which compiles while the parts before it run.
peer_in='' peer_out='' peer_pid=''
start_peer() { # MODEL BATCH TYPE
	local to from
	coproc PEER { exec setsid python3 "$top/tests/gpu/peer" serve "$@" 2>"$build/peer.err"; }
	peer_pid=$PEER_PID
	# shellcheck disable=SC2034 # by name
	exec {to}>&"${PEER[1]}" {from}<&"${PEER[0]}"
	peer_in=$to peer_out=$from peer_answers=''
	cleanup+=("stop_peer")
}
# pause_peer STOP|CONT: while Gannet is timed
pause_peer() { [[ ! $peer_pid ]] || kill "-$1" -- "-$peer_pid" 2>/dev/null || kill "-$1" "$peer_pid" 2>/dev/null; }
stop_peer() {
	[[ $peer_pid ]] || return 0
	pause_peer KILL
	exec {peer_in}>&- {peer_out}<&-
	wait "$peer_pid" 2>/dev/null
	peer_pid=''
}
# hear_peer: its next line, in $answer; within the part's limit
hear_peer() {
	local left_s=$((part_end ? part_end - SECONDS : 300))
	((left_s > 0)) && read -r -t "$left_s" -u "$peer_out" answer && return
	is_over || { printf '# no PyTorch to compare with:\n'; tail -n 5 "$build/peer.err" | sed 's/^/#   /'; }
	{ echo "PyTorch gave no answer to: $1"; cat "$build/peer.err"; } >"$log"
	keep_log PyTorch "$log"
	stop_peer
	return 1
}
ask_peer() { # QUESTION: $answer, empty when there is none
	answer=''
	[[ $peer_pid ]] || return 1
	if [[ ! $peer_answers ]]; then
		hear_peer "is it ready?" || return
		peer_answers=1
		printf '# PyTorch: %s\n' "$answer"
	fi
	(trap '' PIPE; printf '%s\n' "$1" >&"$peer_in") 2>/dev/null # it may have died
	hear_peer "$1" || { answer=''; return 1; }
	result "PyTorch $1" "$answer"
}
# --- training steps ---

# bench_train SECONDS WHAT OPTION...: $json; the process's log in running.log
bench_train() {
	local seconds=$1 what=$2 code
	shift 2
	logged "$seconds" "$what" "$program" bench train --device cuda "$@" --json
	code=$?
	json=$(grep '^{' "$log" | head -n 1)
	result "$what" "$json"
	[[ $json ]] && return
	tail -n 3 "$log" | comment
	return "$((code ? code : 1))"
}
# How the step runs: its graph, and what convolutions do beside.
ways() {
	local statistics norms data
	statistics=$(grep -o '"pass": "forward with statistics"\|"pass": "norm, relu, forward, statistics"' <<<"$json" | wc -l)
	norms=$(grep -o '"pass": "norm, relu, forward' <<<"$json" | wc -l)
	data=$(grep -o '"pass": "backward data, relu, norm"' <<<"$json" | wc -l)
	printf '%s; %d convolutions with statistics, %d with the batch norm before them forward, %d backward\n' \
		"$(sed -n 's/.*"manner": "\([^"]*\)".*/\1/p' <<<"$json")" "$statistics" "$norms" "$data"
}
# What a second computes and moves, beside what the GPU can: matrix products, and copies as PyTorch or bench_kernels measured them. Batch
# norms within convolutions move less than is counted.
moves() {
	awk -v rate="$(number images_per_s <<<"$json")" -v batch="$(number batch <<<"$json")" -v flops="$(number step_flops <<<"$json")" \
		-v bytes="$(number step_bytes <<<"$json")" -v products="$products" -v copies="$copies" '
		BEGIN {
			tflop = flops * rate / batch / 1e12; gb = bytes * rate / batch / 1e9
			printf "%.0f TFLOP/s of %.0f in products; %.0f GB/s", tflop, products, gb
			if (copies) {
				floor = flops / products / 1e12 > bytes / copies / 1e9 ? flops / products / 1e12 : bytes / copies / 1e9
				printf " of %.0f in copies; the floor that is counted is %.2f ms a step, %.0f images/s", copies, floor * 1e3, batch / floor
			}
			print ""
		}'
}

# The first losses beside those of tests/gpu/losses.txt, which are PyTorch's in float: near at the first step, and on the same way after it.
losses_agree() { # MODEL BATCH
	local want
	want=$(awk -v m="$1" -v b="$2" '$1 == m && $2 == b { $1 = $2 = ""; print }' "$top/tests/gpu/losses.txt")
	grep -o '"losses": \[[^]]*' <<<"$json" | tr -d '",:[a-z' | awk -v want="$want" '{
		n = split(want, w, " ")
		for (i = 1; i <= n; i++) {
			d = $i / w[i] - 1
			if (!(d < (i == 1 ? .005 : .02) && d > (i == 1 ? -.005 : -.02))) bad = 1
		}
		printf "%s; in float %s\n", $0, want
		exit bad || n < 2
	}'
}

steps_row='%-11s %-5s %5s %12s %14s %16s %6s\n'
part_steps() {
	local type code text best=0
	without "training steps" && return
	pause_peer STOP
	# shellcheck disable=SC2059
	printf "$steps_row" model type batch gannet torch-eager torch-compile ratio | table
	for type in bf16 fp16; do
		bench_train 100 "resnet50 $type 256" --model resnet50 --precision "$type" --batch 256 --iters 30 --warmup 8 --init formula
		code=$?
		if ((code)); then
			cut "$code" "ResNet-50 in $type is timed" || point 'not ok' "ResNet-50 in $type is timed"
			continue
		fi
		best=$(larger "$best" "$(number images_per_s <<<"$json")")
		# shellcheck disable=SC2059
		printf "$steps_row" resnet50 "$type" 256 "$(number images_per_s <<<"$json")" - - - | table
		{ ways; moves; } | sed 's/^/  /' | table
		text=$(losses_agree resnet50 256)
		point "$( (($? == 0)) && echo ok || echo not ok)" "ResNet-50 in $type has the reference's losses: $text"
	done
	target "awk -v r=$best 'BEGIN { exit r < $mlperf }'" "ResNet-50: $best images/s; $mlperf is an H100's in MLPerf"
	pause_peer CONT
}

# profile_of MODEL BATCH: the tables, which stand behind the JSON
profile_of() {
	local code
	bench_train 60 "profile of $1 bf16 $2" --model "$1" --precision bf16 --batch "$2" --iters 6 --warmup 3 --profile
	code=$?
	if ((code)); then
		cut "$code" "times of $1's operators" || point 'not ok' "times of $1's operators"
		return
	fi
	sed -n '/^# by kind/,$p' "$log" | grep -v '^{' | table
	point "$(grep -q '"kinds"' <<<"$json" && echo ok || echo not ok)" "times of $1's operators"
}
part_profile() {
	without "times of operators" && return
	pause_peer STOP
	profile_of resnet50 256
	pause_peer CONT
}

# Gannet and PyTorch in turns, MODEL BATCH ROUNDS
in_turns() {
	local ours=0 eager=0 compiled=0 best ratio round
	for ((round = 0; round < $3; round++)); do
		pause_peer STOP
		bench_train 60 "$1 bf16 $2, round $round" --model "$1" --precision bf16 --batch "$2" --iters 20 --warmup 5 || return
		ours=$(larger "$ours" "$(number images_per_s <<<"$json")")
		pause_peer CONT
		ask_peer "eager 15" && eager=$(larger "$eager" "$(number images_per_s <<<"$answer")")
		ask_peer "compile 15" && compiled=$(larger "$compiled" "$(number images_per_s <<<"$answer")")
		if is_over || [[ ! $peer_pid ]]; then break; fi
	done
	best=$(larger "$eager" "$compiled") ratio=$(divided "$ours" "$(larger "$eager" "$compiled")")
	# shellcheck disable=SC2059
	printf "$steps_row" "$1" bf16 "$2" "$ours" "${eager/#0/-}" "${compiled/#0/-}" "$ratio" | table
	{ ways; moves; } | sed 's/^/  /' | table
	if [[ $best == 0 ]]; then
		point ok "$1 beside PyTorch # SKIP it gave no rate; an H100 had $mlperf images/s of ResNet-50 in MLPerf"
	else
		target "awk -v r=$ratio 'BEGIN { exit r < 1.3 }'" "$1, bf16, batch $2: $ratio of PyTorch's best, 1.3 wanted"
	fi
}
turns_part() { # MODEL BATCH ROUNDS
	in_turns "$@" || cut "$?" "$1 in turns with PyTorch" || point 'not ok' "$1 in turns with PyTorch"
}
part_peer() {
	without "PyTorch" && return
	if ask_peer ceilings; then
		printf '# %s\n' "$answer"
		products=$(number matmul_bf16_tflop_per_s <<<"$answer") copies=$(number copy_gb_per_s <<<"$answer")
	fi
	turns_part resnet50 256 2
	stop_peer
}
part_small() {
	without "ResNet-50 with batch 64" && return
	start_peer resnet50 64 bf16
	turns_part resnet50 64 1
	stop_peer
}
part_vit() {
	without "ViT-B/16" && return
	start_peer vit_b_16 128 bf16
	turns_part vit_b_16 128 1
	stop_peer
	profile_of vit_b_16 128
}

# --- others ---

bench_kernels() {
	local slow code
	logged 200 "bandwidth of every kernel" "$build/bench_kernels"
	code=$?
	case $code in
	0)
		point ok "bandwidth of every kernel"
		tail -n +2 "$log" | table
		copies=$(awk '/^copy by the device/ && $(NF - 1) > most { most = $(NF - 1) } END { print most + 0 }' "$log")
		slow=$(awk 'NR > 3 && $NF < 0.85 { rate = $NF; sub(/ +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+$/, ""); printf "%s%s %s", n++ ? ", " : "", $0, rate }' \
			"$log" | tr -s ' ')
		target '[[ ! $slow ]]' "our kernels at 85 % of a copy's bandwidth${slow:+, but for: $slow}"
		;;
	77) point ok "bandwidth of every kernel # SKIP $(sed -n 's/^bench_kernels: //p' "$log")" ;;
	*) cut "$code" "bandwidth of every kernel" || { comment <"$log"; point 'not ok' "bandwidth of every kernel"; } ;;
	esac
}

bench_sums() {
	local how
	for how in "2 ucx" "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') nccl"; do
		# shellcheck disable=SC2086 # two words
		set -- $how
		command_point 200 "rates of sums of GPU memory, $1 ranks by $2" . "$program" launch -n "$1" -- "$program" bench allreduce --device cuda \
			--comm "$2" --min-bytes 64K --max-bytes 64M --factor 4
		tail -n +2 "$log" | table
	done
}

# From JPEG files to parameters: what training reaches when it has to decode, and how many processors that takes.
from_files() {
	local steps rate each
	rm -rf "$build"/photos{,.jsonl}
	logged 100 "packing" "$program" pack --out "$build/photos" --synthetic 1600 --classes 10 --size 375x500 --threads "$(nproc)" || return
	logged 60 "decoding" "$program" bench decode --data "$build/photos" --bytes --images 200 --iters 2 --json || return
	each=$(number images_per_s_per_core <"$log")
	result decoding "$(grep '^{' "$log")"
	logged 200 "training from files" "$program" train --device cuda --precision bf16 --data "$build/photos" --model resnet50 --batch 128 --epochs 4 \
		--loader-threads "$(nproc)" --log "$build/photos.jsonl" --log-every 6 || return
	# of all intervals the fastest: the first ones choose algorithms
	rate=$(grep -o '"images_per_s": [0-9.]*' "$build/photos.jsonl" | grep -o '[0-9.]*$' | sort -g | tail -n 1)
	steps=$(grep -c images_per_s "$build/photos.jsonl")
	[[ $each && $rate ]] || return 1
	printf 'ResNet-50 from JPEG files of 500x375, bf16, batch 128: %s images/s at most in %d intervals, by %d processors; one decodes %s a second: %s would do\n' \
		"$rate" "$steps" "$(nproc)" "$each" "$(awk -v a="$rate" -v b="$each" 'BEGIN { print int(a / b + 1) }')" | table
}
part_files() {
	local code
	without "training from JPEG files" && return
	from_files
	code=$?
	if ((code == 0)); then
		point ok "training from JPEG files"
	elif ! cut "$code" "training from JPEG files"; then
		tail -n 20 "$log" | comment
		point 'not ok' "training from JPEG files"
	fi
}
