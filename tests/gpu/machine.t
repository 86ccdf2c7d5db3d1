#!/bin/bash
# The script for a GPU machine without package registries, as far as it goes without a GPU: libraries are packed, all is built from
# them, and what needs a GPU is skipped.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
	skip "tests/gpu/run without a GPU" "there is one: run it"
	finish
fi

check "libraries are packed" "$GN_SOURCE/tests/gpu/libs" "$gannet" "$scratch/libs.tar.xz"
run() {
	timeout 600 "$GN_SOURCE/tests/gpu/run" --libs "$scratch/libs.tar.xz" --arch 90 --no-bench >"$scratch/out" 2>&1 ||
		{ cat "$scratch/out"; return 1; }
}
check "tests/gpu/run goes through" run
built() { grep -q "^ok .* - $1" "$scratch/out" || { cat "$scratch/out"; return 1; }; }
check "kernels and operators build" built "kernels build for sm_90"
check "cuDNN plans for GPUs that are described" built "plans of cuDNN: [1-9]"
check "all of Gannet builds, without oneDNN" built "all of Gannet builds"
finish
