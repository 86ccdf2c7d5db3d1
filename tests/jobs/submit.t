#!/bin/bash
# The batch script of gannet submit: what it asks for, quoting, and what is refused. tests/slurm/submit.t runs it.
set -u
# shellcheck source=tests/cmd/tap.sh
. "$GN_SOURCE/tests/cmd/tap.sh"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export GANNET_JOBS=$GN_SOURCE/slurm/jobs
dry() { "$GN_BUILD/gannet" submit --dry-run "$@"; }
expect 0 "^#SBATCH --nodes=4$" "nodes" dry -N 4 --ppn 8 -- exec true
expect 0 "^#SBATCH --ntasks-per-node=8$" "tasks" dry -N 4 --ppn 8 -- exec true
expect 0 "^#SBATCH --dependency=afterok:12$" "--after" dry --after 12 -- exec true
expect 0 "^#SBATCH --mem=4G$" "any option of sbatch" dry --sbatch=--mem=4G -- exec true
expect 0 "^#SBATCH --signal=B:USR1@90$" "a signal before the time limit" dry -t 10 -- exec true
expect 0 "--checkpoint' 'r' --resume auto\)$" "train goes on by itself" dry -- train --data d --checkpoint r
check "unless --resume is given" bash -c '! "$@" | grep -q "resume auto"' x "$GN_BUILD/gannet" submit -n -- train --data d --checkpoint r --resume none
# shellcheck disable=SC2016,SC2154
quoted() { dry -- exec printf '%s\n' "it's" '$HOME `id`' 'two words' >script && bash -n script && [[ $(sed -n 's/^gannet_step=//p' script |
	(read -r line; eval "a=$line"; printf '%s|' "${a[@]}")) == "exec|printf|%s\\n|it's|\$HOME \`id\`|two words|" ]]; }
check "arguments arrive as they are" quoted
check "nothing is made" test "$(ls)" = script
expect 2 "train needs --checkpoint" "train without checkpoints" dry -- train --data d
expect 2 "checkpoints of their own, with %a" "an array with one checkpoint" dry --array 1-2 -- train --data d --checkpoint r
expect 2 "'sh' is neither train nor exec" "another command" dry -- sh -c true
expect 2 "a line break in" "a name that would add a line to the script" dry -J $'a\n#SBATCH --uid=0' -- exec true
expect 2 "is no option of sbatch" "what is no option" dry --sbatch 'rm -rf x' -- exec true
expect 2 "nowhere is no folder" "a snapshot of nothing" "$GN_BUILD/gannet" submit --dir run --snapshot nowhere -- exec true
mkdir there
expect 1 "is there already" "a folder that is there" "$GN_BUILD/gannet" submit --dir there -- exec true
finish
