#!/bin/bash
# Up to 1,024 ranks without a communicator on this machine: they start and end, and rank 0 stays small. scale.t is the short form.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
check "128 to 1,024 ranks by MASTER_ADDR, 256 and 512 under gannet launch" "$GN_SOURCE/tests/transport/scale" --build "$GN_BUILD"
finish
