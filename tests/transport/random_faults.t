#!/bin/bash
# Random faults at random operations, each kind several times: no rank hangs, is given a wrong sum, or does not know who broke. With
# progress by the caller, by a thread, and over two links between two machines. failure.t has each kind once.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
faults() { timeout -k 5 300 "$GN_SOURCE/tests/transport/faults" --jobs 4 "$@"; }
# The seed, and how each kind ended.
shown() { printf '%s\n' "${tap_output:-}" | grep '^#'; }

check "random faults" faults --count 40
shown
by_a_thread() { PROBE_PROGRESS=thread faults --count 24; }
check "with progress by a thread" by_a_thread
shown
over_two_links() { UCX_KEEPALIVE_INTERVAL=1s faults --count 12 --rails --kinds cut,flap,kill,cut,flap,pause; }
if ((UID)) || ! unshare --net true 2>/dev/null || ! command -v ip >/dev/null; then
	skip "over two links" "no network namespaces here"
else
	check "over two links, the links' own among them" over_two_links
	shown
fi
finish
