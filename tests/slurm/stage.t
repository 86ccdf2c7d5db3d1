#!/bin/bash
# srun --gannet-stage: the dataset is on each node's disk, as the user's, before the programs start; a failure ends the step with the reason;
# nothing happens without the option.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
plugin=$GN_BUILD/spank_gannet_stage.so
if [[ ! -e $plugin ]]; then
	echo "1..0 # SKIP configure found no slurm/spank.h: install libslurm-dev"
	exit 0
fi
cluster_begin
"$gannet" pack --out "$cluster/train" "$GN_SOURCE/data/digits/digits-val.tar.xz" 2>"$cluster/err" || cat "$cluster/err"
# Another user's job cannot enter the folders of a build.
mkdir "$cluster/bin" && cp "$gannet" "$cluster/bin/gannet" && cp "$plugin" "$GN_SOURCE/slurm/stage-node" "$cluster/bin" && cp -r "$GN_SOURCE/slurm" "$cluster/slurm"
check "two nodes come up" vc up --nodes 2 --cpus-per-node 2 --kill-wait 2
as_before() { echo "$1 $cluster/bin/spank_gannet_stage.so stage-node=$cluster/bin/stage-node" >"$cluster/vc/conf/plugstack.conf"; }
as_before required

user=65534
srun() { # as nobody
	(cd / && PATH=$cluster/bin:$PATH exec timeout -k 5 300 setpriv --reuid $user --regid 65534 --clear-groups "$cluster/slurm/vcluster" run \
		--dir "$cluster/vc" -- srun --label "$@")
}
expect 0 "--gannet-stage=DATASET " "srun --help has the option" srun --help
# shellcheck disable=SC2016
expect 0 "^0: none$" "without it a step is as before" srun -N1 sh -c 'echo ${GANNET_STAGED-none}'
check "and stages nothing" test ! -e "$cluster/vc/node/n1/nvme/gannet-$user"
# shellcheck disable=SC2016 # for the tasks' shells
whole() {
	srun -N2 --ntasks-per-node=2 --gannet-stage="$cluster/train" sh -c 'stat -c "%u %a" "$(dirname "$GANNET_STAGED")" && gannet verify "$GANNET_STAGED" 2>&1' \
		>"$cluster/out" 2>"$cluster/err" || { cat "$cluster/out" "$cluster/err"; return 1; }
	cat "$cluster/out" "$cluster/err"
	[[ $(grep -c ": $user 700$" "$cluster/out") == 4 && $(grep -c "n[12]: .* copied" "$cluster/err") == 2 ]]
}
check "four tasks on two nodes find a whole copy of their user's" whole
staged=$(echo "$cluster"/vc/node/n2/nvme/gannet-$user/*)
to_root() { find "$cluster"/vc/node/n[12]/nvme -mindepth 1 ! -user $user | grep .; }
expect 1 "" "nothing belongs to root" to_root
expect 0 "0 shards copied" "the next step finds it" srun -N2 --gannet-stage="$cluster/train" true
# As in an installation: the plugin finds what it runs from its own place.
mkdir -p "$cluster/lib/gannet" "$cluster/share/gannet/slurm" && cp "$plugin" "$cluster/lib/gannet" && cp "$GN_SOURCE/slurm/stage-node" "$cluster/share/gannet/slurm"
echo "required $cluster/lib/gannet/spank_gannet_stage.so" >"$cluster/vc/conf/plugstack.conf"
expect 0 "0 shards copied" "so does one of a plugin without stage-node=" srun -N2 --gannet-stage="$cluster/train" true
as_before required
# train.sbatch would look there
check "the folder is that of stage.sbatch" test "$staged" = "$cluster/vc/node/n2/nvme/gannet-$user/train-$(printf %s "$cluster/train" | cksum | cut -d' ' -f1)"

broken() { # PATTERN ARGUMENT...: the step fails, names the node and why, and starts no task
	local pattern=$1 code
	shift
	srun -N2 --ntasks-per-node=1 "$@" sh -c 'echo started' >"$cluster/out" 2>&1
	code=$?
	cat "$cluster/out"
	((code)) && grep -qE "$pattern" "$cluster/out" && ! grep -q "started" "$cluster/out"
}
nothere="gannet_stage: n[12]: $cluster/none was not staged: exit code [13]"
check "a dataset that is not there fails the step" broken "$nothere" --gannet-stage="$cluster/none"
check "with gannet's reason" grep -qE "n1(\[0\])? stage: cannot read $cluster/none: No such file" "$cluster/out"
mkdir "$cluster/folder" && chmod 755 "$cluster/folder"
check "a folder that is no dataset says what it takes" broken "$cluster/folder: no packed dataset .*needs srun --mpi=pmix" --gannet-stage="$cluster/folder"
check "a relative path is refused by srun" broken "needs the whole path of a packed dataset, not 'train'" --gannet-stage=train
GANNET=/bin/false check "a program that fails does too" broken "was not staged: exit code 1" --gannet-stage="$cluster/train"
as_before optional
check "so it is where plugstack.conf says optional" broken "$nothere" --gannet-stage="$cluster/none"
as_before required

# What runs is the user's: here it tells who it is, and what it can reach.
cat >"$cluster/bin/who" <<'WHO'
#!/bin/bash
{
	grep -E '^(Uid|Gid|Groups|CapEff|CapPrm):' /proc/self/status
	ls /proc/self/fd | sed 's/^/fd /'
} >"$0.$$"
exit 9
WHO
chmod 755 "$cluster/bin/who" && chmod 777 "$cluster/bin"
GANNET=$cluster/bin/who check "a program of the user's own" broken "was not staged: exit code 9" --gannet-stage="$cluster/train"
cat "$cluster"/bin/who.* >"$cluster/who"
expect 0 "^Uid:.65534.65534.65534.65534$" "has no id of root's" cat "$cluster/who"
expect 0 "^Gid:.65534.65534.65534.65534$" "nor a group of root's" cat "$cluster/who"
privileged() { grep -E '^(Uid|Gid):.*[[:space:]]0[[:space:]]|^Groups:.*[[:space:]]0[[:space:]]|^Cap...:.*[1-9a-f]' "$cluster/who"; }
expect 1 "" "nor a capability" privileged
# 0 to 2, and the folder that ls reads
descriptors() { sed -n 's/^fd //p' "$cluster/who" | sort -un | tr '\n' ' '; }
expect 0 "^0 1 2 3 $" "nor a descriptor of slurmstepd's" descriptors
# A user who does not want to wait.
printf '#!/bin/sh\nexec sleep 9876.%s\n' $$ >"$cluster/bin/slow" && chmod 755 "$cluster/bin/slow"
cancelled() {
	local step
	# shellcheck disable=SC2317 # until_true calls them
	pids() { pgrep -fx "sleep 9876[.]$$"; }
	# shellcheck disable=SC2317
	gone() { ! pids; }
	GANNET=$cluster/bin/slow srun -N1 --gannet-stage="$cluster/train" true >"$cluster/out" 2>&1 &
	step=$!
	until_true pids || { cat "$cluster/out"; return 1; }
	on scancel --user="$user"
	until_true gone && ! wait $step
}
check "scancel ends a copy" cancelled
check "the nodes are well after all this" vc status
finish
