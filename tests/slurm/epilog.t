#!/bin/bash
# slurm/epilog: what a killed job left is removed, but not while its user has another job there, and nothing of another user.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
cat >"$cluster/epilog" <<EPILOG
#!/bin/bash
export GANNET_LOCAL=$cluster/vc/nvme SLURM_CONF=$cluster/vc/conf/slurm.conf
"$cluster/slurm/epilog"
echo "\$SLURM_JOB_ID" >>"$cluster/ended"
EPILOG
chmod 755 "$cluster/epilog"
cp -r "$GN_SOURCE/slurm" "$cluster/slurm"
check "a node with the epilog comes up" vc up --nodes 1 --cpus-per-node 2 --epilog "$cluster/epilog"
user=65534
as_user() { (cd / && exec setpriv --reuid $user --regid 65534 --clear-groups "$@"); }
on_user() { (cd / && exec timeout -k 5 300 setpriv --reuid $user --regid 65534 --clear-groups "$GN_SOURCE/slurm/vcluster" run --dir "$cluster/vc" -- "$@"); }
# shellcheck disable=SC2016 # for the job's shell
leaves='umask 077; mkdir -p "$GANNET_LOCAL/gannet-$(id -u)/data/deep"; : >"$GANNET_LOCAL/gannet-$(id -u)/data/deep/.x"
	ln -sfn '$cluster'/precious "$GANNET_LOCAL/gannet-$(id -u)/link"; echo x >/dev/shm/ucx_shm_posix_1; echo x >"/dev/shm/mine-$(id -u)"; ipcmk -M 4096 >/dev/null'
mkdir -m 777 "$cluster/precious" && echo x >"$cluster/precious/x" && chmod 666 "$cluster/precious/x"
# shellcheck disable=SC2016
here() { on srun --overlap sh -c 'ls -d "$GANNET_LOCAL"/gannet-* /dev/shm/* 2>/dev/null; ipcs -m | grep -c " 4096 "'; }
ended() { (($(wc -l <"$cluster/ended") >= $1)); }
# as root, which the epilog leaves alone
on srun sh -c "${leaves//ucx_shm_posix_1/ucx_shm_posix_root}"
check "root's job ends" until_true ended 1
other=$(on_user sbatch --parsable --chdir=/ --output=/dev/null --wrap 'sleep infinity')
running() { on squeue -h -j "$other" -t R -o %T | grep -q RUNNING; }
check "another job of the user runs" until_true running
on_user srun sh -c "$leaves"
check "the user's job ends" until_true ended 2
expect 0 "gannet-$user" "what it left is kept while another job of the user is there" here
expect 0 "ucx_shm_posix_1" "with its memory" here
n=$(($(wc -l <"$cluster/ended") + 1))
on scancel "$other"
check "the last job ends" until_true ended $n
here >"$cluster/left"
gone() { ! grep -qx ".*$1" "$cluster/left"; }
check "staged data is removed" gone gannet-$user
check "so are segments" gone ucx_shm_posix_1
expect 0 "^/dev/shm/mine-$user$" "a file of another name stays" cat "$cluster/left"
expect 0 "^/dev/shm/ucx_shm_posix_root$" "what belongs to root stays" cat "$cluster/left"
expect 0 "gannet-0$" "with its data" cat "$cluster/left"
expect 0 "^1$" "and its System V segment" cat "$cluster/left"
check "a link is not followed" test -s "$cluster/precious/x"
finish
