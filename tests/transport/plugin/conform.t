#!/bin/bash
# Our own plugin keeps every promise that tests/transport/plugin/conform knows, in every version of the interface, over tcp and shared
# memory.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
plugin=$GN_BUILD/libnccl-net-gannet.so
export UCX_WARN_UNUSED_ENV_VARS=n

# conform TLS OPTION...: its failures, if any. What hangs is ended by the limit; nothing else is asked to be fast.
connections=300
[[ ! ${GN_LONG:-} ]] || connections=1000
conform() { UCX_TLS=$1 timeout -k 5 400 "$GN_BUILD/tests/transport/plugin/conform" --limit 240 --connections $connections "${@:2}" "$plugin"; }

# The versions share their core; what differs are layouts and arguments.
layouts=properties,handle,no-wait,transfer,empty,unequal,group,optional,registration,communicators,reload,exit
check "version 11 over tcp" conform tcp,self --version 11 --strict
check "version 11 over shared memory" conform posix,sysv,cma,self --version 11 --strict
for version in 12 10 9 8; do
	check "version $version over tcp" conform tcp,self --version $version --only $layouts
done
finish
