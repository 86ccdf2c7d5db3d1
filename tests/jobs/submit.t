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
expect 0 "--checkpoint' 'r' --resume auto\)$" "train goes on by itself" dry -- train --model lenet --data d --checkpoint r
expect 0 "--checkpoint' 'r' '--resume' 'none'\)$" "unless --resume is given" dry -- train --model lenet --data d --checkpoint r --resume none
# shellcheck disable=SC2016,SC2154
quoted() { dry -- exec printf '%s\n' "it's" '$HOME `id`' 'two words' >script && bash -n script && [[ $(sed -n 's/^gannet_step=//p' script |
	(read -r line; eval "a=$line"; printf '%s|' "${a[@]}")) == "exec|printf|%s\\n|it's|\$HOME \`id\`|two words|" ]]; }
check "arguments arrive as they are" quoted
check "nothing is made" test "$(ls)" = script
printf 'model = lenet\ndata = d\n' >train.options
expect 0 "--options' 'train.options'" "options of a file" dry -- train --options train.options --checkpoint r
printf 'modle = lenet\n' >wrong.options
expect 2 "wrong.options, line 1: unknown option --modle" "a file of wrong options" dry -- train --options=wrong.options --checkpoint r
mkdir sources && mv train.options sources
expect 0 "^gannet_step" "a file of the snapshot" dry --dir run0 --snapshot sources -- train --options train.options --checkpoint "$dir/r"
rm -r wrong.options sources
expect 2 "train needs --checkpoint" "train without checkpoints" dry -- train --model lenet --data d
expect 2 "checkpoints of their own, with %a" "an array with one checkpoint" dry --array 1-2 -- train --model lenet --data d --checkpoint r
expect 2 "'sh' is neither train nor exec: .*'-- exec python train.py'" "another command is told how" dry -- sh -c true
for time in 90 90:30 1:30:00 2-12 2-12:30 2-12:30:00 unlimited; do expect 0 "--time=$time$" "--time $time" dry -t $time -- exec true; done
for time in 1h 90m 1:2:3:4 -5 "1 00" ""; do expect 2 "--time $time: minutes, minutes:seconds" "no time: '$time'" dry -t "$time" -- exec true; done
for list in 3 0-7 1,3,9-20:2 1-100%4; do expect 0 "--array=$list$" "--array $list" dry -a $list -- exec true; done
for list in 1-4% a 1..4 1-4:0 ,1 1--4; do expect 2 "--array $list: numbers and ranges" "no list: $list" dry -a "$list" -- exec true; done
expect 2 "--after next is no job number" "no job" dry --after next -- exec true
expect 0 "^gannet_exclude_bad=1$" "--exclude-bad" dry --exclude-bad -- exec true
expect 2 "a line break in" "a name that would add a line to the script" dry -J $'a\n#SBATCH --uid=0' -- exec true
expect 2 "is no option of sbatch" "what is no option" dry --sbatch 'rm -rf x' -- exec true
expect 2 "nowhere is no folder" "a snapshot of nothing" "$GN_BUILD/gannet" submit --dir run --snapshot nowhere -- exec true
mkdir there
expect 1 "is there already" "a folder that is there" "$GN_BUILD/gannet" submit --dir there -- exec true
# a stand-in for sbatch: what the script does at its start is looked at without a cluster
mkdir bin src && printf '#!/bin/sh\necho 7\n' >bin/sbatch && chmod +x bin/sbatch
echo 'print(1)' >src/a.py && ln -s .. src/up && ln -s nowhere src/dangling && ln -s a.py src/link && echo x >"src/two words"
expect 0 '^7$' 'a snapshot of a folder with links' env PATH="$dir/bin:$PATH" "$GN_BUILD/gannet" submit --dir run1 --snapshot src -- exec python a.py
check 'links stay links, and lead where they led' test "$(readlink run1/snapshot/up)|$(readlink run1/snapshot/link)" = "$(realpath .)|a.py"
several() { # at once
	for _ in 1 2 3 4 5; do (cd src && PATH="$dir/bin:$PATH" exec "$GN_BUILD/gannet" submit -J many -- exec true) & done
	wait
	[[ $(cat src/many-*/job.sbatch | grep -c '^export GANNET=') == 5 ]]
}
check 'jobs of one second have folders of their own' several
starts() { (sed '/^export GANNET=/,$d' run1/job.sbatch; echo echo starts) | bash; }
expect 0 '^starts$' 'the copy is as it was' starts
mkdir run1/snapshot/__pycache__ && echo x >run1/snapshot/__pycache__/a.pyc
expect 0 '^starts$' 'what the program added is no change' starts
echo 'print(2)' >run1/snapshot/a.py
expect 3 'is not what was submitted' 'another text is' starts
printf '#!/bin/sh\nexit 1\n' >bin/sbatch
expect 1 'sbatch did not take the job, see above; it needs Slurm' 'sbatch that refuses' env PATH="$dir/bin:$PATH" "$GN_BUILD/gannet" submit --dir run2 --snapshot src -- exec python a.py
check 'leaves no folder' test ! -e run2
expect 2 'would lie in the copy: give the whole path' 'output into the snapshot' dry --snapshot src -- train --model lenet --data d --checkpoint r
expect 2 'exec needs a program' 'exec of nothing' dry -- exec
expect 2 'cannot be written in a line of sbatch' 'a folder with a blank' dry --dir 'a b' -- exec true
expect 2 'name has no blank' 'a name with a slash' dry -J 'my job/x' -- exec true
expect 2 "^gannet submit: train: .*--modle" "a misspelt option of train is refused now, not in the job" dry -- train --modle x --data d --checkpoint r
expect 2 "^gannet submit: train: --epochs and --steps both" "options that contradict each other" dry -- train --model lenet --data d --checkpoint r --epochs 1 --steps 1
expect 2 "^gannet submit: train: .*cannot be combined" "or cannot be combined" dry -- train --model lenet --data d --checkpoint r --local-steps 4 --compress int8
expect 2 "^gannet submit: exec: .*--labl" "so is one of exec" dry -- exec --labl true
expect 2 "^gannet submit: train: --seed: '3x'" "the task's number has its place" dry --array 3-5 -- train --model lenet --data d --checkpoint r%a --seed %ax
expect 0 "--seed' '%a'" "and is one" dry --array 3-5 -- train --model lenet --data d --checkpoint r%a --seed %a
expect 0 "^gannet: warning: --data d is not on this machine" "data that is not here is a warning" dry -- train --model lenet --data d --checkpoint r
prints() { # TEXT: sbatch does, and succeeds
	rm -rf run4
	printf '#!/bin/sh\nprintf "%%b" "%s"\n' "$1" >bin/sbatch
	PATH="$dir/bin:$PATH" "$GN_BUILD/gannet" submit --dir run4 -- exec true
}
for said in '12\n' '12;east\n' 12; do expect 0 "^12$" "sbatch prints $said" prints "$said"; done
for said in 'Submitted batch job 12\n' '12 of your jobs\n' 'welcome\n12\n' '12\n13\n' '12;\n' '0\n' '12x\n' ''; do
	expect 1 "sbatch --parsable printed no job number, but .*squeue" "no job number: '$said'" prints "$said"
done
check "a job that may be there keeps its folder" test -s run4/job.sbatch
real() { PATH="$dir/bin:$PATH" "$GN_BUILD/gannet" submit --dir run3 "$@"; }
expect 2 "^gannet submit: train: .*data=7 x pipeline=5 are 35 ranks" "or a mesh of another number of ranks" dry -- train --model lenet --data d --checkpoint r \
	--parallel data=7,pipeline=5
expect 2 "^gannet submit: train: .*--modle" "refused without --dry-run, too" real -- train --modle x --data d --checkpoint r
check "before anything is made" test ! -e run3
finish
