#!/bin/bash
# The script for a GPU machine without package registries, as far as it goes without a GPU: libraries are packed, all is built from
# them once, and what needs a GPU is skipped; then what it does with one that is only claimed, and programs that stand in for it.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
	skip "tests/gpu/run without a GPU" "there is one: run it"
	finish
fi
toolkit=$(sed -n "s,^CUDA_CPPFLAGS='-isystem \([^ ]*\)/include .*,\1,p" "$GN_BUILD/config.log")
build=$scratch/build

check "libraries are packed" "$GN_SOURCE/tests/gpu/libs" "$gannet" "$scratch/libs.tar.gz"
contents() {
	tar -tf "$scratch/libs.tar.gz" >"$scratch/list" || return 1
	! grep -E '/lib(resolv|c|m|dl|pthread|nss_[a-z]*|util)\.so' "$scratch/list" && grep -q '/include/nccl.h$' "$scratch/list"
}
check "none of the C library's, but NCCL's header" contents

# A python3 that notes where it would look for libraries, and has what PyTorch brings with CUDA 13, but for PyTorch.
release=$("$toolkit/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
wheels=$scratch/site/nvidia
mkdir -p "$scratch/bin" "$wheels/cu$release"/{include,lib} "$wheels"/{cudnn,nccl}/{include,lib} "$wheels/cu$((release - 1))/include"
echo '#error of another release' >"$wheels/cu$((release - 1))/include/cublasLt.h"
cat >"$scratch/bin/python3" <<PYTHON
#!/bin/bash
printf '%s\n' "\${LD_LIBRARY_PATH-none}" >>"$scratch/python.paths"
case "\$*" in
*/peer*)
	[[ -e $scratch/has-torch ]] || { echo "ImportError: of PyTorch's own" >&2; exit 1; }
	echo '{"ready": "it"}'
	while read -r mode steps; do echo "{\"mode\": \"\$mode\", \"images_per_s\": \${steps:-2}00.0, \"copy_gb_per_s\": 3000}"; done ;;
*) PYTHONPATH=$scratch/site exec $(command -v python3) "\$@" ;;
esac
PYTHON
chmod +x "$scratch/bin/python3"
# A copy, whose files and revision nobody changes meanwhile. All is compiled in it once, without optimizing, which nothing here needs.
tree=$scratch/tree
mkdir -p "$tree/tests"
cp -r "$GN_SOURCE"/{kernels,src,transport,data,configure.ac} "$tree"
cp -r "$GN_SOURCE"/tests/{gpu,kernels,transport,golden} "$tree/tests"
printf '#!/bin/bash\nexec %s "${@/#-O2/-O0}"\n' "$(command -v gcc)" >"$scratch/bin/unoptimized"
chmod +x "$scratch/bin/unoptimized"
export CC=$scratch/bin/unoptimized NVCC_APPEND_FLAGS='-Xptxas -O0 -Xcompiler -O0'
export GN_PATIENCE=10 # limits of parts are for a GPU
run() { # OPTION...
	PATH=$scratch/bin:$PATH timeout -k 5 600 "$tree/tests/gpu/run" --build "$build" --arch 90 "$@" >"$scratch/out" 2>&1 && return
	cat "$scratch/out"
	return 1
}
# ends CODE COMMAND...
ends() {
	local code=$1
	shift
	"$@" >"$scratch/ends"
	[[ $? == "$code" ]] || { cat "$scratch/ends"; return 1; }
}
said() { grep -qE -e "$1" "$scratch/out" || { cat "$scratch/out"; return 1; }; }
unset LD_LIBRARY_PATH
refused() { # WORDS OPTION...: before anything is done
	local code
	PATH=$scratch/bin:$PATH "$tree/tests/gpu/run" "${@:2}" >"$scratch/out" 2>&1
	code=$?
	((code == 2)) && said "^tests/gpu/run: $1"
}
mkdir "$scratch/full" && touch "$scratch/full/output.txt"
tar -C "$scratch" -czf "$scratch/none.tar.gz" full
check "two calls in one" refused '--first and --second' --first --second
check "a word that is no option" refused 'no option is called first' first
check "an empty list of parts" refused '--only needs a value' --only ''
check "a folder that has results" refused '.*earlier call' --results "$scratch/full" --build "$scratch/none"
check "what are no plans" refused '.*holds no plans' --plans "$scratch/none.tar.gz" --build "$scratch/none"
head -c 30 "$scratch/none.tar.gz" >"$scratch/damaged.tar.gz"
check "what is damaged" refused '.*or is damaged' --plans "$scratch/damaged.tar.gz" --build "$scratch/none"
echo $$ >"$scratch/full/pid"
check "a build folder in which somebody works" refused 'process .* works in' --build "$scratch/full"

check "a deadline before anything is built is no failure" run --cuda "$toolkit" --libs "$scratch/libs.tar.gz" --deadline 1 --only plans,train
check "with the reason" said '^ok .* # SKIP cut after 1 s$'
check "and what is left" said '^# .* go on with --only plans,train$'
check "what are no libraries are refused" ends 1 run --cuda "$toolkit" --libs /etc/hostname --only build
check "only the build" run --cuda "$toolkit" --libs "$scratch/libs.tar.gz" --only build
check "kernels and operators" said '^ok 1 - kernels build for sm_90'
check "all of Gannet, without oneDNN" said '^ok 2 - all of Gannet builds: [1-9]'
check "and nothing else" said '^1\.\.2$'
once() { # of two objects with one function, one of which is for builds without CUDA, an archive gives either
	local twice
	twice=$(find "$build/objects" -name '*.o' ! -name 'tests-*' -exec nm --defined-only {} + | awk '$2 == "T" { print $3 }' | sort | uniq -d)
	[[ ! $twice && $(find "$build/objects" -name '*.o' | wc -l) -gt 100 ]] || { echo "$twice"; return 1; }
}
check "every function is defined once" once
no_onednn() { ! find "$build/objects" -name '*.o' -exec nm -A --undefined-only {} + | grep ' U dnnl_'; }
check "nothing needs oneDNN" no_onednn
check "all parts, with what was kept" run --cuda "$toolkit"
check "which builds nothing" said '^ok 1 - kernels build .*: 0 objects compiled, [1-9][0-9]* kept$'
check "of Gannet neither" said '^ok 2 - all of Gannet builds: 0 objects compiled, [1-9][0-9]* kept$'
check "cuDNN plans for GPUs that are described" said 'plans of cuDNN: [1-9]'
check "ranks of what was built meet" said '^ok .* ranks say that there is no GPU$'
order() { # of lines
	local last=0 line pattern
	for pattern in '- a few operators' '- training steps' '- every kernel' '- every operator' 'bandwidth of' 'on the digits' 'references on' \
		'sanitizer memcheck' 'that share GPUs' 'sanitizer racecheck'; do
		line=$(grep -n -m 1 "^ok .*$pattern" "$scratch/out" | cut -d: -f1)
		((${line:-0} > last)) || { echo "$pattern: line ${line:-none} behind $last"; return 1; }
		last=$line
	done
}
check "what is worth most comes first" order
# By then the time is over, also on a machine where all that is there takes less than a second.
late() {
	printf '#!/bin/sh\nsleep 1.1\nexec %s "$@"\n' "$(command -v sha256sum)" >"$scratch/bin/sha256sum"
	chmod +x "$scratch/bin/sha256sum"
	run --cuda "$toolkit" --deadline 1 --only plans,kernels && said 'go on with --only plans,kernels'
	local code=$?
	rm "$scratch/bin/sha256sum"
	return $code
}
check "a deadline skips what comes behind it" late

# A toolkit with neither cuBLAS, cuDNN nor NCCL, which lie where the packages of CUDA 13 have them: what names the toolkit is compiled anew.
mkdir -p "$scratch/cuda"/{include,lib64}
ln -s "$toolkit/bin" "$scratch/cuda/bin"
for file in "$toolkit"/include/* "$toolkit"/lib64/*; do
	part=$(basename "$(dirname "$file")")
	case ${file##*/} in
	cublas* | libcublas*) to=$wheels/cu$release/${part%64} ;;
	libnvrtc*) to=$wheels/cu$release/lib ;;
	cudnn* | libcudnn*) to=$wheels/cudnn/${part%64} ;;
	nccl* | libnccl*) to=$wheels/nccl/${part%64} ;;
	*) to=$scratch/cuda/$part ;;
	esac
	ln -s "$file" "$to/"
done
# That is all, although the tree lies elsewhere, with other times.
mv "$tree" "$scratch/moved"
tree=$scratch/moved
find "$tree" -type f -exec touch {} +
check "CUDA 13 as PyTorch brings it" run --cuda "$scratch/cuda" --only kernels
check "cuBLAS beside the others of CUDA 13" said "^# cublasLt.h: $wheels/cu$release/include$"
check "its library" said "^# libcublasLt.so.$release: $wheels/cu$release/lib$"
check "cuDNN in its own" said "^# libcudnn.so.9: $wheels/cudnn/lib$"
check "NCCL's header as it was packed" said "^# nccl.h: $build/libs/usr/include$"
check "few are compiled anew" said '^ok 1 - .*: [1-9] objects compiled'
check "of Gannet no more either" said '^ok 2 - .*: [1-9] objects compiled'
check "and cuDNN plans" said 'plans of cuDNN: [1-9]'

# A GPU is claimed. The program is the one that is tested on emulated GPUs, with a smaller network and, for what is compared, other numbers.
cat >"$scratch/bin/nvidia-smi" <<'SMI'
#!/bin/sh
case $* in
*"-l 1"*) for i in $(seq 3000); do echo "sample $i"; sleep 0.2; done ;;
*compute_cap*) echo 9.0 ;; *name*) echo "NVIDIA L40S" ;; *) echo "GPU 0: one" ;; esac
SMI
emulated=$GN_BUILD/tests/gpu/gannet_emulated
cat >"$build/gannet" <<PROGRAM
#!/bin/bash
printf '%s %s\n' "\$LD_LIBRARY_PATH" "\$*" >>"$scratch/program.calls"
case "\$*" in
*'bench train'*)
	args="\$* --side 28 --warmup 2 --iters 2"
	args=\${args/--batch 256/--batch 2} args=\${args/--batch 64/--batch 2} args=\${args/--batch 128/--batch 2}
	args=\${args/resnet50/lenet} args=\${args/vit_b_16/lenet}
	OMP_NUM_THREADS=1 "$emulated" \$args 2>"$scratch/tables" >"$scratch/json" || exit
	sed -e "s/\"images_per_s\": [0-9.]*/\"images_per_s\": \$(cat "$scratch/rate")/" -e "s/\"losses\": [^]]*/\"losses\": [\$(cat "$scratch/losses")/" \
		"$scratch/json"
	cat "$scratch/tables" >&2 ;;
*'bench decode'*) echo '{"images_per_s_per_core": 50.0}' ;;
*'train --device'*) echo '{"images_per_s": 120.5}' >$build/photos.jsonl; echo trained on it ;;
*eval*) echo '{"top1": 0.99}' ;;
*selftest*) echo within all bounds ;;
*) echo fine ;;
esac
PROGRAM
for name in kernels ops plan; do printf '#!/bin/sh\necho "ok 1 - it"\necho 1..1\n' >"$build/test_$name"; done
printf '#!/bin/sh\necho "copy by the device 10.0 1.0 3000 1.0"\n' >"$build/bench_kernels"
chmod +x "$scratch/bin/nvidia-smi" "$build"/{gannet,test_*,bench_kernels}
echo 7000.5 >"$scratch/rate"
awk '$1 == "resnet50" && $2 == 256 { print $3 ", " $4 ", " $5 }' "$GN_SOURCE/tests/gpu/losses.txt" >"$scratch/losses"
printf 'echo "ok 1 - sums"; echo 1..1\n' >"$tree/tests/gpu/comm.t"
mkdir -p "$build/cache/gannet/cudnn" && echo plan >"$build/cache/gannet/cudnn/it.plan"
calls=0
fresh() { home=$scratch/results-$((++calls)); } # for the results of a call
fresh

check "without PyTorch" run --cuda "$scratch/cuda" --only peer --results "$home"
check "the reason is told, and what stands in its place" said "^# +ImportError: of PyTorch's own"
check "beside Gannet's rate" said '^# resnet50 +bf16 +256 +7000.5 +- +- +-$'
touch "$scratch/has-torch"
fresh
check "the first call" run --cuda "$scratch/cuda" --first --results "$home"
steps() {
	said '^# resnet50 +bf16 +256 +7000.5 +- +- +-$' && said '^# resnet50 +fp16 +256 +7000.5' && said '^# +on emulated.* one graph of [0-9]+ nodes; [0-9]+ convolutions with statistics' &&
		said '^# +[0-9]+ TFLOP/s of 790 in products' && said "^ok .* ResNet-50 in bf16 has the reference's losses: " &&
		said '^ok .* 7000.5 images/s; 6956 is an H100'
}
check "says how steps run, and whether their losses are right" steps
check "beside PyTorch, eager and compiled" said '^# resnet50 +bf16 +256 +7000.5 +1500.0 +1500.0 +4.67$'
check "with the operators' times" said '^# 2 x convolution +[0-9.]+ '
check "and the rest" said '^# ResNet-50 from JPEG .*: 120.5 images/s .*: 3 would do'
brought() { # what comes home, and nothing else
	ls "$home"
	[[ $(ls "$home" | sort | tr '\n' ' ') == "bench.jsonl logs.txt output.txt plans.tar.gz table.txt tests.tap " ]] && diff "$home/output.txt" "$scratch/out" &&
		diff <(grep -E '^(ok|not ok|1\.\.)' "$home/output.txt") "$home/tests.tap" && tar -tzf "$home/plans.tar.gz" >"$scratch/list"
}
check "results are there, what was printed is among them" brought
lines() {
	python3 - "$home/bench.jsonl" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
parts = {row["part"] for row in rows}
assert parts == {"steps", "profile", "peer", "files"}, parts
assert len([r for r in rows if r["part"] == "steps"]) == 2 and any("profile" in r["result"] for r in rows)
assert [r["result"]["mode"] for r in rows if r["what"].startswith("PyTorch") and r["part"] == "peer"] == ["ceilings"] + ["eager", "compile"] * 2, rows
PY
}
check "every benchmark's JSON, a line each" lines
logs() { grep -q '^==== .*, digits: resnet20 trains' "$home/logs.txt" && grep -q '^\$ .*bench train.*--profile' "$home/logs.txt" && grep -q 'x convolution' "$home/table.txt"; }
check "a log of each part, and tables" logs
samples() { grep -A1 '^==== .*the GPU, once a second' "$home/logs.txt" | grep -q '^sample ' && [[ ! $(tr -dc '\0' <"$home/logs.txt" | tr '\0' 0) ]]; }
check "and what the GPU did meanwhile" samples
earlier=$home
fresh
check "the second call" run --cuda "$scratch/cuda" --second --results "$home" --plans "$earlier/plans.tar.gz"
check "with the plans of the first" said '^# .* 1 cuDNN plans brought along'
check "has the rest" said '^# vit_b_16 +bf16 +128 +7000.5 +1500.0'
check "and rates of sums" said '^ok .*rates of sums of GPU memory, 1 ranks by nccl'

echo 150.0 >"$scratch/rate"
echo '7.93, 7.66, 8.5, 7' >"$scratch/losses"
fresh
check "a rate that is wanted is none of the failures, losses are" ends 1 run --cuda "$scratch/cuda" --only steps --results "$home"
check "a speed is wanted of every GPU, whatever its name" said '^not ok .* ResNet-50: 150.0 images/s; 6956 .* # TODO'
check "losses that leave the reference's way are named" said "^not ok .* ResNet-50 in bf16 has the reference's losses: "
printf '#!/bin/sh\necho "not ok 1 - blocking: $CUDA_LAUNCH_BLOCKING"\necho 1..1\nexit 1\n' >"$build/test_kernels"
fresh
check "what fails" ends 1 run --cuda "$scratch/cuda" --only kernels --results "$home"
check "runs once more, each kernel to its end" grep -q '^not ok 1 - blocking: 1$' "$home/failures.txt"
check "and its first output is kept, too" grep -q '^not ok 1 - blocking: $' "$home/logs.txt"

# Who is killed leaves what it had, and its own peer does not stay.
printf '#!/bin/sh\necho it runs; exec sleep 1234.%s\n' "$$" >"$build/test_ops"
killed() {
	local run
	PATH=$scratch/bin:$PATH setsid "$tree/tests/gpu/run" --build "$build" --arch 90 --cuda "$scratch/cuda" --first --results "$home" >"$scratch/out" 2>&1 &
	run=$!
	await_line 1 '^it runs' "$home/running.log"
	kill -9 -- "-$run"
	pkill -9 -f "sleep 1234[.]$$|$tree/tests/gpu/peer serve" || true # which have groups of their own
	wait "$run"
	grep -q '^ok .* all of Gannet builds' "$home/output.txt" && grep -q '^it runs' "$home/running.log"
}
fresh
check "a call that is killed leaves what it had" killed
fresh
limited() { # --deadline ends it, and says what is left; on a slow machine it is later that the command runs
	local seconds
	for seconds in 6 30 120; do
		run --cuda "$scratch/cuda" --only plans,vit --deadline "$seconds" --results "$home" || return 1
		! grep -q '^it runs' "$home/logs.txt" || break
		fresh
	done
	said "^ok .*a few operators .* # SKIP cut after $seconds s" && said 'go on with --only plans'
}
check "what hangs is cut at the limit" limited
paths() {
	sort -u "$scratch/python.paths"
	[[ $(sort -u "$scratch/python.paths") == none ]] && grep -q "^$wheels/cudnn/lib:.*bench train" "$scratch/program.calls"
}
# A signal to the script alone ends what it runs.
fresh
gone() { ! pgrep -f "$1"; } # COMMAND
interrupted() {
	local run code
	PATH=$scratch/bin:$PATH "$tree/tests/gpu/run" --build "$build" --arch 90 --cuda "$scratch/cuda" --only plans --results "$home" >"$scratch/out" 2>&1 &
	run=$!
	await_line 1 '^it runs' "$home/running.log"
	kill -TERM "$run"
	wait "$run"
	code=$?
	((code == 143)) && until_true gone "sleep 1234[.]$$" && said "^# interrupted; results in $home"
}
check "a signal ends the command, too" interrupted
check "python3 sees the caller's libraries, our program NVIDIA's" paths

# What is brought along is small, and serves.
rm -f "$scratch/bin/nvidia-smi"
slim() {
	rm -rf "$build"/gpu-results-*
	run --cuda "$scratch/cuda" --only build --slim && ls "$build" && [[ $(ls "$build" | sort | tr '\n' ' ') == "gpu-results-1 libs.packed objects " ]] &&
		(($(du -s --apparent-size -k "$build" | cut -f 1) < 48 << 10)) &&
		run --cuda "$scratch/cuda" --only build && said '^ok 1 - .*: 0 objects compiled' && said '^ok 2 - .*: 0 objects compiled'
}
check "a build folder that is brought along is small, and is linked in seconds" slim
finish
