#!/bin/bash
# Staging from and checkpoints on a real NFS server, which stops and starts, loses files and is full: two emulated machines
# (tests/rdma/cluster), the first exports a folder in its memory, the second mounts it, hard, as clusters do.
# A run waits while the server is away and then goes on; nothing incomplete has a final name.
# shellcheck disable=SC2016 # for the shells of the guests
set -u
# shellcheck source=tests/train/common.sh
. "$GN_SOURCE/tests/train/common.sh"
: "${dir:?}" "${gannet:?}"
PATH=$PATH:/usr/sbin:/sbin
if ! command -v rpc.nfsd >/dev/null || ! command -v mount.nfs4 >/dev/null; then
	echo '1..0 # SKIP no NFS server: slurm/install-packages nfs rdma'
	exit 0
fi
export GN_CLUSTER_SECONDS=240 GN_CLUSTER_LIFE=1100 GN_CLUSTER_MODULES='nfsd nfs nfsv4 nfsv3' GN_CLUSTER_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/gannet/nfs-lab
# shellcheck source=tests/rdma/guests.sh
. "$GN_SOURCE/tests/rdma/guests.sh"
guests_up NFS
server() { cluster run 1 bash -c "export PATH=\$PATH:/usr/sbin; $1"; }
client() { cluster run 2 bash -c "export UCX_WARN_UNUSED_ENV_VARS=n PATH=\$PATH:/usr/sbin lab=$lab gannet=$gannet; $1"; }
until_there() { # FILE
	until_true test -e "$1"
}

refused() { # PATTERN COMMAND...: it fails, and says so
	local out code
	out=$("${@:2}" 2>&1)
	code=$?
	printf '%s\n' "$out"
	((code == 1 || code == 3)) && grep -Eq -e "$1" <<<"$out"
}

# Grace: how long after a start the server waits for clients that had files open.
check 'a server of NFS 4.2' server 'set -e; mount -t tmpfs none /var/lib/nfs; mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs /run/export; : >/var/lib/nfs/etab; : >/var/lib/nfs/rmtab
	mount -t tmpfs -o size=200m none /run/export; mount -t nfsd nfsd /proc/fs/nfsd; echo 10 >/proc/fs/nfsd/nfsv4leasetime; echo 10 >/proc/fs/nfsd/nfsv4gracetime
	exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=0 10.77.0.0/24:/run/export; rpc.mountd -N 3; rpc.nfsd -N 3 4
	mkdir /run/export/src; for i in 1 2 3 4 5 6; do head -c 8000000 /dev/urandom >/run/export/src/f$i; done; mkdir /run/export/src/d; echo small >/run/export/src/d/g'
mounted() { client 'set -e; mkdir -p /run/nfs; mount -t nfs4 -o vers=4.2,hard,timeo=20,retrans=2 10.77.0.1:/ /run/nfs; ls /run/nfs/src/f6'; }
check 'is mounted' mounted
if ! client 'mountpoint -q /run/nfs'; then
	finish
	exit 1
fi

# stage NAME: to /dev/shm/NAME; stands still with a part of it, says so in $lab/half, and goes on when $lab/go is there
stage='stage() {
	rm -f $lab/half $lab/go
	"$gannet" stage --json --threads 1 --from /run/nfs/src --to /dev/shm/$1 & pid=$!
	for ((i = 0; i < 4000; i++)); do (($(wc -l 2>/dev/null </dev/shm/$1.gannet-part/journal || echo 0) >= 3)) && break; sleep 0.005; done
	kill -STOP $pid; echo 3 >/proc/sys/vm/drop_caches; : >$lab/half
	until [[ -e $lab/go ]]; do sleep 0.1; done
	kill -CONT $pid; : >$lab/went; wait $pid
}'
# meanwhile NAME SERVER-COMMAND [SERVER-COMMAND once it goes on]: output and code of the stage
meanwhile() {
	local job code
	rm -f "$lab/went" "$lab/half" "$lab/go"
	client "$stage; stage $1" >"$dir/stage.out" 2>&1 &
	job=$!
	until_there "$lab/half" && server "$2" && : >"$lab/go" && until_there "$lab/went" && { [[ ! ${3:-} ]] || server "$3"; }
	wait $job
	code=$?
	cat "$dir/stage.out"
	return $code
}
expect 0 '"failed_nodes": 0' 'the server stops while a tree is staged, and starts again' meanwhile away 'rpc.nfsd 0' 'sleep 4; rpc.nfsd -N 3 4'
check 'the copy is right' client 'diff -r /run/nfs/src /dev/shm/away && ! ls -d /dev/shm/away.gannet-part'
check 'files are replaced while they are staged' refused 'Stale file handle|No such file|was changed while it was staged' meanwhile stale \
	'cd /run/export/src && for f in f*; do cp $f new && mv new $f && echo x >>$f; done'
check 'nothing under the final name' client '! ls -d /dev/shm/stale'
expect 0 '"failed_nodes": 0' 'the next run stages what is there now' client '"$gannet" stage --json --from /run/nfs/src --to /dev/shm/stale'
check 'rightly' client 'diff -r /run/nfs/src /dev/shm/stale; code=$?; rm -rf /dev/shm/*; exit $code'

check 'digits are packed' "$gannet" pack --out "$lab/train" "$GN_SOURCE/data/digits/digits-train.tar.xz"
train='train() { "$gannet" train --data $lab/train --model lenet --batch 16 --lr 0.01 --threads 1 --loader-threads 1 --checkpoint /run/nfs/run --log $lab/log.jsonl --log-every 1 "$@"; }'
steps_done() { # COUNT
	local end=$((SECONDS + 200))
	until (($(grep -c '"event": "step"' "$lab/log.jsonl" 2>/dev/null) >= $1)); do
		((SECONDS < end)) || return 1
		sleep 0.1
	done
}
# with_checkpoints STEPS AFTER SERVER-COMMAND: a run of STEPS, in which the server does that once the log has AFTER
with_checkpoints() {
	local job code
	client "$train; train --steps $1 --checkpoint-every 3 --resume auto" >"$dir/train.out" 2>&1 &
	job=$!
	steps_done "$2" && server "$3"
	wait $job
	code=$?
	cat "$dir/train.out"
	return $code
}
expect 0 'done: 15 steps' 'the server is away for some seconds while a run saves checkpoints' with_checkpoints 15 4 'rm -r /run/export/src; rpc.nfsd 0; sleep 4; rpc.nfsd -N 3 4'
whole='for step in /run/nfs/run/step-*; do case $step in *.tmp) echo $step; exit 1 ;; esac; "$gannet" info $step || exit; done'
check 'all checkpoints are whole' client "$whole"
check 'the server gets full' refused 'No space left' with_checkpoints 24 17 'head -c 300000000 /dev/zero >/run/export/fill; true'
check 'the checkpoints that are there are whole' client "$whole"
expect 0 'done: .*step-00000024' 'with space again the run goes on' client "$train; rm /run/nfs/fill; train --steps 24 --checkpoint-every 3 --resume auto"
check 'and its checkpoints are whole' client "$whole"
finish
