#!/bin/bash
# Our own plugin keeps every promise that tests/ncclnet/conform knows, in every version of the interface, over tcp and shared
# memory.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
plugin=$GN_BUILD/libnccl-net-gannet.so
export UCX_WARN_UNUSED_ENV_VARS=n

# conform TLS OPTION...: its failures, if any
conform() { UCX_TLS=$1 timeout 300 "$GN_BUILD/tests/ncclnet/conform" "${@:2}" "$plugin"; }

for version in 12 11 10 9 8; do
	check "version $version over tcp" conform tcp,self --version $version
done
check "version 11 over shared memory" conform posix,sysv,cma,self --version 11
finish
