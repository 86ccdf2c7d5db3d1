#!/bin/bash
# What is found on a host: users without a passwd entry, PMIx configured by others, ulimit -f, -v and -u, /dev/shm. It works, or one is told why not.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"
bench=("$gannet" bench allreduce --max-bytes 1K --iters 2)
chmod 755 "$scratch"

# --- PMIx ---
if ((UID)) || ! command -v setpriv >/dev/null; then
	skip "a user without an entry in passwd and without HOME" "it takes root and setpriv"
	skip "their programs have a HOME" "it takes root and setpriv"
else
	cp "$gannet" "$scratch/gannet"
	nobody=(timeout -k 5 300 setpriv --reuid $((50000 + $$ % 10000)) --regid 54321 --clear-groups env -u HOME -u GANNET_SECRET_FILE "$scratch/gannet" launch -n 2)
	expect 0 "2 ranks on 1 node" "a user without an entry in passwd and without HOME" "${nobody[@]}" -- env -u HOME "$scratch/gannet" "${bench[@]:1}"
	# shellcheck disable=SC2016
	expect 0 "^home /$" "their programs have a HOME" "${nobody[@]}" -- "$scratch/gannet" exec sh -c 'echo "home $HOME"'
fi
# left WARNING VARIABLE...: a job with these in the environment
left() { env "${@:2}" timeout -k 5 60 "$gannet" launch -n 2 -- sh -c 'env | grep ^PMIX_MCA_; exec "$@"' x "${bench[@]}" >"$scratch/out" 2>"$scratch/err"; }
dropped() {
	left "$@" || { cat "$scratch/out" "$scratch/err"; return 1; }
	cat "$scratch/out" "$scratch/err"
	grep -q "launch: warning: $1: not used" "$scratch/err" && ! grep -q ^PMIX_MCA_ "$scratch/out"
}
kept() { left "$@" && ! grep -q warning: "$scratch/err" && grep -qxF "$1" "$scratch/out"; }
for variable in PMIX_MCA_gds=ds21 PMIX_MCA_gds=ds12 PMIX_MCA_psec=munge PMIX_MCA_ptl_base_if_include=none0 PMIX_MCA_pshmem=none; do
	check "$variable, left by another launcher" dropped "$variable" "$variable"
done
for variable in PMIX_MCA_gds=hash PMIX_MCA_gds=^ds12 PMIX_MCA_ptl_base_verbose=0 PMIX_MCA_mca_base_component_show_load_errors=0; do
	check "$variable is passed on" kept "$variable" "$variable"
done
mkdir -p "$scratch/home/.pmix"
echo 'gds = ds21' >"$scratch/home/.pmix/mca-params.conf"
expect 4 "rank [01] on $(hostname): PMIx_Init has waited for 2 s .GANNET_JOIN_TIMEOUT" "PMIx that blocks a rank for ever, by its file" \
	env HOME="$scratch/home" GANNET_JOIN_TIMEOUT=2 timeout -k 5 60 "$gannet" launch -n 2 -- "${bench[@]}"
stopped() {
	# shellcheck disable=SC2016
	GANNET_JOIN_TIMEOUT=2 timeout -k 5 60 sh -c '"$@" & wait' x "$gannet" launch -n 1 -- sh -c 'kill -STOP $PPID; "$@"; code=$?; kill -CONT $PPID; echo "code $code"' x "${bench[@]}"
}
expect 0 "^code 4" "a launcher that is stopped, and goes on later" stopped
echo '#include <unistd.h>
int PMIx_server_init(void *module, void *info, unsigned long count); int PMIx_server_init(void *module, void *info, unsigned long count)
{ (void)module; (void)info; (void)count; for (;;) pause(); }' >"$scratch/blocks.c"
if [[ ${GN_SANITIZED:-} ]] || ! cc -shared -fPIC -o "$scratch/blocks.so" "$scratch/blocks.c"; then
	skip "PMIx that blocks the launcher for ever" "no compiler, or a sanitizer that comes first"
else
	expect 1 "launch: PMIx did not start a server on $(hostname) for 2 ranks within 2 s" "PMIx that blocks the launcher for ever" \
		env LD_PRELOAD="$scratch/blocks.so" GANNET_JOIN_TIMEOUT=2 timeout -k 5 60 "$gannet" launch -n 2 -- true
fi

# --- ulimit -f ---
"$gannet" pack --out "$scratch/data" --synthetic 256 --classes 4 --size 28x28 >/dev/null 2>&1
expect 1 "WARN.*checkpoint of step 5: cannot write .*ulimit -f.*the run goes on" "a checkpoint above ulimit -f is a warning" env UCX_TLS=tcp,self \
	bash -c 'ulimit -f 50; exec timeout -k 5 300 "$@"' x "$gannet" train --data "$scratch/data" --model lenet --batch 16 --steps 5 --checkpoint "$scratch/checkpoint"
expect 1 "/dev/shm cannot hold what UCX needs: .*ulimit -f" "shared memory of UCX above ulimit -f" \
	bash -c 'ulimit -f 50; exec timeout -k 5 300 "$@"' x "${bench[@]}"
expect 1 "cannot create [0-9]* bytes of shared memory: .*ulimit -f" "shared memory of gannet above ulimit -f" \
	bash -c 'ulimit -f 4; exec timeout -k 5 300 "$@"' x "$gannet" launch -n 2 -- "${bench[@]}"
expect 1 "cannot write .*ulimit -f" "a dataset above ulimit -f" \
	bash -c 'ulimit -f 50; exec timeout -k 5 300 "$@"' x "$gannet" pack --out "$scratch/more" --synthetic 256 --classes 4 --size 28x28
# SIGXFSZ is 25
expect 0 "^SigIgn:.*[02468ace].{6}$" "programs are not limited in another way: launch" launch 1 grep SigIgn /proc/self/status
expect 0 "^SigIgn:.*[02468ace].{6}$" "programs are not limited in another way: exec" timeout -k 5 300 "$gannet" exec grep SigIgn /proc/self/status

# --- ulimit -v and -u ---
# All sizes from what is too little for libraries (code 127) to what is enough: what stands in the way is told.
small_memory() {
	local kilobytes code named=0
	for ((kilobytes = 100000; kilobytes < 4000000; kilobytes += 10000)); do
		bash -c "ulimit -v $kilobytes"'; exec timeout -k 5 300 "$@"' x "$@" >"$scratch/out" 2>&1
		code=$?
		((code)) || break
		((code != 127)) || continue
		echo "$kilobytes KB:"
		cat "$scratch/out"
		((code == 1)) && ! grep -q "of /dev/shm" "$scratch/out" || return 1
		! grep -q "ulimit -v" "$scratch/out" || named=$((named + 1))
	done
	((code == 0 && named))
}
if [[ ${GN_SANITIZED:-} ]]; then
	skip "an address space that is too small" "a sanitizer needs terabytes"
else
	check "an address space that is too small for one process" small_memory "${bench[@]}"
	check "an address space that is too small for launch" small_memory "$gannet" launch -n 1 -- "${bench[@]}"
fi
if ((UID)) || ! command -v setpriv >/dev/null; then
	skip "too few threads" "it takes root and setpriv"
else
	few() { # PROCESSES COMMAND...
		timeout -k 5 300 setpriv --reuid $((50000 + $$ % 10000)) --regid 54321 --clear-groups env -u GANNET_SECRET_FILE bash -c "ulimit -u $1; exec \"\$@\"" x "${@:2}"
	}
	expect 1 "cannot start a thread for UCX: .*ulimit -u .2 processes" "too few threads for UCX" few 2 "$scratch/gannet" "${bench[@]:1}"
	expect 1 "cannot start a thread for PMIx: .*ulimit -u .2 processes" "too few threads for PMIx" few 2 "$scratch/gannet" launch -n 1 -- true
fi

# --- /dev/shm ---
# shellcheck disable=SC2016 # for the shell in there
mounted() { # OPTIONS COMMAND...
	unshare --mount sh -c 'mount -t tmpfs -o "$1" none /dev/shm && shift && exec timeout -k 5 300 "$@"' x "$@"
}
if ((UID)) || ! unshare --mount true 2>/dev/null; then
	skip "/dev/shm that cannot be used" "it takes root and namespaces"
else
	expect 1 "UCX needs 4.4 MB of /dev/shm for each rank, and [0-9.]* of its 1.0 MB are free" "/dev/shm that is full" mounted size=1m "${bench[@]}"
	# shellcheck disable=SC2016
	expect 1 "rank 1 on [^:]*: UCX needs 4.4 MB of /dev/shm for each rank" "of one rank alone" timeout -k 5 300 "$gannet" launch -n 3 -- sh -c '
		[ "$PMIX_RANK" != 1 ] || exec unshare --mount sh -c '"'mount -t tmpfs -o size=1m none /dev/shm && exec \"\$@\"'"' x "$@"
		exec "$@"' x "${bench[@]}"
	expect 1 "/dev/shm cannot be written: Read-only file system; .*mode=1777" "/dev/shm that is read-only" mounted ro "${bench[@]}"
	expect 1 "/dev/shm cannot be written: Permission denied; .*mode=1777" "/dev/shm of another user" mounted mode=755 \
		setpriv --reuid 54321 --regid 54321 --clear-groups "$scratch/gannet" "${bench[@]:1}"
fi
finish
