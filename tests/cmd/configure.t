#!/bin/bash
# configure: what is missing takes one line that names Debian's package, and --with-cuda looks where it is told to.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
source=$(cd "$GN_SOURCE" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if [ ! -x "$source/configure" ] || [ -e "$source/config.status" ]; then
	skip "what configure says" "the source folder has no configure, or is a build folder itself"
	finish
	exit
fi
cd "$dir" || exit 1

# lack PACKAGE: the folder pc becomes pkg-config's world, without the modules whose names begin with PACKAGE.
lack() {
	local where file paths
	rm -rf pc && mkdir pc
	IFS=: read -ra paths <<<"$(pkg-config --variable pc_path pkg-config):${PKG_CONFIG_PATH:-}"
	for where in "${paths[@]}"; do
		for file in "$where"/*.pc; do
			[[ ! -e $file || ${file##*/} == "$1"* || -e pc/${file##*/} ]] || ln -s "$file" pc/
		done
	done
}
# configures in a fresh folder, what was found of the compiler kept from the run before
try() { # ARGUMENT...
	rm -rf build && mkdir build && cp -f cache build/ 2>/dev/null
	# shellcheck disable=SC2069 # what it complains of, not what it checks
	(cd build && PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$dir/pc timeout -k 5 300 "$source/configure" --cache-file=cache "$@" 2>&1 >/dev/null)
}
# one_line PATTERN ARGUMENT...: it fails, and all it says is one line with PATTERN
one_line() {
	local pattern=$1 text
	shift
	text=$(try "$@") && return 1
	printf '%s\n' "$text"
	[[ $(printf '%s\n' "$text" | wc -l) == 1 && $text =~ $pattern ]]
}

# one_warning PATTERN ARGUMENT...: it succeeds, and says one line with PATTERN
one_warning() {
	local pattern=$1 text
	shift
	text=$(try "$@") && [[ $(printf '%s\n' "$text" | wc -l) == 1 && $text =~ $pattern ]]
}

lack ucx
check "without UCX" one_line "libucx-dev$"
cp build/cache cache
check "without pkg-config" one_line "package pkg-config$" PKG_CONFIG=
while read -r module package; do
	lack "$module"
	check "without $module" one_line "install Debian's package $package$"
done <<'LIST'
pmix libpmix-dev
hdf5 libhdf5-dev
libjpeg libjpeg62-turbo-dev
libpng libpng-dev
libarchive libarchive-dev
jansson libjansson-dev
libcrypto libssl-dev
hwloc libhwloc-dev
LIST
lack nothing
check "without oneDNN" one_line "package libdnnl-dev$" ac_cv_header_oneapi_dnnl_dnnl_h=no

check "without spank.h" one_line "package libslurm-dev$" --with-slurm ac_cv_header_slurm_spank_h=no

check "a CUDA folder that is not there" one_line "no include/cuda_runtime_api.h under /nonexistent:" --with-cuda=/nonexistent
mkdir -p half/include
for header in cuda_runtime_api.h cublasLt.h cudnn.h nccl.h; do : >half/include/$header; done
check "one with headers alone" one_line "no libcudart.so under $dir/half:" --with-cuda="$dir/half"
if [ -e /usr/local/cuda/include/nccl.h ]; then
	check "a whole one" try --with-cuda=/usr/local/cuda
	mkdir -p plain && ln -sfn /usr/local/cuda/include /usr/local/cuda/lib64 plain/
	if [[ $(PATH=/usr/bin:/bin command -v nvcc) ]]; then
		skip "one without nvcc" "/usr/bin has one"
	else
		PATH=/usr/bin:/bin check "one without nvcc" one_warning "no nvcc in $dir/plain/bin" --with-cuda="$dir/plain"
	fi
	if nvcc=$(PATH=/usr/local/cuda/bin:$PATH command -v nvcc) && [[ -x $nvcc ]]; then
		check "GPUs that nvcc does not know" one_line "does not compile for sm_12, only" \
			--with-cuda=/usr/local/cuda --with-cuda-arch=12
	fi
else
	skip "a whole one" "no CUDA with NCCL in /usr/local/cuda"
fi
check "without what is optional" try --without-slurm --without-cuda --prefix=/opt/one
touch -d @1000000000 build/src/*.h
again() { (cd build && PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$dir/pc timeout -k 5 300 "$source/configure" --cache-file=cache --without-slurm --without-cuda --prefix="$1") &&
	[[ $(cd build/src && find . -name '*.h' -newermt @1000000000 -printf '%P ') == "paths.h " ]]; }
check "again with another prefix: one header has changed" again "/opt/another one"
check "that of its folders" grep -qx '#define GN_JOBS_DIR "/opt/another one/share/gannet/slurm/jobs"' build/src/paths.h
finish
