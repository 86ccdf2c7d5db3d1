#!/bin/bash
# libgannet.so: the examples, each function from a program that includes nothing else, what it exports, and its ABI.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
export LD_LIBRARY_PATH=$GN_BUILD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GANNET_LOG=error
library=$GN_BUILD/libgannet.so.0 header=$GN_SOURCE/src/lib/gannet.h probe=$GN_BUILD/tests/lib/lib_probe
launch() { timeout -k 5 300 "$GN_BUILD/gannet" launch "$@"; }
for ranks in 1 2 3 4; do
	expect 0 "^(\\[0\\] )?$ranks ranks, rank 0 on .*: sum $((ranks * (ranks + 1) / 2)), largest $ranks" "allreduce of the examples on $ranks ranks" \
		launch -n $ranks "$GN_BUILD/src/lib/examples/allreduce"
done
expect 0 "3 ranks, 1000 steps: heat 100" "messages of the examples" launch -n 3 "$GN_BUILD/src/lib/examples/halo"
expect 0 "4 ranks, 20 rounds in two groups: right" "groups of the examples" launch -n 4 "$GN_BUILD/src/lib/examples/overlap"
check "usage errors are told" "$probe" usage
check "every collective" launch -n 3 "$probe" collectives
check "over tcp" env UCX_TLS=tcp,self UCX_NET_DEVICES=lo GANNET_LOG=error timeout -k 5 300 "$GN_BUILD/gannet" launch -n 3 "$probe" collectives
check "groups of listed ranks" launch -n 4 "$probe" groups
check "receives from any rank" launch -n 4 "$probe" any
check "receives from any rank, over tcp" env UCX_TLS=tcp,self UCX_NET_DEVICES=lo timeout -k 5 300 "$GN_BUILD/gannet" launch -n 3 "$probe" any
check "waits between tests of operations" launch -n 3 "$probe" idle
check "waits between tests of operations, over tcp" env UCX_TLS=tcp,self UCX_NET_DEVICES=lo timeout -k 5 300 "$GN_BUILD/gannet" launch -n 2 "$probe" idle
check "a disagreement on a group" launch -n 2 "$probe" disagree
killed() {
	launch --keep-going -n 3 "$probe" killed >out 2>err
	cat out err
	[[ $(grep -c "rank 2 .*" out) == 2 ]]
}
check "a killed rank is named on every other" killed
rendezvous() {
	local port pids=() code=0 pid
	# one that the system gives to nobody who does not ask for it: its own begin at 32768
	port=$(perl -MIO::Socket::INET -e 'for (1 .. 100) { my $port = 10000 + int rand 10000;
		IO::Socket::INET->new(Listen => 1, LocalAddr => "0.0.0.0", LocalPort => $port) and print($port), exit } exit 1')
	for r in 0 1 2; do
		timeout -k 5 300 "$probe" rendezvous "127.0.0.1:$port" $r 3 &
		pids+=($!)
	done
	for pid in "${pids[@]}"; do wait "$pid" || code=1; done
	return $code
}
check "ranks that know each other without a launcher" rendezvous
exported() {
	nm -D --defined-only "$library" | sed -n 's/.* T \([a-z_0-9]*\)@@GANNET_0$/\1/p' | sort >exported
	grep -oE '\bgannet_[a-z_0-9]+\(' "$header" | tr -d '(' | sort -u >declared
	diff declared exported && (($(wc -l <declared) > 20)) && [[ ! $(nm -D --defined-only "$library" | grep -v '@@GANNET_0$\| A GANNET_0$') ]]
}
if [[ ${GN_SANITIZED:-} ]]; then
	skip "it exports what the header declares" "AddressSanitizer exports its own"
else
	check "it exports what the header declares, and nothing else" exported
fi
cat >header.c <<'C'
#include <gannet.h>
int main(void) { return gannet_error()[0]; }
C
# shellcheck disable=SC2086 # flags
alone() { cc -std=c99 -Wall -Wextra -Wpedantic -Werror -I"${header%/*}" -fsyntax-only header.c && c++ -Wall -Wextra -Werror -I"${header%/*}" -fsyntax-only -xc++ header.c; }
check "the header by itself, in C99 and in C++" alone
abi() { abidiff --no-added-syms "$GN_SOURCE/tests/lib/libgannet.abi" "$library" --headers-dir2 "${header%/*}"; }
if ! command -v abidiff >/dev/null; then
	skip "the ABI is that of the last release" "abigail-tools is not installed"
elif [[ ${GN_SANITIZED:-} ]]; then
	skip "the ABI is that of the last release" "compared without sanitizers"
else
	check "the ABI is that of the last release" abi
fi
finish
