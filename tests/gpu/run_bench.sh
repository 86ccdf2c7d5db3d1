# shellcheck shell=bash
# For tests/gpu/run, which sources it: the part bench. Of run it uses top, build, gpu, program, cases, part, left and its functions.

bench_kernels() {
	local code slow
	within 200 "$build/bench_kernels" >"$build/kernels.log" 2>&1 </dev/null
	code=$?
	case $code in
	0)
		point ok "bandwidth of every kernel"
		sed 's/^/# /' "$build/kernels.log"
		slow=$(awk 'NR > 2 && $NF < 0.85 { rate = $NF; sub(/ +[0-9.]+ +[0-9.]+ +[0-9]+ +[0-9.]+$/, ""); printf "%s%s %s", n++ ? ", " : "", $0, rate }' \
			"$build/kernels.log" | tr -s ' ')
		target '[[ ! $slow ]]' "our kernels at 85 % of a copy's bandwidth${slow:+, but for: $slow}"
		;;
	77) point ok "bandwidth of every kernel # SKIP $(sed 's/^bench_kernels: //' "$build/kernels.log")" ;;
	*) cut "$code" "bandwidth of every kernel" || { sed 's/^/# /' "$build/kernels.log"; point 'not ok' "bandwidth of every kernel"; } ;;
	esac
}

# Two ranks by UCX on what is here, and by NCCL as many as there are GPUs.
bench_sums() {
	local how
	for how in "2 ucx" "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') nccl"; do
		# shellcheck disable=SC2086 # two words
		set -- $how
		command_point 200 "rates of sums of GPU memory, $1 ranks by $2" . "$program" launch -n "$1" -- "$program" bench allreduce --device cuda \
			--comm "$2" --min-bytes 64K --max-bytes 64M --factor 4
		sed 's/^/# /' "$build/out.log"
	done
}

number() { grep -o "\"$1\": [0-9.]*" | head -n 1 | grep -o '[0-9.]*$'; }
# moves TYPE JSON: what a second computes and moves, and which part that is of what the GPU can: of matrix products as PyTorch has them,
# of copies as bench_kernels has. Batch norms within convolutions move less than is counted.
moves() {
	local matmul copy
	matmul=$(number "matmul_$1_tflop_per_s" <<<"$ceilings")
	copy=$(awk '/^copy by the device/ && $(NF - 1) > most { most = $(NF - 1) } END { print most + 0 }' "$build/kernels.log")
	awk -v rate="$(number images_per_s <<<"$2")" -v batch="$(number batch <<<"$2")" -v flops="$(number step_flops <<<"$2")" \
		-v bytes="$(number step_bytes <<<"$2")" -v matmul="${matmul:-0}" -v copy="${copy:-0}" '
		function part(x, of) { return of > 0 ? sprintf("%.0f %%", 100 * x / of) : "-" }
		BEGIN {
			tflop = flops * rate / batch / 1e12; gb = bytes * rate / batch / 1e9
			printf "%7.0f TFLOP/s, %s of products; %6.0f GB/s, %s of copies", tflop, part(tflop, matmul), gb, part(gb, copy)
		}'
}

# python SECONDS ARGUMENT...: with the caller's environment; what it says of errors follows as a comment, when it fails
python() {
	local code
	bounded "$1" python3 "${@:2}" 2>"$build/python.err" && return
	code=$?
	{ printf '# python3 ended with %d: %s\n' "$code" "${*##*/}"; tail -n 5 "$build/python.err" | sed 's/^/#   /'; } >&3
	return "$code"
}
has_torch() { python 60 -c 'import sys, torch, torchvision; sys.exit(0 if torch.cuda.is_available() else "PyTorch sees no GPU")'; }

# images/s of training, Gannet and PyTorch in turns
bench_steps() {
	local torch='' ceilings='' case type batch model json ours eager compiled ratio best=0 measured=0 wanted
	has_torch && torch=1
	without "training steps" && return
	[[ ! $torch ]] || ceilings=$(python 100 "$top/tests/gpu/peer" ceilings)
	[[ ! $ceilings ]] || printf '# %s\n' "$ceilings"
	printf '# %-11s %-5s %5s %12s %14s %16s %6s\n' model type batch gannet torch-eager torch-compile ratio
	wanted=$(wc -w <<<"${cases//,/ }")
	for case in ${cases//,/ }; do
		IFS=: read -r type batch model <<<"$case"
		model=${model:-resnet50}
		json=$(within 200 "$program" bench train --device cuda --model "$model" --precision "$type" --batch "$batch" --iters 30 \
			--warmup 8 --json 2>"$build/bench.log")
		((!deadline || SECONDS < deadline)) || break
		ours=$(number images_per_s <<<"$json")
		if [[ $ours ]]; then measured=$((measured + 1)); else tail -n 3 "$build/bench.log" | sed 's/^/# /'; fi
		eager=$([[ ! $torch ]] || python 100 "$top/tests/gpu/peer" "$model" "$batch" "$type" eager | number images_per_s)
		compiled=$([[ ! $torch ]] || python 200 "$top/tests/gpu/peer" "$model" "$batch" "$type" compile | number images_per_s)
		ratio=$(awk -v a="${ours:-0}" -v b="${eager:-0}" -v c="${compiled:-0}" 'BEGIN { m = b > c ? b : c; if (m) printf "%.2f", a / m; else print "-" }')
		printf '# %-11s %-5s %5s %12s %14s %16s %6s\n' "$model" "$type" "$batch" "${ours:--}" "${eager:--}" "${compiled:--}" "$ratio"
		[[ ! $ours ]] || printf '#   %s\n' "$(moves "$type" "$json")"
		[[ $ratio == - ]] || target "awk -v r=$ratio 'BEGIN { exit r < 1.3 }'" "$model, $type, batch $batch: $ratio of PyTorch's best, 1.3 wanted"
		[[ $model != resnet50 ]] || best=$(printf '%s\n' "$best" "${ours:-0}" | sort -g | tail -n 1)
	done
	((measured < wanted)) && cut 124 "training steps are timed ($measured of $wanted; the others by --cases)" && return
	point "$( ((measured == wanted)) && echo ok || echo not ok)" "training steps are timed ($measured of $wanted)"
	target "awk -v r=$best 'BEGIN { exit r < 4000 }'" "ResNet-50: $best images/s, 4000 wanted"
}

# From JPEG files to parameters: what training reaches when it has to decode, and how many processors that takes.
from_files() {
	local steps rate each
	rm -rf "$build"/photos{,.jsonl}
	within 100 "$program" pack --out "$build/photos" --synthetic 6400 --classes 10 --size 375x500 >"$build/out.log" 2>&1 || return
	each=$(within 100 "$program" bench decode --data "$build/photos" --bytes --images 500 --iters 3 --loader-threads "$(nproc)" --json |
		number images_per_s_per_core)
	within 400 "$program" train --device cuda --precision bf16 --data "$build/photos" --model resnet50 --batch 128 --epochs 3 \
		--loader-threads "$(nproc)" --log "$build/photos.jsonl" >"$build/out.log" 2>&1 || return
	# of all intervals the fastest: the first ones choose algorithms
	rate=$(grep -o '"images_per_s": [0-9.]*' "$build/photos.jsonl" | grep -o '[0-9.]*$' | sort -g | tail -n 1)
	steps=$(grep -c images_per_s "$build/photos.jsonl")
	[[ $each && $rate ]] || return 1
	printf '# ResNet-50 from JPEG files of 500x375, bf16, batch 128: %s images/s at most in %d intervals, by %d processors; ' \
		"$rate" "$steps" "$(nproc)"
	printf 'one decodes %s a second: %s would do\n' "$each" "$(awk -v a="$rate" -v b="$each" 'BEGIN { print int(a / b + 1) }')"
}

part_bench() {
	local code
	bench_kernels
	bench_steps 3>&1
	without "training from JPEG files, and rates of sums" && return
	from_files
	code=$?
	if ((code == 0)); then
		point ok "training from JPEG files"
	elif ! cut "$code" "training from JPEG files"; then
		tail -n 20 "$build/out.log" | sed 's/^/# /'
		point 'not ok' "training from JPEG files"
	fi
	bench_sums
}
