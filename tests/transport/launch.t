#!/bin/bash
# Ranks under gannet launch: results, signals, exit codes, lost peers.
set -u
# shellcheck source=tests/transport/common.sh
. "$GN_SOURCE/tests/transport/common.sh"

all_right() { # N TRANSPORT: every rank reports no wrong element
	launch "$1" "$probe" "$2" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	[[ $(grep -c "of $1 on 1 nodes by pmix: 0 wrong" "$scratch/out") == "$1" ]]
}
# Other numbers of ranks, and more programs in turn: ranks.t
check "5 ranks over shm: collectives are right" all_right 5 shm
check "the line at start names what carries data" grep -q "using posix, cma" "$scratch/err"
check "3 ranks over tcp: collectives are right" all_right 3 tcp
# shellcheck disable=SC2016
in_turn() {
	launch 2 sh -c '"$0" auto && exec "$0" shm' "$probe" >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/err"; return 1; }
	[[ $(grep -c "of 2 on 1 nodes by pmix: 0 wrong" "$scratch/out") == 4 ]]
}
check "two programs one after the other, the first over whatever UCX likes best" in_turn
expect 2 "no transport 'pigeon'" "an unknown transport is refused" launch 2 "$probe" pigeon
# Ranks that may not look into each other, as in containers, or that UCX takes to be on other machines: by the network, then.
apart() { # OPTION...
	launch 2 unshare "$@" "$probe" auto >"$scratch/out" 2>"$scratch/err" || { cat "$scratch/out" "$scratch/err"; return 1; }
	cat "$scratch/err"
	[[ $(grep -c "of 2 on 1 nodes by pmix: 0 wrong" "$scratch/out") == 2 ]] && ! grep -q "posix\|cma" "$scratch/err"
}
for namespace in "--user --map-root-user" --ipc; do
	# shellcheck disable=SC2086 # options
	if unshare $namespace true 2>/dev/null; then
		check "2 ranks with unshare $namespace" apart $namespace
	else
		skip "2 ranks with unshare $namespace" "not allowed here"
	fi
done
asleep() { GANNET_WAIT='sleep' all_right "$@"; }
check "2 ranks over shm that sleep while they wait" asleep 2 shm
never_waits() { GANNET_WAIT=never launch 2 "$probe" shm; }
expect 2 "GANNET_WAIT=never: auto, spin or sleep" "an unknown way to wait is refused" never_waits

# --- the launcher itself ---
# shellcheck disable=SC2016
silent() { timeout -k 5 300 "$gannet" launch -n 2 --grace 1 -- sh -c '[ "$PMIX_RANK" = 1 ] && exec no-such-program 2>/dev/null; exec sleep 1000'; }
expect 127 "launch: rank 1 ended with code 127 .of shells: there is no such program.; the others have 1 s" "a rank that ends without a word" silent
expect 2 "ranks" "launch without -n is wrong usage" "$gannet" launch true
expect 2 "" "0 ranks are wrong usage" "$gannet" launch -n 0 true
expect 1 "TMPDIR: cannot make /proc/gannet-launch" "a TMPDIR that cannot be used is named, and is no bad input" env TMPDIR=/proc "$gannet" launch -n 1 true
expect 127 "cannot run .*/nowhere" "a program that is not there" launch 2 /nowhere
printf '#!/bin/sh\r\n' >"$scratch/crlf.sh"
chmod +x "$scratch/crlf.sh"
expect 127 "gannet launch: line 1 of .*crlf.sh names the interpreter /bin/sh.x0d, which .*: sed -i 's/.r[$]//' .*/crlf.sh$" "a script with CR LF" \
	launch 2 "$scratch/crlf.sh"
away() { mkdir "$scratch/gone" && cd "$scratch/gone" && rmdir "$scratch/gone" && "$@"; }
expect 127 "^gannet launch: warning: the working folder of this process does not exist any more" "a working folder that was removed" away launch 2 ./x
expect 3 "train: .*x is no packed dataset.*; the working folder of this process does not exist any more" "its ranks say so, too" \
	away launch 2 "$gannet" train --data x --model lenet --steps 1
expect 1 "UCX_NET_DEVICES=no0 names no network device of .* that is up; it has .*lo" "UCX_NET_DEVICES that this host does not have" \
	env UCX_NET_DEVICES=no0 timeout -k 5 300 "$gannet" launch -n 2 -- "$gannet" bench allreduce --transport tcp --max-bytes 1K --iters 2
# shellcheck disable=SC2016
expect 7 "" "the exit code is that of the rank that failed" launch 3 sh -c '[ "$PMIX_RANK" != 1 ] || exit 7'
# shellcheck disable=SC2016
all_output() { # ranks that end together, and before the launcher first looks
	for _ in $(seq 10); do [[ $("$gannet" launch -n 8 -- echo x | wc -l) == 8 ]] || return 1; done
}
check "no output of short programs is lost" all_output
lost_output() { "$gannet" launch -n 2 "$@" >/dev/full; }
expect 1 "output of rank 0: cannot write standard output: No space left" "output that is lost is a failure" lost_output echo x
expect 7 "cannot write standard output: No space left" "but not instead of a rank's" lost_output sh -c 'echo x; exit 7'
expect 0 "^x$" "a reader that has gone is none" bash -o pipefail -c '"$0" launch -n 2 -- sh -c "echo x; exec seq 100000" | head -n 1' "$gannet"
expect 0 "^-x --help$" "arguments arrive as they are" launch 1 sh -c 'echo "$@"' sh -x --help
# shellcheck disable=SC2016
shares() {
	local all
	all=$(nproc)
	((all > 1)) || return 0
	[[ $(launch "$all" nproc | sort -u) == 1 && $(launch 1 nproc) == "$all" && $(launch $((all + 1)) nproc | sort -u) == "$all" &&
		$(launch "$all" sh -c 'grep Cpus_allowed_list /proc/self/status' | sort -u | wc -l) == "$all" &&
		$(timeout -k 5 300 "$gannet" launch -n "$all" --bind none nproc | sort -u) == "$all" ]]
}
check "ranks share the processors when there are enough" shares
lines() {
	# shellcheck disable=SC2016
	launch 4 sh -c 'i=0; while [ $i -lt 300 ]; do printf "%s" "$PMIX_RANK$PMIX_RANK"; printf "%s\n" "$PMIX_RANK$PMIX_RANK"
		i=$((i + 1)); done' >"$scratch/out"
	[[ $(wc -l <"$scratch/out") == 1200 ]] && ! grep -Evx '0000|1111|2222|3333' "$scratch/out"
}
check "lines of several ranks do not mix" lines
unended() { [[ $(launch 2 printf x) == xx ]]; }
check "a last line without its end is passed on" unended
forwards() { # SIGNAL CODE
	rm -f "$scratch/out"
	# shellcheck disable=SC2016
	timeout -k 5 300 "$gannet" launch -n 2 -- sh -c "trap 'echo got \$PMIX_RANK; kill \$child; exit $2' $1
		sleep 1000 & child=\$!; echo up; wait" >"$scratch/out" &
	local pid=$!
	await_line 2 '^up' "$scratch/out" || return 1
	kill -"$1" "$(pgrep -P $pid)"
	wait $pid
	[[ $? == "$2" && $(sort "$scratch/out" | tr '\n' ' ') == "got 0 got 1 up up " ]]
}
check "SIGTERM reaches all ranks" forwards TERM 5
check "SIGUSR1 reaches all ranks" forwards USR1 5
by_signal() {
	timeout -k 5 300 "$gannet" launch -n 2 -- sleep 1000 &
	local pid=$!
	until (($(pgrep -c -x -P "$(pgrep -P $pid)" sleep) == 2)) 2>/dev/null; do sleep 0.05; done
	kill -TERM "$(pgrep -P $pid)"
	wait $pid
	[[ $? == 143 ]]
}
check "ranks that the passed-on signal kills give 128 + its number" by_signal
# shellcheck disable=SC2016
expect 4 "rank 0 was killed by signal 9" "a rank killed by a signal is reported, the code is 4" \
	launch 2 sh -c '[ "$PMIX_RANK" = 1 ] || kill -9 $$'
# Rank 1 ignores SIGTERM before rank 0 fails, and never ends by itself.
hangs() {
	# shellcheck disable=SC2016
	UP=$scratch/up timeout -k 5 300 "$gannet" launch -n 2 --grace 0 -- sh -c 'if [ "$PMIX_RANK" = 0 ]; then
		until [ -e "$UP" ]; do sleep 0.02; done; exit 3; fi; trap "" TERM; : >"$UP"; while :; do sleep 0.02; done' 2>"$scratch/err"
	[[ $? == 3 ]] && grep -q "terminating the remaining ranks" "$scratch/err"
}
check "ranks that do not end after a failure are ended" hangs
# Ranks 1 and 3 fail; the others see that the launcher has noticed both, one after the other, and then go on.
keeps_going() {
	local code
	# shellcheck disable=SC2016
	ERR=$scratch/err timeout -k 5 300 "$gannet" launch -n 4 --keep-going --grace 0 -- sh -c 'case $PMIX_RANK in 1) kill -9 $$ ;; esac
		until grep -q "rank 1 was killed" "$ERR"; do sleep 0.02; done
		case $PMIX_RANK in 3) echo $$ >"$ERR.3.new"; mv "$ERR.3.new" "$ERR.3"; exit 7 ;; esac
		until [ -e "$ERR.3" ] && ! kill -0 "$(cat "$ERR.3")" 2>/dev/null; do sleep 0.02; done; echo "$PMIX_RANK goes on"' >"$scratch/out" 2>"$scratch/err"
	code=$?
	cat "$scratch/err"
	[[ $code == 4 && $(sort "$scratch/out" | tr '\n' ' ') == "0 goes on 2 goes on " && $(tail -n 1 "$scratch/err") == \
		"gannet launch: rank 1 was killed by signal 9 (Killed), rank 3 ended with code 7; 2 of 4 ranks succeeded" ]]
}
check "with --keep-going the others are left alone, and the last line names who failed" keeps_going
# shellcheck disable=SC2016
expect 0 "rank 1 was killed .*, rank 2 ended with code 4; 1 of 3 ranks succeeded" "the code is 0 if one went on without those that were lost" \
	timeout -k 5 300 "$gannet" launch -n 3 --keep-going -- sh -c 'case $PMIX_RANK in 1) kill -9 $$ ;; 2) exit 4 ;; esac'
# shellcheck disable=SC2016
expect 4 "rank 1 was killed by signal 11 .*1 of 2 ranks succeeded" "a crash is no loss" \
	timeout -k 5 300 "$gannet" launch -n 2 --keep-going -- sh -c 'case $PMIX_RANK in 1) kill -SEGV $$ ;; esac'
expect 4 "0 of 2 ranks succeeded" "and 4 if none did" timeout -k 5 300 "$gannet" launch -n 2 --keep-going -- sh -c 'exit 4'
# shellcheck disable=SC2016
expect 0 "is stopped .SIGSTOP. and does not end" "a stopped rank that is the last is killed" \
	timeout -k 5 300 "$gannet" launch -n 2 --keep-going --grace 0 -- sh -c '[ "$PMIX_RANK" = 0 ] || kill -STOP $$'
# Rank 1 is lost; then the launcher is asked to stop, and ranks 0 and 2 do.
stops() {
	# shellcheck disable=SC2016
	ERR=$scratch/err timeout -k 5 300 "$gannet" launch -n 3 --keep-going -- sh -c 'trap "exit 5" TERM; [ "$PMIX_RANK" != 1 ] || kill -9 $$
		until grep -q "rank 1 was killed" "$ERR"; do sleep 0.02; done; [ "$PMIX_RANK" != 0 ] || kill -TERM $PPID
		while :; do sleep 0.02; done' 2>"$scratch/err"
	[[ $? == 5 ]] || { cat "$scratch/err"; return 1; }
}
check "a program that is stopped after a loss ended because it was stopped" stops
once() { # what is wrong with a command line is said by rank 0, of whichever rank it is by the launcher
	launch 3 "$gannet" "$@" >"$scratch/out" 2>"$scratch/err"
	[[ $? == 2 && $(wc -l <"$scratch/err") == 1 ]] && grep -q 'train: ' "$scratch/err"
}
check "a wrong option is told once" once train --model lenet --data x --no-such-option
check "options that cannot be combined, too" once train --model lenet --data x --local-steps 2 --compress int8
# shellcheck disable=SC2016
expect 2 "gannet report: unknown option --no-such-option" "one that rank 0 does not have is told by the rank that has it" \
	timeout -k 5 300 "$gannet" launch -n 2 -- sh -c '[ "$PMIX_RANK" = 0 ] || exec "$0" report --no-such-option' "$gannet"
all_fine() { [[ -z $(timeout -k 5 300 "$gannet" launch -n 2 --keep-going -- true 2>&1) ]]; }
check "and says nothing when none failed" all_fine
gone() { ! kill -0 "$1"; }
dies_with_launcher() {
	rm -f "$scratch/out"
	"$gannet" launch -n 2 -- sh -c 'echo $$; exec sleep 1000' >"$scratch/out" &
	local pid=$! child
	await_line 2 . "$scratch/out" || return 1
	kill -9 $pid
	wait $pid 2>/dev/null
	while read -r child; do
		until_true gone "$child" || return 1
	done <"$scratch/out"
}
check "ranks die with the launcher" dies_with_launcher
# What they have started, too, in their groups and in others, and also below gannet exec; not what others have started.
takes_all() { # COMMAND...
	local pid child other code=0
	rm -f "$scratch/out"
	sleep 1000 &
	other=$!
	# shellcheck disable=SC2016
	"$@" sh -c 'sleep 1000 & echo $!; setsid sleep 1000 & echo $!; echo $$; wait' >"$scratch/out" 2>"$scratch/err" &
	pid=$!
	await_line 3 '^[0-9]*$' "$scratch/out" || return 1
	kill -9 $pid
	wait $pid 2>/dev/null
	while read -r child; do
		until_true gone "$child" || code=1
	done <"$scratch/out"
	kill "$other" || code=1
	return $code
}
check "what ranks have started dies with a launcher that is killed" takes_all "$gannet" launch -n 1 --
check "and below gannet exec" takes_all "$gannet" launch -n 1 -- "$gannet" exec
check "also with an exec that is killed" takes_all "$gannet" exec
guard_ends() { # its guard holds no output and is not there any more
	local guard
	# shellcheck disable=SC2016
	guard=$(timeout -k 5 300 "$gannet" launch -n 1 -- sh -c 'pgrep -x -P $PPID gannet-guard' | cat) && [[ $guard ]] && gone "$guard"
}
check "the process that does so ends with the launcher, which waits for it" guard_ends
# What a rank looks like to PMIx that is killed while it connects: a connection, taken by the server, on which nothing comes, and
# which is still there when the launcher has ended.
half_connected() {
	local code
	# shellcheck disable=SC2016
	launch 1 perl -MIO::Socket::INET -MPOSIX -e '
		my ($port) = map { $ENV{$_} =~ m{tcp4://[\d.]+:(\d+)} } grep { /^PMIX_SERVER_URI/ } keys %ENV;
		my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port) or exit 9;
		my $end = sprintf ":%04X [0-9A-F]*:%04X 01 ", $port, $s->sockport;
		while (1) {
			open my $in, "<", "/proc/net/tcp" or exit 9;
			last if grep { /$end/ && (split)[9] } <$in>;
			select undef, undef, undef, 0.02;
		}
		my $pid = fork;
		if (!$pid) { POSIX::setsid(); open STDOUT, ">/dev/null"; open STDERR, ">/dev/null"; sleep 1000; exit 0 }
		open my $out, ">", shift; print $out "$pid\n"; close $out;
		exit 3' "$scratch/holder"
	code=$?
	kill "$(cat "$scratch/holder")" && [[ $code == 3 ]]
}
check "a rank that dies while it connects does not hold the launcher" half_connected
tidy() { mkdir "$scratch/tmp" && TMPDIR=$scratch/tmp launch 2 "$gannet" bench allreduce --max-bytes 1K --iters 2 >/dev/null 2>&1 && [[ ! $(ls -A "$scratch/tmp") ]]; }
check "nothing is left in TMPDIR" tidy
mkdir -m 777 "$scratch/open"
expect 1 "TMPDIR .*/open is world-writable without the sticky bit" "a TMPDIR that all may change is refused" \
	env TMPDIR="$scratch/open" "$gannet" launch -n 1 -- true
expect 1 "TMPDIR /nowhere: No such file" "so is one that does not exist" env TMPDIR=/nowhere "$gannet" launch -n 1 -- true

# A launcher that was killed leaves its folder with the secret: the next one removes it, but no living one's, nor what is not its own.
sweeps() {
	local pid live dead tmp=$scratch/sweep
	rm -f "$scratch/out"
	mkdir "$tmp" "$scratch/kept" && touch "$scratch/kept/file"
	ln -s "$scratch/kept" "$tmp/gannet-launch-$(hostname).abcdef"
	((UID)) || { mkdir "$tmp/gannet-launch-$(hostname).theirs" && chown 65534 "$tmp/gannet-launch-$(hostname).theirs"; } || return 1
	# shellcheck disable=SC2016 # for the shell in there
	TMPDIR=$tmp "$gannet" launch -n 1 -- sh -c 'echo "$GANNET_SECRET_FILE"; exec sleep 1000' >"$scratch/out" &
	pid=$!
	await_line 1 . "$scratch/out" || return 1
	dead=$(cat "$scratch/out")
	kill -9 $pid
	wait $pid 2>/dev/null
	[[ -s $dead ]] || return 1
	# shellcheck disable=SC2016
	TMPDIR=$tmp "$gannet" launch -n 1 -- sh -c 'echo "$GANNET_SECRET_FILE"; exec sleep 1000' >"$scratch/live" &
	pid=$!
	await_line 1 . "$scratch/live" && live=$(cat "$scratch/live") && TMPDIR=$tmp launch 1 true || return 1
	ls -l "$tmp"
	[[ ! -e ${dead%/*} && -s $live && -e $scratch/kept/file ]] && { ((UID)) || [[ -d $tmp/gannet-launch-$(hostname).theirs ]]; } || return 1
	kill $pid
	wait $pid
	[[ $(find "$tmp" -name secret | wc -l) == 0 ]]
}
check "what a killed launcher left is removed by the next one" sweeps

# --- lost peers ---
kill_one() { # TRANSPORT VICTIM SIGNAL: all end with code 4, and the others name it, and what is known of it
	local pid code how="its connection closed unexpectedly" to=$scratch/$1.$2.$3
	[[ $3 == KILL ]] || how="no heartbeat from it for"
	timeout -k 5 300 "$gannet" launch -n 4 --grace 250 -- "$probe" "$1" forever >"$to.out" 2>"$to.err" &
	pid=$!
	await_line 4 '^ready' "$to.out" || { kill -9 $pid; return 1; }
	kill -"$3" "$(awk -v r="$2" '$2 == r { print $3 }' "$to.out")"
	wait $pid
	code=$?
	cat "$to.err"
	[[ $code == 4 && $(grep -c "rank $2 on $(hostname) is lost: $how" "$to.err") == 3 ]] && ! grep "terminating the remaining" "$to.err" || return 1
	# rank 0 has asked the others what they were in, and all are told the same: it is in a collective, or after one;
	# who is not in that says what it was in itself
	(($2 == 0)) || [[ $(grep -o "rank $2 on [^;]* is lost: [^;]*; ranks\? [0-3][^;]* \(in\|after\) operation number [0-9]*" "$to.err" | uniq -c | awk '{ print $1 }') == 3 ]]
}
check "kill -9 of rank 2 over tcp: the others end and name it" kill_one tcp 2 KILL
check "kill -9 of rank 1 over shm: the others end and name it" kill_one shm 1 KILL
check "kill -9 of rank 0: the others end and name it" kill_one auto 0 KILL
# Both at once: what takes time is that nothing is heard of them.
two_stopped() {
	local code other
	kill_one shm 3 STOP >"$scratch/stopped" 2>&1 &
	other=$!
	kill_one tcp 0 STOP
	code=$?
	wait "$other"
	echo "code $?" >>"$scratch/stopped"
	return $code
}
check "a stopped rank 0: the others end and name it" two_stopped
expect 0 "^code 0$" "a stopped rank 3: the others end and name it" cat "$scratch/stopped"
# All ranks at once, in namespaces of their own: what is left of shared memory is theirs.
leaves_names() {
	# not the lines of the check before
	: >"$scratch/out"
	# shellcheck disable=SC2016 # for the shell in there
	unshare --ipc --mount bash -c '
		mount -t tmpfs none /dev/shm || exit 1
		timeout -k 5 300 "$0" launch -n 4 -- "$1" "$2" forever >"$3/out" 2>"$3/err" &
		until (($(grep -c "^ready" "$3/out") >= 4)); do kill -0 $! || exit 1; sleep 0.02; done
		kill -9 $(awk "/^ready/ { print \$3 }" "$3/out") || echo "not killed"
		wait $!
		ls -A /dev/shm
		ipcs -m | grep "^0x"' "$gannet" "$probe" "$1" "$scratch" >"$scratch/names"
	cat "$scratch/names"
	[[ ! -s $scratch/names && $(grep -c '^ready' "$scratch/out") == 4 ]]
}
if ((UID)); then
	skip "what a crash leaves of shared memory" "it takes root to look at that alone"
else
	check "kill -9 of all ranks over shm leaves no name of shared memory" leaves_names shm
	check "nor does it by what is fastest" leaves_names auto
fi
expect 4 "rank 1 on .* has left the job" "a rank that leaves early is not waited for for ever" launch 3 "$probe" auto leave
reason() {
	launch 3 "$probe" auto give-up >"$scratch/out" 2>&1
	[[ $? == [34] && $(grep -c "rank 1 on .* shard 7 is broken" "$scratch/out") == 2 ]]
}
check "a rank that gives up tells the others why" reason
amid() {
	launch 3 "$probe" tcp give-up-amid >"$scratch/out" 2>&1
	[[ $? == [34] && $(grep -c "rank 1 on .* shard 7 is broken" "$scratch/out") == 2 ]] && ! grep "UCX" "$scratch/out"
}
check "also when messages for it have come, which UCX keeps to itself" amid

mismatch() { # COUNT: whoever ends first gives the code, 2 or 4; no rank says that all is well
	launch 3 "$probe" shm mismatch "$1" >"$scratch/out" 2>&1
	[[ $? == [24] ]] && ! grep -q "0 wrong" "$scratch/out" && grep -q "disagree about operation number .* rank 1 on .* started allreduce of" "$scratch/out"
}
for count in 2 1000003; do
	check "ranks that reduce $count and one less elements are told" mismatch "$count"
done

# --- signs that contradict each other, through the real binary ---
bench=("$gannet" bench allreduce --max-bytes 1K --iters 2)
expect 2 "PMIX_RANK=[01] but RANK=5" "PMIx and RANK disagree" env RANK=5 WORLD_SIZE=6 "$gannet" launch -n 2 -- "${bench[@]}"
# shellcheck disable=SC2016
expect 2 "PMIx says there are 2 ranks but WORLD_SIZE=3" "PMIx and WORLD_SIZE disagree" \
	launch 2 sh -c 'RANK=$PMIX_RANK WORLD_SIZE=3 exec "$@"' sh "${bench[@]}"
expect 2 "RANK=4 is not below WORLD_SIZE=4" "RANK >= WORLD_SIZE" env RANK=4 WORLD_SIZE=4 "${bench[@]}"
expect 2 "WORLD_SIZE" "RANK without WORLD_SIZE" env RANK=0 "${bench[@]}"
expect 2 "srun --mpi=pmix" "a Slurm step of several tasks without PMIx" env SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 "${bench[@]}"
expect 0 "1 rank on 1 node" "a batch script is a world of one" env SLURM_JOB_ID=1 SLURM_NTASKS=4 SLURM_PROCID=0 "${bench[@]}"
expect 1 "no PMIx server answers" "PMIx variables without a server" env PMIX_NAMESPACE=x PMIX_RANK=0 timeout -k 5 300 "${bench[@]}"
# UCX's handler for SIGHUP is not left in place: a hang-up ends gannet and its ranks, and under nohup the ranks ignore it, too.
# shellcheck disable=SC2016
hangup='grep -h SigIgn /proc/self/status; grep -h SigCgt /proc/$PPID/status'
expect 0 "^SigCgt:.*[02468ace]$" "SIGHUP is not caught" timeout -k 5 300 "$GN_BUILD/gannet" launch -n 1 -- sh -c "$hangup"
# shellcheck disable=SC2016
expect 0 "^SigIgn:.*[13579bdf]$" "under nohup it is ignored" timeout -k 5 300 sh -c 'trap "" HUP; exec "$@"' x "$GN_BUILD/gannet" launch -n 1 -- sh -c "$hangup"
finish
