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
*/peer*) echo '{"images_per_s": 100.0}' ;;
*torch*) [[ -e $scratch/has-torch ]] || { echo "ImportError: of PyTorch's own" >&2; exit 1; } ;;
*) PYTHONPATH=$scratch/site exec $(command -v python3) "\$@" ;;
esac
PYTHON
chmod +x "$scratch/bin/python3"
tree=$GN_SOURCE
run() { # OPTION...
	PATH=$scratch/bin:$PATH timeout 600 "$tree/tests/gpu/run" --build "$build" --arch 90 "$@" >"$scratch/out" 2>&1 && return
	cat "$scratch/out"
	return 1
}
said() { grep -qE -e "$1" "$scratch/out" || { cat "$scratch/out"; return 1; }; }
unset LD_LIBRARY_PATH

check "a deadline before anything is built is no failure" run --cuda "$toolkit" --libs "$scratch/libs.tar.gz" --deadline 1 --only ops,train
check "with the reason" said '^ok .* # SKIP the deadline of 1 s$'
check "and what is left" said '^# .* go on with --only ops,train$'
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
check "why PyTorch is not there" said "^# +ImportError: of PyTorch's own"
order() { # of lines
	local last=0 line pattern
	for pattern in '- every kernel' '- every operator' 'bandwidth of' 'references on' 'on the digits' 'that share GPUs' 'sanitizer memcheck'; do
		line=$(grep -n "^ok .*$pattern" "$scratch/out" | cut -d: -f1)
		((${line:-0} > last)) || { echo "$pattern: line ${line:-none} behind $last"; return 1; }
		last=$line
	done
}
check "benchmarks come before the long checks" order
# By then the time is over, also on a machine where all that is there takes less than a second.
late() {
	printf '#!/bin/sh\nsleep 1.1\nexec %s "$@"\n' "$(command -v sha256sum)" >"$scratch/bin/sha256sum"
	chmod +x "$scratch/bin/sha256sum"
	run --cuda "$toolkit" --deadline 1 --only kernels,bench,sanitize && said 'go on with --only kernels,bench'
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
# That is all, although the tree is a copy, with other times.
tree=$scratch/tree
mkdir -p "$tree/tests"
cp -r "$GN_SOURCE"/{kernels,src,transport,data,configure.ac} "$tree"
cp -r "$GN_SOURCE"/tests/{gpu,transport,golden} "$tree/tests"
check "CUDA 13 as PyTorch brings it" run --cuda "$scratch/cuda" --only ops
check "cuBLAS beside the others of CUDA 13" said "^# cublasLt.h: $wheels/cu$release/include$"
check "its library" said "^# libcublasLt.so.$release: $wheels/cu$release/lib$"
check "cuDNN in its own" said "^# libcudnn.so.9: $wheels/cudnn/lib$"
check "NCCL's header as it was packed" said "^# nccl.h: $build/libs/usr/include$"
check "few are compiled anew" said '^ok 1 - .*: [1-9] objects compiled'
check "of Gannet no more either" said '^ok 2 - .*: [1-9] objects compiled'
check "and cuDNN plans" said 'plans of cuDNN: [1-9]'

# A GPU is claimed, and the program is one that tells what a GPU's would.
cat >"$scratch/bin/nvidia-smi" <<'SMI'
#!/bin/sh
case $* in *compute_cap*) echo 9.0 ;; *name*) echo "NVIDIA L40S" ;; *) echo "GPU 0: one" ;; esac
SMI
cat >"$build/gannet" <<PROGRAM
#!/bin/sh
printf '%s %s\n' "\$LD_LIBRARY_PATH" "\$*" >>"$scratch/program.calls"
case "\$*" in
*'bench train'*) echo '{"images_per_s": 150.0, "batch": 8, "step_flops": 80000000000, "step_bytes": 160000000}' ;;
*'bench decode'*) echo '{"images_per_s_per_core": 50.0}' ;;
*train*) echo '{"images_per_s": 120.5}' >$build/photos.jsonl ;;
*) echo fine ;;
esac
PROGRAM
chmod +x "$scratch/bin/nvidia-smi" "$build/gannet"
touch "$scratch/has-torch"
bench() {
	run --cuda "$scratch/cuda" --only bench --cases bf16:8,tf32:4:vit_b_16
	said '^# resnet50 +bf16 +8 +150.0 +100.0 +100.0 +1.50$' && said '^# vit_b_16 +tf32 +4 +150.0' && said '^# +2 TFLOP/s, .* 3 GB/s' && said '^ok .*timed \(2 of 2\)' && said '^# ResNet-50 from JPEG .*: 120.5 images/s .*: 3 would do' &&
		said '^ok .*rates of sums of GPU memory, 1 ranks by nccl'
}
check "the steps, in turns with PyTorch's, and what else is timed" bench
check "a speed is wanted of every GPU, whatever its name" said '^not ok .* ResNet-50: 150.0 images/s, 4000 wanted # TODO'
sed -i 's/"images_per_s": 150.0/"images_per_s": 4000.5/' "$build/gannet"
reached() { run --cuda "$scratch/cuda" --only bench --cases bf16:8 && said '^ok .* ResNet-50: 4000.5 images/s, 4000 wanted$'; }
check "and may be reached" reached
paths() {
	sort -u "$scratch/python.paths"
	[[ $(sort -u "$scratch/python.paths") == none ]] && grep -q "^$wheels/cudnn/lib:.*bench train" "$scratch/program.calls"
}
check "python3 sees the caller's libraries, our program NVIDIA's" paths
finish
