#!/bin/bash
# slurm/prolog: the user's folder is made before a job, or it is logged whose it is. slurm/epilog: what a killed job left is removed, but not
# while its user has another job there or a program has it open, and nothing of another user.
set -u
# shellcheck source=tests/slurm/cluster.sh
. "$GN_SOURCE/tests/slurm/cluster.sh"
cluster_begin
cat >"$cluster/log" <<LOG
logger() { echo "\$*" >>"$cluster/logged"; }
export -f logger
LOG
cat >"$cluster/epilog" <<EPILOG
#!/bin/bash
export GANNET_LOCAL=$cluster/vc/nvme SLURM_CONF=$cluster/vc/conf/slurm.conf GANNET=/none/gannet GANNET_METRICS=$cluster/metrics
[[ ! -e $cluster/unknown ]] || unset GANNET_LOCAL
. "$cluster/log"
"$cluster/slurm/epilog"
echo "\$SLURM_JOB_ID" >>"$cluster/ended"
EPILOG
cat >"$cluster/prolog" <<PROLOG
#!/bin/bash
export GANNET_LOCAL=$cluster/vc/nvme
. "$cluster/log"
"$cluster/slurm/prolog"
PROLOG
chmod 755 "$cluster/epilog" "$cluster/prolog"
cp -r "$GN_SOURCE/slurm" "$cluster/slurm"
check "a node with both comes up" vc up --nodes 1 --cpus-per-node 3 --prolog "$cluster/prolog" --epilog "$cluster/epilog"
user=65534
as_user() { (cd / && exec setpriv --reuid $user --regid 65534 --clear-groups "$@"); }
on_user() { (cd / && exec timeout -k 5 300 setpriv --reuid $user --regid 65534 --clear-groups "$GN_SOURCE/slurm/vcluster" run --dir "$cluster/vc" -- "$@"); }
# shellcheck disable=SC2016 # for the job's shell
leaves='umask 077; mkdir -p "$GANNET_LOCAL/gannet-$(id -u)/data/deep"; : >"$GANNET_LOCAL/gannet-$(id -u)/data/deep/.x"
	ln -sfn '$cluster'/precious "$GANNET_LOCAL/gannet-$(id -u)/link"; echo x >/dev/shm/ucx_shm_posix_1; echo x >"/dev/shm/mine-$(id -u)"; ipcmk -M 4096 >/dev/null'
user_job() { on_user srun -n1 "$@"; }
# shellcheck disable=SC2016 # for the job's shell
expect 0 "^$user 65534 700$" "the user's folder is made before his job" user_job sh -c 'stat -c "%u %g %a" "$GANNET_LOCAL/gannet-$(id -u)"'
emptied() { [[ ! -e $cluster/vc/node/n1/nvme/gannet-$user ]]; }
check "and removed after it" until_true emptied
mkdir "$cluster/vc/node/n1/nvme/gannet-$user"
chown 65533 "$cluster/vc/node/n1/nvme/gannet-$user"
cp "$gannet" "$cluster/gannet"
"$gannet" pack --out "$cluster/val" "$GN_SOURCE/data/digits/digits-val.tar.xz" 2>/dev/null
expect 1 "gannet-$user belongs to user 65533" "where it is another user's, gannet stage says so" \
	user_job env GANNET="$cluster/gannet" "$cluster/slurm/stage-node" "$cluster/val"
expect 0 "gannet-$user is not a folder of user $user: a directory of user 65533" "and the log" cat "$cluster/logged"
rmdir "$cluster/vc/node/n1/nvme/gannet-$user"
# What a run of the job would leave when it is killed, and another's of the same user.
mkdir -m 1777 "$cluster/metrics"
: >"$cluster/unknown"
# shellcheck disable=SC2016
check "a job without GANNET_LOCAL, whose runs write metrics" user_job sh -c 'cd "$0" && me=$(id -un 2>/dev/null || id -u) && : >"gannet-$me-$SLURM_JOB_ID-log.prom" && : >"gannet-$me-1$SLURM_JOB_ID-log.prom" && : >"gannet-$me-1-run-$SLURM_JOB_ID-log.prom" && : >mine' "$cluster/metrics"
said() { grep -q "GANNET_LOCAL is not set, and /none/gannet, .*, cannot be run: staged data is kept; GANNET names the program" "$cluster/logged"; }
check "the epilog logs that it cannot run gannet" until_true said
expect 0 "^gannet-[^-]*-1-run-[0-9]*-log.prom gannet-[^-]*-1[0-9]*-log.prom mine$" "and removes what the job left" sh -c 'cd "$1" && echo *' sh "$cluster/metrics"
rm -r "$cluster/unknown" "$cluster/vc/node/n1/nvme/gannet-$user"
ln -s "$cluster" "$cluster/vc/node/n1/nvme/gannet-$user"
check "a job goes on where the name is a link" user_job true
expect 0 "gannet-$user is not a folder of user $user: a symbolic link of user 0" "which the log has" cat "$cluster/logged"
check "and which stays as it is" test "$(stat -c %u "$cluster")" = 0 -a -L "$cluster/vc/node/n1/nvme/gannet-$user"
rm "$cluster/vc/node/n1/nvme/gannet-$user"
chmod 777 "$cluster/vc/node/n1/nvme"
check "another job" user_job true
chmod 1777 "$cluster/vc/node/n1/nvme"
expect 0 "others may replace what is in it" "nothing is made where others could replace it" cat "$cluster/logged"
mkdir -m 777 "$cluster/precious" && echo x >"$cluster/precious/x" && chmod 666 "$cluster/precious/x"
# shellcheck disable=SC2016
here() { on srun --overlap sh -c 'ls -d "$GANNET_LOCAL"/gannet-* /dev/shm/* 2>/dev/null; ipcs -m | grep -c " 4096 "'; }
ended() { (($(wc -l <"$cluster/ended") >= $1)); }
quiet() { [[ ! $(on squeue -h) ]]; }
check "all epilogs have ended" until_true quiet
: >"$cluster/ended"
# as root, which the epilog leaves alone
on srun sh -c "${leaves//ucx_shm_posix_1/ucx_shm_posix_root}"
check "root's job ends" until_true ended 1
# What the user's programs outside of his jobs hold: mapped, open, and by a thread that is left in a mount namespace with another path.
cat >"$cluster/hold" <<'HOLD'
import ctypes, mmap, os, sys, threading, time
name, how, user = sys.argv[1:]
fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 4096)
os.fchown(fd, int(user), -1)
memory = how != "open" and mmap.mmap(fd, 4096)
if how != "open":
    os.close(fd)
open(name + ".held", "w").close()
if how == "thread":
    threading.Thread(target=time.sleep, args=(1e6,)).start()
    ctypes.CDLL(None).pthread_exit(None)
time.sleep(1e6)
HOLD
cat >"$cluster/holders" <<HOLDERS
#!/bin/bash
python3 "$cluster/hold" /dev/shm/ucx_shm_mapped mapped $user &
python3 "$cluster/hold" /dev/shm/nccl-open open $user &
unshare -m bash -c 'mount --bind /dev/shm "$cluster/vc/tmp" && umount /dev/shm && exec python3 "$cluster/hold" "$cluster/vc/tmp/torch_thread" thread $user' &
wait
HOLDERS
chmod 755 "$cluster/holders"
on sbatch -n1 --output="$cluster/holders.out" "$cluster/holders" >/dev/null
held() { (($(here | grep -c '\.held$') == 3)); }
check "programs outside of the user's jobs hold memory" until_true held
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
expect 0 "^/dev/shm/ucx_shm_mapped$" "but not what a program has mapped" cat "$cluster/left"
expect 0 "^/dev/shm/nccl-open$" "or open" cat "$cluster/left"
expect 0 "^/dev/shm/torch_thread$" "or a thread has under another path" cat "$cluster/left"
expect 0 "^/dev/shm/mine-$user$" "a file of another name stays" cat "$cluster/left"
expect 0 "^/dev/shm/ucx_shm_posix_root$" "what belongs to root stays" cat "$cluster/left"
expect 0 "gannet-0$" "with its data" cat "$cluster/left"
expect 0 "^1$" "and its System V segment" cat "$cluster/left"
check "a link is not followed" test -s "$cluster/precious/x"
finish
