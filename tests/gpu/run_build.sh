# shellcheck shell=bash
# For tests/gpu/run, which sources it: finds CUDA, cuDNN, cuBLAS and NCCL, compiles what changed, links. Of run it uses top, libs, nvcc,
# cuda, arch, build and bounded. It gives nvidia_path (folders of NVIDIA's libraries, for LD_LIBRARY_PATH), missing (headers), operators
# and whole (whether there is what those need).
# An object is kept with the digests of what it was made from, the flags and CUDA's release. Times and folders do not count: a copy of
# the tree, or of the build folder, serves as well.
machine=$(uname -m)
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
codes=()
for a in ${arch//,/ }; do codes+=(-gencode "arch=compute_$a,code=sm_$a"); done
declare -A hashes=() headers=()

# What tests/gpu/libs packed is kept and unpacked in the build folder, for the next call; a folder is linked.
take_libraries() {
	local digest
	if [[ $libs && ! -f $libs ]]; then
		rm -rf "$build"/libs{,.sha256,.packed}
		ln -s "$(cd "$libs" && pwd)" "$build/libs"
		return
	fi
	[[ $libs || ! -e $build/libs.packed ]] || libs=$build/libs.packed
	[[ $libs ]] || return 0
	digest=$(sha256sum <"$libs") || return 1
	[[ $digest != "$(cat "$build/libs.sha256" 2>/dev/null)" ]] || return 0
	# what is there stays until the new ones are known to be whole
	rm -rf "$build/libs.new" && mkdir "$build/libs.new" || return 1
	# where there is no xz, Python has it
	tar -C "$build/libs.new" -xf "$libs" 2>"$build/libs.log" || python3 -m tarfile -e "$libs" "$build/libs.new" 2>>"$build/libs.log" || {
		comment <"$build/libs.log"
		return 1
	}
	[[ $libs -ef $build/libs.packed ]] || cp "$libs" "$build/libs.packed" || return 1
	rm -rf "$build/libs" && mv "$build/libs.new" "$build/libs" && printf '%s\n' "$digest" >"$build/libs.sha256"
}

# Where NVIDIA's headers and libraries may be: among the libraries, in the toolkit, in the packages that PyTorch brings, which of CUDA 13
# have all but cuDNN and NCCL in nvidia/cu13, and before had a folder each.
find_nvidia() {
	local name dir sub place packages=() places=("$build/libs" "$build/libs/usr" "$cuda")
	mapfile -t packages < <(python3 - 2>>"$build/python.log" <<-'PYTHON'
		import importlib.util, os
		spec = importlib.util.find_spec("nvidia")
		for path in spec.submodule_search_locations if spec else []:
		    for name in sorted(os.listdir(path)):
		        print(os.path.join(path, name))
	PYTHON
	)
	for dir in "${packages[@]}"; do
		[[ ${dir##*/} == cu[0-9]* && ${dir##*/} != "cu${release%.*}" ]] || places+=("$dir")
	done
	missing=
	for name in cudnn.h cublasLt.h nccl.h; do
		for dir in "${places[@]}"; do
			[[ ! -r $dir/include/$name ]] || { headers[$name]=$dir/include; break; }
		done
		[[ ${headers[$name]-} ]] || missing+=${missing:+, }$name
	done
	nvidia_path=
	for name in libcudnn.so.9 "libcublasLt.so.${release%.*}" libnccl.so.2 "libnvrtc.so.${release%.*}"; do
		place=
		for dir in "${places[@]}"; do
			for sub in lib64 lib "lib/$machine-linux-gnu"; do
				[[ $place || ! -r $dir/$sub/$name ]] || place=$dir/$sub
			done
		done
		# the programs find what is in the build folder by themselves
		[[ ! $place || $place == "$build"/* || :$nvidia_path: == *":$place:"* ]] || nvidia_path+=${nvidia_path:+:}$place
		printf '# %s: %s\n' "$name" "${place:-left to the system}"
	done
	for name in "${!headers[@]}"; do printf '# %s: %s\n' "$name" "${headers[$name]}"; done | sort
	nvidia_path+=${LD_LIBRARY_PATH:+${nvidia_path:+:}$LD_LIBRARY_PATH}
	operators=${headers[cudnn.h]:+${headers[cublasLt.h]:+1}}
	whole=
	[[ ! $operators || ! ${headers[nccl.h]-} || ! -r $build/libs/usr/include/jansson.h ]] || whole=1
}

# Sources of the kernels, and of the operators where there is cuDNN; none needs another library.
kernels_sources() {
	printf '%s\n' kernels/cuda/*.cu src/device/*.c kernels/*.c kernels/ref/*.c data/sample/resize.c \
		tests/gpu/{no_host,fixture,check_*,test_kernels,bench_kernels}.c tests/kernels/ref_optim.c
	printf '%s\n' src/base/*.c | grep -v -e /cipher_file -e /data_key -e /sha256 -e /version
	[[ ! $operators ]] || printf '%s\n' kernels/cuda/{autotune,blas*,dnn*,op*}.c tests/gpu/{ops_*,test_dnn,test_ops}.c
}
# All others of the program and of the tests' that come with it; oneDNN is not there.
program_sources() {
	{ find src transport data kernels -name '*.c' -o -name '*.S' && printf '%s\n' tests/gpu/{plan_*,test_plan,comm_probe}.c; } |
		grep -v -e src/lib/ -e kernels/host/onednn -e kernels/host/attention -e kernels/host/op.c -e kernels/host/loss.c | grep -vxF -f <(kernels_sources)
}

prepare() {
	local version hash file dir name
	cd "$top" || return 1
	version=$(sed -n 's/^AC_INIT(\[gannet\], \[\([^]]*\)\].*/\1/p' configure.ac)
	mkdir -p "$build"/{config/src,objects,tests/gpu}
	printf '#define %s\n' 'HAVE_CUDA 1' 'PACKAGE "gannet"' 'PACKAGE_NAME "gannet"' "PACKAGE_STRING \"gannet $version\"" \
		"PACKAGE_VERSION \"$version\"" "VERSION \"$version\"" 'PACKAGE_DATE "2000-01-01"' >"$build/config/src/config.h"
	printf '#define %s "%s"\n' GN_SITE_FILE /etc/gannet.conf GN_SITE_FILE_NEAR ../etc/gannet.conf GN_JOBS_DIR /usr/share/gannet/slurm/jobs \
		GN_JOBS_DIR_NEAR ../share/gannet/slurm/jobs >"$build/config/src/paths.h"
	src/base/build-info . >"$build/config/src/build.h" || return 1
	while read -r hash file; do
		hashes[${file#"$build"/}]=$hash
	done < <(find kernels src transport data tests/gpu tests/kernels tests/transport tests/golden -type f \( -name '*.[chS]' -o -name '*.cu' -o -name '*.cuh' \
		-o -name '*.json' \) -exec sha256sum {} + && sha256sum "$build"/config/src/*.h)
	flags=("${CC:-gcc}" -std=gnu11 -O2 -D_GNU_SOURCE -DHAVE_CONFIG_H -fopenmp -fno-math-errno)
	nvcc_flags=(-std=c++17 -O3 -lineinfo "${codes[@]}")
	folder_users=" $(grep -rl --include='*.c' GN_CUDA_FOLDER kernels transport tests/gpu | tr '\n' ' ')"
	includes=(-I"$build/config" -I. -I"$cuda/include")
	for name in cudnn.h cublasLt.h nccl.h; do [[ ! ${headers[$name]-} ]] || includes+=(-I"${headers[$name]}"); done
	search=()
	for dir in "$build/libs" "$build/libs/usr"; do
		for name in include "include/$machine-linux-gnu" include/hdf5/serial "lib/$machine-linux-gnu/pmix2/include"; do
			[[ ! -d $dir/$name ]] || includes+=(-I"$dir/$name")
		done
		for name in lib "lib/$machine-linux-gnu" lib64; do
			[[ ! -d $dir/$name ]] || search+=(-L"$dir/$name" -Wl,-rpath-link,"$dir/$name" -Wl,-rpath,"\$ORIGIN/${dir#"$build"/}/$name" \
				-Wl,-rpath,"\$ORIGIN/../../${dir#"$build"/}/$name")
		done
	done
}

# kept OBJECT FLAGS: it was made with them, from what is here now
kept() {
	local line file hash
	[[ -e $1 && -e $1.from ]] || return 1
	{
		read -r line && [[ $line == "$2" ]] || return 1
		while read -r file hash; do [[ ${hashes[$file]-} == "$hash" ]] || return 1; done
	} <"$1.from"
}
# make_object SOURCE OBJECT FLAGS COMMAND...
make_object() {
	local source=$1 object=$2 flags=$3 file
	shift 3
	if ! bounded 600 "$@" -MMD -MF "$object.d" -c "$source" -o "$object.new"; then
		touch "$build/failed"
		return 1
	fi
	{
		printf '%s\n' "$flags"
		# the references stand in an assembler's file by name
		for file in $(tr '\\' ' ' <"$object.d") $([[ $source != *.S ]] || grep -o '"tests/[^"]*"' "$source" | tr -d '"'); do
			file=${file#./} file=${file#"$build"/}
			[[ ! ${hashes[$file]-} ]] || printf '%s %s\n' "$file" "${hashes[$file]}"
		done
	} >"$object.from" && mv "$object.new" "$object"
	rm -f "$object.d"
}
# compile LIST: the objects of the sources that it prints, as many at a time as there are processors. Sets compiled, all; objects.
compile() {
	local file object text jobs=0 cores
	compiled=0 objects=()
	cores=$(nproc)
	rm -f "$build/failed"
	for file in $("$1" | sort -u); do
		object=$build/objects/${file//\//-}.o command=("${flags[@]}" "${includes[@]}") text=${flags[*]}
		objects+=("$object")
		[[ $file != *.cu ]] || { command=("$nvcc" "${nvcc_flags[@]}" -I.) text=${nvcc_flags[*]}; }
		[[ $file != *.S ]] || command+=(-Wa,-I.)
		[[ $folder_users != *" $file "* ]] || { command+=("-DGN_CUDA_FOLDER=\"$cuda\"") text+=" $cuda"; }
		text+=" $release"
		if kept "$object" "$text"; then continue; fi
		rm -f "$object" "$object.from" "$build"/linked-{program,"${1%_sources}"}
		compiled=$((compiled + 1))
		make_object "$file" "$object" "$text" "${command[@]}" &
		((++jobs < cores)) || { wait -n; jobs=$((jobs - 1)); }
	done
	wait
	[[ ! -e $build/failed ]]
}

# link NAME OBJECT...: with what more it needs of archives and libraries. By the old kind of rpath the packed libraries find each
# other, and no program that this one starts finds them.
link() {
	local name=$1 dir runtime
	shift
	for dir in "$cuda"/{lib64,lib,"targets/$machine-linux/lib"}; do
		runtime=$dir/libcudart_static.a
		[[ ! -r $runtime ]] || break
	done
	"${CC:-gcc}" -fopenmp -o "$build/$name" "$@" -Wl,--start-group "${archives[@]}" -Wl,--end-group "$runtime" \
		-Wl,--disable-new-dtags "${search[@]}" -Wl,--allow-shlib-undefined "${libraries[@]}" -lstdc++ -lm -ldl -lrt -lpthread
}
# archive NAME PATTERN: of objects, those that are no test and no command
archive() {
	rm -f "$build/lib$1.a"
	printf '%s\n' "${objects[@]}" | grep -v -e /tests-gpu-[^n] -e /tests-kernels- -e /src-cmd- | xargs ar rcsT "$build/lib$1.a"
}
link_kernels() {
	local o=$build/objects libraries=() archives=("$build/libkernels.a") name

	archive kernels && link test_kernels "$o"/tests-gpu-{fixture,check_*,test_kernels}.c.o "$o"/tests-kernels-ref_optim.c.o && link bench_kernels "$o"/tests-gpu-bench_kernels.c.o ||
		return 1
	[[ $operators ]] || return 0
	for name in test_dnn test_ops; do
		link "$name" "$o"/tests-gpu-{$name,fixture,ops_*}.c.o || return 1
	done
}
link_program() {
	local o=$build/objects archives=("$build"/lib{program,kernels}.a)
	local libraries=(-lucp -luct -lucs -lucm -lpmix -lhdf5 -ljpeg -lpng -larchive -ljansson -lcrypto -lhwloc)

	archive program && link gannet "$o"/src-cmd-*.o && link test_plan "$o"/tests-gpu-{plan_*,test_plan}.c.o &&
		link tests/gpu/comm_probe "$o"/tests-gpu-comm_probe.c.o
}
# bring WHAT: compiles and links kernels or program, as far as something changed; prints what was done
bring() {
	local text
	compile "$1_sources" || return 1
	text="$release ${search[*]//"$build"/} ${objects[*]##*/}"
	if [[ $text != "$(cat "$build/linked-$1" 2>/dev/null)" ]]; then
		"link_$1" || return 1
		printf '%s\n' "$text" >"$build/linked-$1"
	fi
	printf '%d objects compiled, %d kept\n' "$compiled" $((${#objects[@]} - compiled)) >"$build/$1.built"
}
