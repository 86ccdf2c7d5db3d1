#!/bin/bash
# gannet sweep without Slurm: the plan, and what is refused. tests/slurm/sweep.t runs one.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
sweep() { "$GN_BUILD/gannet" sweep "$@"; }
expect 0 "^4 --lr .05 --batch 32$" "a grid" sweep run -n --grid lr=.01,.05 --grid batch=16,32 -- train --data d
six() { [[ $(sweep run -n --grid lr=.01,.05 --random 'weight-decay=log(1e-5,1e-3):3' -- train --data d | wc -l) == 6 ]]; }
check "with draws" six
expect 2 "each trial gets a checkpoint folder" "a checkpoint of all trials" sweep run --grid lr=1 -- train --data d --checkpoint c
expect 2 "what to sweep" "no command" sweep run --grid lr=1
expect 2 "needs --grid or --random" "no parameter" sweep run -- train --data d
expect 2 "'walk' is none of run, status" "another verb" sweep walk
expect 2 "gannet sweep rerun --failed DIR" "rerun says what" sweep rerun x
expect 3 "ledger.jsonl" "a folder that is no sweep" sweep status .
check "nothing was made" test -z "$(ls)"
finish
